"""Where one partition's log starts and ends, over Redis and archive."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

from ketch.errors import OffsetOutOfRange
from ketch.log.live import LiveStream
from ketch.log.tier import Tier
from ketch.store.offsets import EntryId
from ketch.store.stream.isolation import Transactions
from ketch.store.topics.archives import ArchivedRange
from ketch.store.xinfo import StreamInfo
from ketch.tasks import lasting


@dataclass(frozen=True, slots=True)
class Bounds:
    """Offsets of a partition's log.

    Attributes:
        log_start: of the first record that may exist.
        high_watermark: that of the last record, plus one.
        local_start: of the first record that Redis may hold; those below it are archived.
        last_stable: below it every transaction is decided (KIP-98); the high watermark where none is open.
    """

    log_start: int
    high_watermark: int
    local_start: int
    last_stable: int

    def end(self, committed: bool) -> int:
        """The offset that nothing is read from on.

        Args:
            committed: of a reader that wants committed records only.
        """
        return self.last_stable if committed else self.high_watermark

    def check(self, offset: int) -> None:
        """Raises OffsetOutOfRange unless `offset` can be read from."""
        if not self.log_start <= offset <= self.high_watermark:
            raise OffsetOutOfRange(f"offset {offset} is not in {self.log_start} to {self.high_watermark}")


class _Extent(NamedTuple):
    """Where the log lies, and what says so.

    Attributes:
        start: of what is in the stream.
    """

    info: StreamInfo
    archived: ArchivedRange | None
    log_start: int
    start: int
    end: int


class PartitionBounds:
    """The bounds of one partition.

    Attributes:
        log_start: the log start offset as last seen.
    """

    def __init__(self, stream: LiveStream, tier: Tier) -> None:
        self._stream, self._tier = stream, tier
        self._removed: tuple[int, int] | None = None  # how many entries were removed when, and where the log began then
        # What is known, and what it follows from.
        self._extent: _Extent | None = None
        self._seen: tuple[_Extent, Transactions, Bounds] | None = None
        self._compacted: tuple[EntryId | None, int | None] = None, None  # the first entry, and where the log starts
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

    def refresh_start(self) -> asyncio.Task[None] | None:
        """Looks for `log_start` where it may have moved without this broker; None where it has not.

        Our own appends do not move it. Any other change of the stream is pushed, and the archive moves it unseen.
        """
        known, extent = self._stream.known(), self._extent
        if known is None or extent is None or extent.archived is not None or extent.info.lineage is not known.lineage:
            return lasting(self._find_start())
        return None

    async def _find_start(self) -> None:
        await self._extent_of(await self._stream.info())

    async def after_removal(self, offset: int) -> Bounds:
        """The bounds after the records below `offset` were removed: the log starts there, wherever the next one lies.

        Other brokers, and this one after a restart, know only where that record lies.
        """
        self._stream.changed()
        info = await self._stream.fresh_info()
        if info.removed is not None:
            known = self._removed[1] if self._removed and self._removed[0] == info.removed else 0
            self._removed = (info.removed, max(offset, known))
            self._extent = None
        return await self._of(info)

    def local(self, info: StreamInfo) -> tuple[int, int]:
        """Where the log in the stream starts and ends."""
        start, end = self._stream.topic.extent(info)
        # Only a removal may move the start: a consumer that has read everything, or has begun at the start of an empty
        # partition (Spark's do), holds the earlier answer when the next record comes, at a later time.
        if info.removed is not None and self._removed is not None and self._removed[0] == info.removed:
            # It may lie within the first entry's batch; an entry below it is of a stream that was created again.
            again = info.first is not None and self._stream.numbering.to_offset(*info.first) < self._removed[1]
            start = start if again else self._removed[1]
        elif info.removed:
            self._removed = (info.removed, start)
        first, compacted = self._compacted
        if compacted is not None and first == info.first:
            start = min(start, compacted)
        return start, end

    async def _see_compaction(self, info: StreamInfo) -> None:
        """Compaction removes first entries, too, and does not move the start; nor has a log that was never trimmed."""
        if self._stream.topic.compacts and info.removed != 0 and self._compacted[0] != info.first:
            self._compacted = info.first, await self._stream.start_before_compaction(info)

    async def _extent_of(self, info: StreamInfo) -> _Extent:
        archived = await self._tier.archived()  # asked after `info`: what was missing there is known here
        known = self._extent
        if known is None or known.info is not info or known.archived != archived:
            await self._see_compaction(info)
            start, end = self.local(info)
            nothing = archived is None or archived.start >= archived.through
            self.log_start = start if nothing or archived is None else min(start, archived.start)
            known = self._extent = _Extent(info, archived, self.log_start, start, end)
        return known

    async def _of(self, info: StreamInfo) -> Bounds:
        extent = await self._extent_of(info)
        transactions = await self._stream.transactions()  # after `info` too: those of all records below its end
        seen = self._seen
        if seen is None or seen[0] is not extent or seen[1] is not transactions:
            stable = transactions.last_stable(extent.log_start, extent.end)
            bounds = Bounds(extent.log_start, extent.end, extent.start, stable)
            seen = self._seen = extent, transactions, bounds
        return seen[2]
