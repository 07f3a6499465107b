"""One topic partition: its bounds, a read, an append, a search by time. The only place that knows where records lie."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from ketch.errors import OffsetOutOfRange, RedisError, StorageUnavailable
from ketch.log import search
from ketch.log.ahead import Newest, ReadAhead, Tails
from ketch.log.appender import Appender
from ketch.log.delivery import Delivery
from ketch.log.notes import fetch_codec
from ketch.log.search import Found
from ketch.log.tier import Archives, Span, Tier
from ketch.records import DecodedBatch, empty_batch
from ketch.store import native
from ketch.store.keys import Keyspace
from ketch.store.layout import Chunk, DecodedChunk, Payload
from ketch.store.link import Link
from ketch.store.offsets import MAX_OFFSET
from ketch.store.streams import Id, StreamInfo
from ketch.store.topics import Topic
from ketch.store.watcher import Watcher
from ketch.wire.pieces import Pieces

_COUNT_MAX = 20_000  # entries in one XRANGE: what a 1 MB fetch of 50-byte records takes
_REPLY_MAX = 32 << 20  # bytes of one XRANGE's reply, should every entry be as large as the topic's largest
_SEARCH_BYTES = 1 << 20  # looked through at a time in a search by timestamp
_COUNT_UNKNOWN = 500  # entries in the first XRANGE of a stream whose entries' size is not known
_FEW = 8  # entries in a fetch, of which each counts
_ENTRY_OVERHEAD = 8  # bytes of a record around its key and value, about


@dataclass(frozen=True, slots=True)
class Bounds:
    """Offsets of the first record that may exist and behind the last one, and of the first that Redis may hold."""

    log_start: int
    high_watermark: int
    local_start: int


@dataclass(frozen=True, slots=True)
class Read:
    """Batches from the offset asked for on, and the bounds they were read between."""

    records: bytes | Pieces
    bounds: Bounds
    more: bool = False  # whether there are others behind them


class Partition:
    """Reads and writes one partition of one topic.

    Args:
        topic: gives the current description of the topic; its configs may change.
        session: this broker process's own id, part of its fence key.
        pending_max: deliveries tracked for a consumer group (`group.pending.max`).
        ahead, archives: shared by all partitions.
    """

    def __init__(
        self,
        topic: Topic,
        index: int,
        keys: Keyspace,
        session: bytes,
        reads: Link,
        watcher: Watcher,
        alive: Callable[[], Awaitable[bool]],
        pending_max: int,
        ahead: tuple[ReadAhead, Tails, Newest],
        archives: Archives,
    ) -> None:
        self.topic, self.index = topic, index
        self.stream = keys.stream(topic.name, index)
        # What was read of a topic is not for the readers of one that is made anew under its name.
        self._place = b"%b %b" % (topic.id.bytes, self.stream)
        self.tier = Tier(archives, lambda: self.topic, index)
        self._codec, self._layout = topic.codec, topic.layout
        self._info_command = self._layout.info_command(self.stream)
        self._reads = reads
        self._watcher = watcher
        self._pending_max = pending_max
        self._ahead, self._tails, self._newest = ahead
        self._removed: tuple[int, int] | None = None  # how many entries were removed when, and where the log began then
        self._seen: tuple[StreamInfo, Span | None, Bounds] | None = None  # the bounds as they follow from these
        self._deliveries: dict[str, Delivery] = {}
        self._entry_bytes = float(topic.message_bytes)
        self.log_start = topic.first_offset  # as last seen
        self.producers_key = keys.producers(self.stream)
        append_keys = (self.stream, self.producers_key, keys.fence(self.stream, session))
        self._appender = Appender(watcher, append_keys, self._codec, topic.first_offset, self._landed, alive)

    # -- writing

    def append(self, batch: Payload, producer: tuple[int, int, int] | None = None) -> asyncio.Future[int]:
        """See `Appender.append`."""
        return self._appender.append(batch, producer)

    @property
    def entry_bytes(self) -> float:
        """About how large an entry is; 0 where it is not known."""
        return self._entry_bytes

    def close(self) -> None:
        """The topic goes: appends fail from now on, waiting fetches look again."""
        self._appender.close()
        self._watcher.changed(self.stream)

    def _landed(self, batch: Payload, base: int, behind: Id | None) -> None:
        self._learn_size(batch.size / batch.entries)
        if behind is None:
            self._watcher.changed(self.stream)
            return
        last = self._codec.to_id(base + batch.count - 1)
        info = self._watcher.appended(self.stream, behind, last, batch.entries)
        if info is not None:
            self._newest.put(self.stream, info.lineage, (self._codec.to_offset(*behind) + 1, base, batch))

    # -- bounds

    def prefetch_bounds(self) -> None:
        """Has Redis asked already what `bounds` will have to know."""
        self._watcher.prefetch(self.stream, self._info_command)

    async def bounds(self, offset: int = 0) -> Bounds:
        """Log start and high watermark.

        Args:
            offset: what will be read from; where it is beyond the end that is known, Redis is asked again, for a
                reader may have been given a record before its push has come here.

        Raises:
            StorageUnavailable: Redis is gone.
        """
        bounds = await self._bounds(await self._info())
        if offset <= bounds.high_watermark:
            return bounds
        return await self._bounds(await self._watcher.fresh_info(self._info_command))

    async def _info(self) -> StreamInfo:
        info = await self._watcher.info(self.stream, self._info_command)
        if self._codec.to_offset(*info.last) >= MAX_OFFSET:
            raise RedisError(f"the ids of {self.stream.decode()} have left the offsets of Kafka")
        if not self._entry_bytes and info.entry_bytes:
            self._entry_bytes = float(info.entry_bytes)
        return info

    async def _bounds(self, info: StreamInfo) -> Bounds:
        span = await self.tier.span()  # behind `info`: what was missing there is known here
        if self._seen is None or self._seen[0] is not info or self._seen[1] != span:
            start, end = self._local(info)
            self.log_start = start if span is None or span.start >= span.through else min(start, span.start)
            self._seen = info, span, Bounds(self.log_start, end, start)
        return self._seen[2]

    def _local(self, info: StreamInfo) -> tuple[int, int]:
        """Where the stream starts and ends."""
        start, end = self.topic.extent(info)
        # Only a removal may move the start: a consumer that has read everything, or has begun at the start of an empty
        # partition (Spark's do), holds the earlier answer when the next record comes, at a later time.
        if info.removed is not None and self._removed is not None and self._removed[0] == info.removed:
            # It may lie within the first entry's batch; an entry below it is of a stream that was made anew.
            anew = info.first is not None and self._codec.to_offset(*info.first) < self._removed[1]
            start = start if anew else self._removed[1]
        elif info.removed:
            self._removed = (info.removed, start)
        return start, end

    # -- deleting

    async def delete_before(self, offset: int) -> int:
        """Removes the records below `offset`, all of them if it is -1; the new log start.

        The log starts at `offset` then, wherever the next record lies. Other brokers, and this one when it starts anew,
        know only where that record lies. An offset below the log start changes nothing.

        Raises:
            OffsetOutOfRange: above the high watermark, or below -1.
            StorageUnavailable: Redis is gone.
        """
        bounds = await self.bounds(MAX_OFFSET)  # beyond any end, so Redis is asked
        offset = bounds.high_watermark if offset == -1 else offset
        if not 0 <= offset <= bounds.high_watermark:
            raise OffsetOutOfRange(f"offset {offset} is not in 0 to {bounds.high_watermark}")
        if offset <= bounds.log_start:
            return bounds.log_start
        await self.tier.raise_start(offset)
        if offset <= bounds.local_start:
            return (await self.bounds()).log_start
        least = self._codec.format_id(*self._codec.to_id(offset))
        await self._reads.pipe.call("XTRIM", self.stream, "MINID", "=", least)
        self._watcher.changed(self.stream)
        info = await self._watcher.fresh_info(self._info_command)
        if info.removed is not None:
            known = self._removed[1] if self._removed and self._removed[0] == info.removed else 0
            self._removed = (info.removed, max(offset, known))
            self._seen = None
        return (await self._bounds(info)).log_start

    # -- reading

    def ask(self, offset: int, max_bytes: int, bounds: Bounds) -> asyncio.Future[Chunk] | None:
        """Has Redis asked already what `read` will have to know, so that many partitions take one round trip.

        None where that is not known, or where the records may come from elsewhere.
        """
        info = self._watcher.known(self.stream)
        if info is not None and bounds.local_start <= offset < bounds.high_watermark:
            with contextlib.suppress(StorageUnavailable):  # `read` will say it
                return self._ask(offset, max_bytes, bounds.high_watermark, info)
        return None

    def _ask(self, offset: int, max_bytes: int, end: int, info: StreamInfo) -> asyncio.Future[Chunk]:
        at_hand = partial(self._newest.read, self.stream, info.lineage, offset, max_bytes)
        ranged = partial(self._range, offset, max_bytes, end)
        return self._tails.read((self._place, offset), info, max_bytes, at_hand, ranged)

    async def read(
        self,
        offset: int,
        max_bytes: int,
        zstd: bool,
        member: tuple[str, str] | None = None,
        asked: asyncio.Future[Chunk] | None = None,
    ) -> Read:
        """Batches from `offset` on, about `max_bytes` of entries, at least one record if there is any.

        The first batch may begin before `offset`.

        Args:
            zstd: whether the reader knows this compression.
            member: group and member id, where the reader is known to be one: its native group follows.
            asked: what `ask` gave for the same offset and bytes; not for a member.

        Raises:
            OffsetOutOfRange: below the log start or above the high watermark.
            StorageUnavailable: Redis is gone.
        """
        bounds = await self.bounds(offset)
        self.check(offset, bounds)
        if offset == bounds.high_watermark:
            return Read(b"", bounds)
        archived = await self._archived(offset, max_bytes, zstd) if offset < bounds.local_start else b""
        if archived:
            return Read(archived, bounds, more=True)
        if member:
            chunk = await self._deliver(offset, max_bytes, bounds.high_watermark, member)
        else:
            asked = asked or self._ask(offset, max_bytes, bounds.high_watermark, await self._info())
            chunk = asked.result() if asked.done() else await asyncio.shield(asked)
        if (not chunk or chunk.base > offset) and await self._trimmed(offset):
            archived = await self._archived(offset, max_bytes, zstd)
            if archived:
                return Read(archived, bounds, more=True)
        if not chunk:
            return await self._read_gap(offset, max_bytes, zstd)
        if chunk.end > bounds.high_watermark:
            bounds = replace(bounds, high_watermark=chunk.end)
        return Read(self._wire(chunk, zstd), bounds, chunk.end < bounds.high_watermark)

    async def _archived(self, offset: int, max_bytes: int, zstd: bool) -> bytes | Pieces:
        def encode(batches: list[DecodedBatch]) -> bytes | Pieces:
            return self._wire(DecodedChunk(batches, self._log_append_time), zstd)

        return await self.tier.read(offset, max_bytes, self._log_append_time, encode)

    async def _trimmed(self, offset: int) -> bool:
        """Whether there were archived entries from `offset` on that were removed while they were about to be read."""
        span = await self.tier.span()
        if span is None or offset >= span.through:
            return False
        return self._local(await self._watcher.fresh_info(self._info_command))[0] > offset

    def check(self, offset: int, bounds: Bounds) -> None:
        """Raises OffsetOutOfRange unless `offset` can be read from."""
        if not bounds.log_start <= offset <= bounds.high_watermark:
            raise OffsetOutOfRange(f"offset {offset} is not in {bounds.log_start} to {bounds.high_watermark}")

    async def _read_gap(self, offset: int, max_bytes: int, zstd: bool) -> Read:
        """The tail from `offset` on was deleted: an empty batch takes the consumer to the high watermark."""
        self._watcher.changed(self.stream)  # what was cached may be older than the range
        bounds = await self.bounds()
        self.check(offset, bounds)
        chunk = self._chunk(await self._send_range(offset, self._count_for(max_bytes)), max_bytes)
        if chunk:  # something has come meanwhile
            return await self.read(offset, max_bytes, zstd)
        if offset == bounds.high_watermark:
            return Read(b"", bounds)
        span = min(bounds.high_watermark - offset, 2**31) - 1
        return Read(empty_batch(offset, span, -1), bounds)

    def _range(self, offset: int, max_bytes: int, end: int) -> asyncio.Future[Chunk]:
        count = self._count_for(max_bytes)
        chunk: asyncio.Future[Chunk] = asyncio.get_running_loop().create_future()
        reply = self._ahead.take(self._place, offset) or self._send_range(offset, count)
        reply.add_done_callback(partial(self._ranged, chunk, max_bytes, count, end))
        return chunk

    def _ranged(
        self, answer: asyncio.Future[Chunk], max_bytes: int, count: int, end: int, reply: asyncio.Future[bytes]
    ) -> None:
        try:
            chunk = self._chunk(reply.result(), max_bytes)
        except Exception as error:  # whatever it is, who waits must not do so for ever
            answer.set_exception(error)
            answer.exception()  # nobody may wait any more
            return
        answer.set_result(chunk)
        # Full: the reader has more to come.
        if chunk and 2 * chunk.entries >= count and chunk.end < end:
            with contextlib.suppress(StorageUnavailable):
                self._ahead.ask(self._place, chunk.end, lambda: self._send_range(chunk.end, count))

    async def _deliver(self, offset: int, max_bytes: int, end: int, member: tuple[str, str]) -> Chunk:
        group, consumer = member
        delivery = self.delivery(group)
        # None too many: what does not fit would have to be taken back.
        entries = await delivery.read(offset, self._count_for(max_bytes, spare=0), consumer, await self._info())
        if entries is None:
            chunk = await asyncio.shield(self._range(offset, max_bytes, end))
        else:
            chunk = self._chunk(entries, max_bytes)
        if chunk and entries is None:
            delivery.passed(chunk.end, chunk.entries, chunk.records)
        elif chunk and entries is not None:
            whole = chunk.entries == native.entry_count(entries)
            await delivery.delivered(chunk.end, chunk.entries, chunk.records, whole)
        return chunk

    def _chunk(self, entries: bytes | memoryview, max_bytes: int) -> Chunk:
        chunk = self._layout.read(entries, self._codec, max_bytes, self._log_append_time)
        if chunk:
            self._learn_size(chunk.size / chunk.entries)
        return chunk

    @property
    def _log_append_time(self) -> bool:
        return self.topic.configs["message.timestamp.type"] == "LogAppendTime"

    def _count_for(self, max_bytes: int, spare: int = 1) -> int:
        if not self._entry_bytes:
            return max(1, min(_COUNT_UNKNOWN, _REPLY_MAX // self.topic.largest_record))
        size = self._entry_bytes + (_ENTRY_OVERHEAD if self._layout.entry_is_record else 0)
        # One more than fit, for sizes differ; but batches of a megabyte would be as much again, for nothing.
        count = int(max_bytes / size) + spare * (size < max_bytes / _FEW)
        # An average says nothing of a run of large ones: the reply must stay within bounds even then.
        return max(1, min(count, _COUNT_MAX, max(max_bytes, _REPLY_MAX) // self.topic.largest_record))

    def _learn_size(self, size: float) -> None:
        # Grows at once, shrinks slowly: a reply much too large costs memory, one too small a round trip.
        self._entry_bytes = max(size, self._entry_bytes + (size - self._entry_bytes) / 8)

    def _wire(self, chunk: Chunk, zstd: bool) -> bytes | Pieces:
        return chunk.served(fetch_codec(self.topic), zstd)

    # -- consumer groups

    def delivery(self, group: str) -> Delivery:
        """The group's native state on this partition."""
        delivery = self._deliveries.get(group)
        if delivery is None:
            where = (self.topic.name, self.stream)
            delivery = Delivery(group, where, self._codec, self._layout, self._reads, self._pending_max)
            self._deliveries[group] = delivery
        return delivery

    async def committed(self, group: str, offset: int, elsewhere: bool = False) -> None:
        """A group has committed `offset`: the native group acknowledges what lies below.

        Args:
            elsewhere: a member reads through another broker, which moves the group's position.
        """
        await self.delivery(group).commit(offset, await self._info(), elsewhere)

    async def left(self, group: str, consumer: str) -> None:
        """A member of the group reads here no more."""
        await self.delivery(group).leave(consumer)

    def forget(self, group: str) -> None:
        """The group has been deleted."""
        self._deliveries.pop(group, None)

    # -- searching by time (ListOffsets)

    async def first_at_or_after(self, timestamp: int) -> Found | None:
        """The first record whose timestamp is `timestamp` ms or later; None if there is none.

        Raises:
            StorageUnavailable: Redis is gone, or the archive.
        """
        while True:
            bounds = await self.bounds()
            found = None
            if bounds.log_start < bounds.local_start:
                found = await self.tier.first_at_or_after(timestamp, bounds.log_start, bounds.local_start)
            found = found or await self.local_first_at_or_after(timestamp)
            if (await self.bounds()).local_start == bounds.local_start:  # else entries went from here to the archive
                return found

    async def local_first_at_or_after(self, timestamp: int, rising: bool = True) -> Found | None:
        """As `first_at_or_after`, among the records that Redis holds.

        Args:
            rising: see `search.first_at_or_after`.
        """
        info = await self._info()
        start = self._local(info)[0]
        return await search.first_at_or_after(self._search, self.topic, info, start, timestamp, rising)

    async def latest_timestamp(self) -> Found | None:
        """The first of the records that bear the latest timestamp (KIP-734); None if the partition is empty."""
        bounds = await self.bounds()
        archived = None
        if bounds.log_start < bounds.local_start:
            archived = await self.tier.latest_timestamp(bounds.log_start, bounds.local_start)
        local = await self.local_latest_timestamp()
        if archived is None or local is None:
            return archived or local
        return archived if archived.timestamp >= local.timestamp else local

    async def local_latest_timestamp(self) -> Found | None:
        """As `latest_timestamp`, among the records that Redis holds."""
        info = await self._info()
        return await search.latest_timestamp(self._search, self.topic, info, self._local(info)[0])

    async def _search(self, offset: int, most: int) -> Chunk:
        count = min(most, self._count_for(_SEARCH_BYTES))
        return self._chunk(await self._send_range(offset, count), 1 << 62)

    def _send_range(self, offset: int, count: int) -> asyncio.Future[bytes]:
        return self._reads.pipe.send(self._layout.range_command(self.stream, self._codec, offset, count))
