"""What a share group is on one partition, whatever the layout: `Share`; and what it gives and takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from ketch.coordinator.share.config import ResetStrategy, ShareConfig
from ketch.errors import KetchError
from ketch.wire.pieces import Pieces


class InvalidRecordState(KetchError):
    """Kafka's INVALID_RECORD_STATE (121): the member does not hold what it acknowledges, or not any more."""


class NotInFlight(KetchError):
    """Kafka's INVALID_REQUEST (42): an acknowledgement of what was not delivered yet."""


class Acknowledge(IntEnum):
    """What a member says of a record (AcknowledgeType)."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3


class Acknowledged(NamedTuple):
    """What a member says of consecutive offsets, `last` included."""

    first: int
    last: int
    what: Acknowledge


class Run(NamedTuple):
    """Consecutive offsets that were delivered equally often, `last` included."""

    first: int
    last: int
    deliveries: int


@dataclass(slots=True)
class Acquired:
    """What a member was given.

    Attributes:
        records: the batches that hold it; they may hold other records too.
        runs: the records that it has now, in the order of their offsets.
        count: how many these are.
    """

    records: bytes | Pieces = b""
    runs: Sequence[Run] = ()
    count: int = 0


Start = Callable[[ResetStrategy], Awaitable[int | None]]
"""The offset that `share.auto.offset.reset` stands for; None: the end."""


class Share(Protocol):
    """One share group on one partition. Every method raises StorageUnavailable where Redis is gone."""

    async def acquire(self, member: str, records: int, size: int, config: ShareConfig) -> Acquired:
        """Gives a member up to so many records, in about `size` bytes of batches; nothing where there is nothing.

        Whole batches may be given where it takes that, so more records than asked for.
        """

    async def backlog(self, config: ShareConfig) -> float:
        """About how many bytes `acquire` could give now; infinite where that is not known."""

    async def acknowledge(self, member: str, acknowledged: Sequence[Acknowledged], config: ShareConfig) -> None:
        """Takes what a member says of records: all of it, or none.

        Raises:
            InvalidRecordState: the member does not hold one of them.
            NotInFlight: one was not delivered yet.
        """

    async def leave(self, member: str, config: ShareConfig) -> None:
        """Gives back what a member holds, as if it had not been delivered."""


def runs_of(offsets: Iterable[tuple[int, int]]) -> Iterator[Run]:
    """The runs of (offset, deliveries) pairs, which are in order."""
    run: Run | None = None
    for offset, deliveries in offsets:
        if run is not None and offset == run.last + 1 and deliveries == run.deliveries:
            run = Run(run.first, offset, deliveries)
            continue
        if run is not None:
            yield run
        run = Run(offset, offset, deliveries)
    if run is not None:
        yield run
