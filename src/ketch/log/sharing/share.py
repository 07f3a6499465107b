"""What a share group is on one partition, whatever the layout: `Share`; and what it gives and takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from ketch.coordinator.share.config import ResetStrategy, ShareConfig
from ketch.errors import KetchError
from ketch.wire.pieces import Pieces

# Kafka's words (SharePartition)
BEYOND_FIRST = "Batch record not found. The first offset in request is past acquired records."
BEYOND_LAST = "Batch record not found. The last offset in request is past acquired records."
NOTHING = "Batch record not found. The request batch offsets are not found in the cache."
NOT_OWNED = "Member is not the owner of offset"
NOT_HELD = "The batch cannot be acknowledged. The offset is not acquired."


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

    async def start(self) -> int | None:
        """The first offset that is not settled; None where nothing is kept of the group on this partition."""

    async def move(self, offset: int) -> None:
        """Has the group begin at an offset: what lies below is settled, and the rest was never delivered."""

    async def remove(self) -> None:
        """Nothing is kept of the group on this partition any more; its next fetch begins anew."""


def joined(runs: Iterable[Run]) -> list[Run]:
    """The runs, of which none follows right after another one with as many deliveries."""
    whole: list[Run] = []
    for run in runs:
        if whole and whole[-1].last + 1 == run.first and whole[-1].deliveries == run.deliveries:
            whole[-1] = Run(whole[-1].first, run.last, run.deliveries)
        else:
            whole.append(run)
    return whole


def runs_of(offsets: Iterable[tuple[int, int]]) -> list[Run]:
    """The runs of (offset, deliveries) pairs, which are in order."""
    return joined(Run(offset, offset, deliveries) for offset, deliveries in offsets)
