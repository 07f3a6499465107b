"""What happened in a chaos run: who wrote, read and committed what, when, and what the log held in the end.

Clients append to a `History` while they run; `checker` reads it when the run is over. Nothing here talks to a server.
Times are seconds of one monotonic clock, taken before a request is made and after its answer has come.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


@dataclass(slots=True)
class Write:
    """A record that a writer sent. Without an answer its outcome is unknown: it may be in the log once, or not.

    Attributes:
        number: counts the writer's records of this partition.
        ordered: the writer promises that its records lie in the log in the order of their numbers, answered or not.
        acked: when the acknowledgement came, None without one.
        offset: the acknowledged one.
    """

    writer: str
    partition: Partition
    number: int
    sent: float
    ordered: bool = True
    acked: float | None = None
    offset: int | None = None

    @property
    def value(self) -> str:
        """The record's value, no other record's."""
        return f"{self.writer} {self.partition} {self.number}"


@dataclass(slots=True)
class Transaction:
    """Records that are all committed, or none.

    Attributes:
        committed: None where its outcome is not known.
    """

    writer: str
    writes: list[Write] = field(default_factory=list)
    committed: bool | None = None


@dataclass(slots=True)
class Session:
    """What one reader read of one partition, from the moment it was given a position until it gave the partition up.

    Attributes:
        group: whose commits the reader goes on from; None for a reader that does not commit.
        began: when it asked for its position, at the earliest.
        start: where it began to read, None if only the first record tells.
        reads: offset and value of each record, in the order of their arrival.
        end: it read everything below this offset; None: everything up to its last record.
    """

    reader: str
    partition: Partition
    began: float
    group: str | None = None
    start: int | None = None
    reads: list[tuple[int, str]] = field(default_factory=list)
    end: int | None = None


class Commit(NamedTuple):
    """A commit of a group's position, `ok` if it was acknowledged; else its outcome is unknown."""

    group: str
    partition: Partition
    offset: int
    began: float
    ended: float
    ok: bool


class Committed(NamedTuple):
    """An answered question for a group's position; the offset is None where the answer was that there is no commit."""

    group: str
    partition: Partition
    offset: int | None
    began: float
    ended: float


@dataclass
class History:
    """Everything that a run recorded. Only appended to, from several threads.

    Attributes:
        log: offset and value of each record, as Redis has them in the end; of transactions what is committed.
        failures: what no client may meet: fatal errors, readers without an end.
        replicated: a failover of Redis may lose what has too few copies.
    """

    writes: list[Write] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    log: dict[Partition, list[tuple[int, str]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    replicated: bool = False
    transactions: list[Transaction] = field(default_factory=list)
