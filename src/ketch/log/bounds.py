"""Where one partition's log starts and ends, over Redis and archive.

`BoundsState` decides it from facts and does no I/O. `PartitionBounds` asks `LiveStream` and `Tier` for these facts. The
start depends on:

- A log that nothing was removed from starts where its topic was created, not at its first entry.
- A removal moves the start to the first entry that is left, or to the end where none is. What comes later does not: the
  start is remembered with the number of entries that were ever removed (`StreamInfo.removed`).
- DeleteRecords moves it to its offset, which may lie within the first entry's batch or before that. Other brokers, and
  this one after a restart, know only where the first entry lies.
- Compaction removes first entries, too, and does not move it. It notes where the log started before.
- What was archived is part of the log: with it the log starts where the archive starts.
- It moves back only where another client has deleted the stream and writes it again.

Redis before 7 does not count removals. There the start follows the first entry, and an empty stream's follows its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from ketch.errors import NotEnoughReplicas, NotEnoughReplicasAfterAppend, OffsetOutOfRange, StorageUnavailable
from ketch.log.live import LiveStream, Shared
from ketch.log.tier import Tier
from ketch.store.offsets import EntryId
from ketch.store.stream.isolation import Transactions
from ketch.store.topics.archives import ArchivedRange
from ketch.store.topics.topic import Topic
from ketch.store.xinfo import StreamInfo
from ketch.tasks import lasting

_PATIENCE_S = 0.5  # of a reader, for the copies of what has come last


@dataclass(frozen=True, slots=True)
class Bounds:
    """Offsets of a partition's log.

    Attributes:
        log_start: of the first record that may exist.
        high_watermark: that of the last record, plus one; for readers, of the last one that has its copies.
        local_start: of the first record that Redis may hold; those below it are archived.
        last_stable: below it every transaction is decided (KIP-98); the high watermark where none is open.
        withheld: how far the log reaches beyond the high watermark.
    """

    log_start: int
    high_watermark: int
    local_start: int
    last_stable: int
    withheld: int = 0

    def end(self, committed: bool) -> int:
        """The offset that nothing is read from on.

        Args:
            committed: of a reader that wants committed records only.
        """
        return self.last_stable if committed else self.high_watermark

    def check(self, offset: int) -> None:
        """Raises OffsetOutOfRange unless `offset` can be read from, now or once records have their copies."""
        if not self.log_start <= offset <= self.high_watermark + self.withheld:
            raise OffsetOutOfRange(f"offset {offset} is not in {self.log_start} to {self.high_watermark}")

    def below(self, end: int) -> Bounds:
        """The same, where nothing is read from `end` on."""
        stable, withheld = min(self.last_stable, end), self.high_watermark - end
        return replace(self, high_watermark=end, last_stable=stable, withheld=withheld)


class Extent(NamedTuple):
    """Where the log lies, and what says so.

    Attributes:
        start: of what is in the stream.
    """

    info: StreamInfo
    archived: ArchivedRange | None
    log_start: int
    start: int
    end: int

    def bounds(self, transactions: Transactions) -> Bounds:
        """The bounds, with what is known of its transactions."""
        return Bounds(self.log_start, self.end, self.start, transactions.last_stable(self.log_start, self.end))


class _Removal(NamedTuple):
    """The last removal that was seen.

    Attributes:
        last: the stream's last id then; with `removed` it tells an earlier look at the stream from a later one.
        removed: how many entries had ever been removed.
        start: where the log in the stream has started since.
    """

    last: EntryId
    removed: int
    start: int


class BoundsState:
    """Decides where one partition's log starts and ends, without I/O. It remembers the last removal and compaction."""

    def __init__(self) -> None:
        self._removal: _Removal | None = None
        self._compacted: tuple[EntryId | None, int | None] = None, None  # the first entry, and where the log starts

    def local(self, topic: Topic, info: StreamInfo) -> tuple[int, int]:
        """Where the log in the stream starts and ends."""
        start, end = topic.extent(info)
        first, compacted = self._compacted
        if compacted is not None and first == info.first:
            start = min(start, compacted)
        removal = self._removal
        if removal is None or info.removed is None or info.removed < removal.removed:
            return start, end
        # It may lie within the first entry's batch; what ends below it is a stream that was created again.
        reached = end if info.first is None else topic.numbering.to_offset(*info.first)
        if reached >= removal.start:
            # Only a removal may move the start: a consumer that has read everything, or has begun at the start of an
            # empty partition (Spark's do), holds the earlier answer when the next record comes, at a later time.
            start = removal.start if info.removed == removal.removed else max(start, removal.start)
        return start, end

    def extent(self, topic: Topic, info: StreamInfo, archived: ArchivedRange | None) -> Extent:
        """Where the whole log lies.

        Args:
            archived: asked for after `info`: what was missing there is in it.
        """
        start, end = self.local(topic, info)
        known = self._removal
        # `info` may be older than what a removal has told meanwhile.
        if info.removed is not None and (known is None or (info.last, info.removed) >= known[:2]):
            self._removal = _Removal(info.last, info.removed, start)
        nothing = archived is None or archived.start >= archived.through
        log_start = start if nothing or archived is None else min(start, archived.start)
        return Extent(info, archived, log_start, start, end)

    def removed_below(self, offset: int, info: StreamInfo) -> None:
        """DeleteRecords has removed the records below `offset`, and the stream is as in `info` now."""
        if info.removed is not None:
            known = self._removal
            start = offset if known is None or known.removed > info.removed else max(offset, known.start)
            self._removal = _Removal(info.last, info.removed, start)

    def asks_compaction(self, topic: Topic, info: StreamInfo) -> bool:
        """Whether `compacted` has to be told first. A log that was never trimmed starts where its topic was created."""
        return topic.compacts and info.removed != 0 and self._compacted[0] != info.first

    def compacted(self, info: StreamInfo, start: int | None) -> None:
        """Before compaction removed the entries before the first one the log started at `start`; None: it did not."""
        self._compacted = info.first, start


class PartitionBounds:
    """The bounds of one partition.

    Attributes:
        log_start: the log start offset as last seen.
        extent: what it follows from; None where that has to be asked for.
    """

    def __init__(self, stream: LiveStream, tier: Tier, shared: Shared) -> None:
        self._stream, self._tier, self._shared = stream, tier, shared
        self._copied: int | None = None  # below it every record has its copies
        self._state = BoundsState()
        self.extent: Extent | None = None
        self._seen: tuple[Extent, Transactions, Bounds] | None = None
        self.log_start = stream.topic.first_offset

    def prefetch(self) -> None:
        """Has Redis asked already what `get` will have to know."""
        self._stream.prefetch()

    async def get(self, offset: int = 0) -> Bounds:
        """The bounds as they are.

        Args:
            offset: what will be read from. Where it is beyond the end that is known, Redis is asked again: the reader
                may have been given a record before the push of that record has come here.

        Raises:
            StorageUnavailable: Redis is gone.
        """
        bounds = await self._of(await self._stream.info())
        if offset <= bounds.high_watermark:
            return bounds
        return await self._of(await self._stream.fresh_info())

    def readable(self, offset: int = 0) -> Coroutine[Any, Any, Bounds]:
        """As `get`, for a reader: where the topic wants copies, the high watermark is below what lacks them.

        So no failover loses what was read: no consumer finds its position beyond the end, or other records there.
        As in Kafka replicas count that are in sync: where these are too few, so that acks=all is refused, all is read.

        Raises:
            StorageUnavailable: Redis is gone, or what has copies is not known.
        """
        copies = self._stream.topic.intake.copies
        return self.get(offset) if copies == 1 else self._with_copies(offset, copies)

    async def _with_copies(self, offset: int, wanted: int) -> Bounds:
        bounds = await self.get(offset)
        if self._copied is not None and bounds.high_watermark < self._copied:
            self._copied = None  # it is another stream
        if bounds.high_watermark != self._copied:
            driver, ask = self._shared.watcher.driver, partial(self.get, offset)
            try:
                bounds = await self._shared.copies.copied(
                    driver, [self._stream.key], wanted, ask, _PATIENCE_S, in_memory=True
                )
                self._copied = bounds.high_watermark
            except NotEnoughReplicas:
                return bounds
            except NotEnoughReplicasAfterAppend as error:
                if self._copied is None:
                    raise StorageUnavailable(f"which records have copies is not known: {error}") from None
        return bounds if bounds.high_watermark == self._copied else bounds.below(self._copied)

    def refresh_start(self) -> asyncio.Task[None] | None:
        """Looks for `log_start` where it may have moved without this broker; None where it has not.

        Our own appends do not move it. Any other change of the stream is pushed, and the archive moves it unseen.
        """
        known, extent = self._stream.known(), self.extent
        if known is None or extent is None or extent.archived is not None or extent.info.lineage is not known.lineage:
            return lasting(self._find_start())
        return None

    async def _find_start(self) -> None:
        await self._extent_of(await self._stream.info())

    async def after_removal(self, offset: int) -> Bounds:
        """The bounds after the records below `offset` were removed: the log starts there, wherever the next one is."""
        self._stream.changed()
        info = await self._stream.fresh_info()
        self._state.removed_below(offset, info)
        self.extent = None
        return await self._of(info)

    def local(self, info: StreamInfo) -> tuple[int, int]:
        """Where the log in the stream starts and ends."""
        return self._state.local(self._stream.topic, info)

    async def _extent_of(self, info: StreamInfo) -> Extent:
        archived = await self._tier.archived()  # asked after `info`: what was missing there is known here
        known = self.extent
        if known is None or known.info is not info or known.archived != archived:
            if self._state.asks_compaction(self._stream.topic, info):
                self._state.compacted(info, await self._stream.start_before_compaction(info))
            known = self.extent = self._state.extent(self._stream.topic, info, archived)
            self.log_start = known.log_start
        return known

    async def _of(self, info: StreamInfo) -> Bounds:
        extent = await self._extent_of(info)
        transactions = await self._stream.transactions()  # after `info` too: those of all records below its end
        seen = self._seen
        if seen is None or seen[0] is not extent or seen[1] is not transactions:
            seen = self._seen = extent, transactions, extent.bounds(transactions)
        return seen[2]
