"""Reads of many partitions at once: which of them share a round trip to Redis, and how a response's room is shared out.

The first partition that has a record gives one, however large (KIP-74); all else that is read stays within the room and
within each partition's own limit. Partitions are read in the order they are given, some at the same time: as many as
fit together whatever they give. Most are answered by one command. Those commands are sent before the first reply is
waited for, without a task for each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ketch.errors import KetchError
from ketch.log.bounds import Bounds
from ketch.log.partition import Partition
from ketch.log.reading import Member
from ketch.store.layouts.layout import Chunk
from ketch.store.stream.isolation import Aborted
from ketch.tasks import lasting
from ketch.wire.pieces import Pieces

TOGETHER = 8 << 20  # bytes that partitions read at the same time may give


@dataclass(slots=True, eq=False)
class PartitionRead:
    """What is wanted of one partition, and what it gave.

    Attributes:
        offset: of the first record wanted.
        max_bytes: of its batches.
        committed: the reader wants committed records only.
        member: group and member id, where the reader is known to be one.
        bounds: None where the partition cannot be read; `error` says why.
        more: whether there are records after those given.
        aborted: the aborted transactions among them, where the reader wants committed records only.
    """

    partition: Partition
    offset: int
    max_bytes: int
    committed: bool = False
    member: Member | None = None
    bounds: Bounds | None = None
    records: bytes | Pieces = b""
    more: bool = False
    aborted: Sequence[Aborted] = ()
    error: KetchError | None = None

    @property
    def has_data(self) -> bool:
        """Whether there may be records from `offset` on."""
        if self.bounds is None:
            return False
        return not self.partition.reader.exhausted(self.offset, self.bounds.end(self.committed))

    @property
    def at_end(self) -> bool:
        """Whether nothing is there for this reader until the partition changes."""
        return not (self.has_data or (self.bounds is not None and self.bounds.withheld))

    @property
    def is_cold(self) -> bool:
        """Whether they lie in the archive."""
        return self.bounds is not None and self.offset < self.bounds.local_start

    def fail(self, error: KetchError) -> None:
        self.error, self.bounds = error, None


async def look(reads: Sequence[PartitionRead]) -> None:
    """Finds out where each partition's log starts and ends: one round trip for all that is not known."""
    for read in reads:
        read.partition.bounds.prefetch()
    # Those that want copies wait at the same time, and so share a WAIT. Of all others `get` says what is readable.
    copied = {
        read: lasting(read.partition.bounds.readable(read.offset))
        for read in reads
        if read.partition.topic.intake.copies > 1
    }
    for read in reads:
        try:
            read.bounds = await (copied[read] if read in copied else read.partition.bounds.get(read.offset))
            read.bounds.check(read.offset)
        except KetchError as error:
            read.fail(error)


async def fill(reads: Sequence[PartitionRead], room: int, zstd: bool) -> None:
    """Reads partitions that `look` has looked at, in turn, until `room` bytes are given.

    Args:
        zstd: whether the reader knows this compression.
    """
    ready = deque(read for read in reads if read.has_data)
    first = True  # no partition has given anything, so the next one may give more than there is room
    while ready and (room > 0 or first):
        batch = _next(ready, room, first)
        asked = [_ask(read, limit) for read, limit in batch]
        if first:
            read, limit = batch.pop(0)
            await _read(read, limit, zstd, asked.pop(0), at_least_one=True)
            given = len(read.records)
            room, first = room - given, not given
            if (
                first or given > limit
            ):  # the next one is the first, or the others have less room than they reckoned with
                ready.extendleft(other for other, _ in reversed(batch))
                continue
        await _read_all(batch, zstd, asked)
        room -= sum(len(read.records) for read, _ in batch)


def _next(ready: deque[PartitionRead], room: int, first: bool) -> list[tuple[PartitionRead, int]]:
    """Partitions to read at the same time, which together fit whatever they give, and how much of each."""
    reads: list[tuple[PartitionRead, int]] = []
    together = min(room, TOGETHER)
    while ready:
        limit = min(room, max(ready[0].max_bytes, 0))
        if reads and (limit > together or not limit):
            break
        read = ready.popleft()
        if limit or first:
            reads.append((read, limit))
            together -= limit
    return reads


def _ask(read: PartitionRead, limit: int) -> asyncio.Future[Chunk] | None:
    """The records on their way, where one command brings them."""
    assert read.bounds is not None
    return None if read.member else read.partition.reader.ask(read.offset, limit, read.bounds, read.committed)


async def _read_all(
    batch: list[tuple[PartitionRead, int]], zstd: bool, asked: list[asyncio.Future[Chunk] | None]
) -> None:
    others = [_read(*each, zstd) for each, chunk in zip(batch, asked, strict=True) if chunk is None]
    if len(others) == 1:
        await others[0]
    elif others:
        await asyncio.gather(*others)
    for each, chunk in zip(batch, asked, strict=True):
        if chunk is not None:
            await _read(*each, zstd, chunk)


async def _read(
    read: PartitionRead,
    limit: int,
    zstd: bool,
    asked: asyncio.Future[Chunk] | None = None,
    at_least_one: bool = False,
) -> None:
    assert read.bounds is not None
    try:
        found = await read.partition.reader.read(
            read.offset, limit, read.bounds, zstd, read.member, asked, at_least_one, read.committed
        )
        read.records, read.bounds, read.more, read.aborted = found.records, found.bounds, found.more, found.aborted
    except KetchError as error:
        read.fail(error)
