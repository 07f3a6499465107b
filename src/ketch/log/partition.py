"""One topic partition: appends, reads, bounds, deletion and search by time, over Redis and archive.

It is put together of parts that know one thing each: `LiveStream` the stream, `PartitionBounds` its bounds, `Appender`
the write side, `PartitionReader` the read side, `GroupPositions` the consumer groups, `Tier` the archive. Together with
`log.reads`, which reads many partitions, it is all that handlers see of the log's records.
"""

from __future__ import annotations

import asyncio
from functools import partial

from ketch.clock import now_ms
from ketch.coordinator.share.config import ResetStrategy, ResetTo
from ketch.errors import OffsetOutOfRange
from ketch.log.appending.appender import Appender
from ketch.log.appending.producers import Sequenced
from ketch.log.bounds import PartitionBounds
from ketch.log.group_positions import GroupPositions
from ketch.log.live import LiveStream, Shared
from ketch.log.reading import PartitionReader
from ketch.log.sharing.shares import Shares
from ketch.log.tier import Tier
from ketch.records.control import Marker
from ketch.store.append import markers
from ketch.store.layouts.layout import Payload
from ketch.store.offsets import MAX_OFFSET
from ketch.store.stream import search, trimming
from ketch.store.stream.ranges import EntrySizes, PartitionStream
from ketch.store.stream.search import Found
from ketch.store.topics.topic import Topic


class Partition:
    """Reads and writes one partition of one topic.

    Attributes:
        key: of its stream.
        topic: as it was last described.
        state: what is known of its stream, and what is on its way into it; its appender's.
        appender: its write side, of which others call what this class passes on.
        bounds: where its log starts and ends.
        reader: its read side.
        group_positions: the native groups of the consumer groups that read it.
        shares: the share groups that read it.
        tier: its part of the archive.
        transaction_keys: what Redis keeps of its transactions.
    """

    __slots__ = (
        "_shared", "_stream", "appender", "bounds", "group_positions", "index", "key", "reader", "shares", "state",
        "tier", "topic", "transaction_keys",
    )  # fmt: skip

    def __init__(self, topic: Topic, index: int, shared: Shared) -> None:
        self.index, self.topic = index, topic
        self._stream = LiveStream(topic, index, shared)
        self.key = self._stream.key
        self.tier = Tier(shared.archives, lambda: self._stream.topic, index)
        self.bounds = PartitionBounds(self._stream, self.tier, shared)
        self.group_positions = GroupPositions(self._stream, shared.reads, shared.pending_max)
        self.reader = PartitionReader(self._stream, self.bounds, self.tier, self.group_positions, shared)
        self.shares = Shares(self._stream, self.bounds, shared, self._share_start)
        self.state = self._stream.state
        self.transaction_keys = self.state.transaction_keys
        self._shared = shared
        alive = partial(shared.exists, topic)
        self.appender = Appender(self.state, shared.watcher, shared.newest, self._stream.sizes, alive)

    @property
    def stream(self) -> PartitionStream:
        """What questions about it start from."""
        return self._stream.at

    def describe(self, topic: Topic) -> None:
        """Takes the current description of the topic; its configs may have changed."""
        self.topic = topic
        self._stream.describe(topic)

    # -- writing

    def append(self, batch: Payload, producer: Sequenced | None = None, now: int = 0) -> asyncio.Future[int]:
        """See `Appender.append`."""
        return self.appender.append(batch, producer, now)

    def end_transaction(self, marker: Marker) -> asyncio.Future[bool]:
        """See `Appender.end_transaction`."""
        return self.appender.end_transaction(marker)

    def in_transaction(self, producer: int, epoch: int) -> bool:
        """See `Appender.in_transaction`."""
        return self.appender.in_transaction(producer, epoch)

    @property
    def sizes(self) -> EntrySizes:
        """How large its entries are."""
        return self._stream.sizes

    @property
    def entry_bytes(self) -> float:
        """About how large an entry is; 0 where it is not known."""
        return self._stream.sizes.average

    def close(self) -> None:
        """The topic is being deleted: appends fail from now on, waiting fetches look again."""
        self.appender.close()

    async def delete_before(self, offset: int) -> int:
        """Removes the records below `offset`, all of them if it is -1; the new log start.

        An offset below the log start changes nothing.

        Raises:
            OffsetOutOfRange: above the high watermark, or below -1.
            StorageUnavailable: Redis is gone.
        """
        bounds = await self.bounds.get(MAX_OFFSET)  # beyond any end, so Redis is asked
        offset = bounds.high_watermark if offset == -1 else offset
        if not 0 <= offset <= bounds.high_watermark:
            raise OffsetOutOfRange(f"offset {offset} is not in 0 to {bounds.high_watermark}")
        if offset <= bounds.log_start:
            return bounds.log_start
        await self.tier.raise_start(offset)
        if offset <= bounds.local_start:
            return (await self.bounds.get()).log_start
        await self._shared.reads.ask(trimming.trim(self._stream.at, offset))
        bounds = await self.bounds.after_removal(offset)
        least = self.topic.numbering.to_id(bounds.local_start)
        await self._shared.reads.ask(markers.trim_aborted(self.transaction_keys.aborted, least))
        return bounds.log_start

    # -- share groups

    async def _share_start(self, reset: ResetStrategy) -> int | None:
        """The offset at which a new share group begins, by `share.auto.offset.reset`; None: at the end."""
        if reset.to is ResetTo.LATEST:
            return None
        if reset.to is ResetTo.EARLIEST:
            return (await self.bounds.get()).local_start
        found = await self.local_first_at_or_after(now_ms() - reset.ago)
        return None if found is None else found.offset

    # -- searching by time (ListOffsets)

    async def first_at_or_after(self, timestamp: int) -> Found | None:
        """The first record whose timestamp is `timestamp` ms or later; None if there is none.

        Raises:
            StorageUnavailable: Redis is gone, or the archive.
        """
        while True:
            bounds = await self.bounds.get()
            found = None
            if bounds.log_start < bounds.local_start:
                found = await self.tier.first_at_or_after(timestamp, bounds.log_start, bounds.local_start)
            found = found or await self.local_first_at_or_after(timestamp)
            now = await self.bounds.get()
            if now.local_start == bounds.local_start:  # else entries went from Redis to the archive meanwhile
                return found

    async def local_first_at_or_after(self, timestamp: int, rising: bool = True) -> Found | None:
        """As `first_at_or_after`, among the records that Redis holds.

        Args:
            rising: see `search.first_at_or_after`.
        """
        stream, info = self._stream, await self._stream.info()
        start = self.bounds.local(info)[0]
        question = search.first_at_or_after(stream.at, stream.sizes, info, start, timestamp, rising)
        return await self._shared.reads.ask(question)

    async def latest_timestamp(self) -> Found | None:
        """The first of the records that bear the latest timestamp (KIP-734); None if the partition is empty."""
        bounds = await self.bounds.get()
        archived = None
        if bounds.log_start < bounds.local_start:
            archived = await self.tier.latest_timestamp(bounds.log_start, bounds.local_start)
        local = await self.local_latest_timestamp()
        if archived is None or local is None:
            return archived or local
        return archived if archived.timestamp >= local.timestamp else local

    async def local_latest_timestamp(self) -> Found | None:
        """As `latest_timestamp`, among the records that Redis holds."""
        stream, info = self._stream, await self._stream.info()
        start = self.bounds.local(info)[0]
        return await self._shared.reads.ask(search.latest_timestamp(stream.at, stream.sizes, info, start))
