"""Reads of one partition: from memory, from Redis or from the archive, wherever the records lie.

A read that begins in Redis is answered from what this broker has just appended (`Newest`) or what another reader was
just given (`Tails`), else by XRANGE, which `ReadAhead` may have sent already. A member of a consumer group reads
through its native group (`NativePosition`). A read that begins below the first entry in Redis is answered from the
archive (`Tier`).

A reader of committed records alone (`isolation.level=read_committed`) gets nothing from the last stable offset on, and
the aborted transactions among what it gets, whose records it leaves out itself (KIP-98). What is kept in memory is the
same for all readers; it is cut for such a one. The archive holds committed records only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ketch.errors import StorageUnavailable
from ketch.log.appending.notes import fetch_codec
from ketch.log.bounds import Bounds, PartitionBounds
from ketch.log.group_positions import GroupPositions
from ketch.log.live import LiveStream, Shared
from ketch.log.tier import Tier
from ketch.records import HEADER_SIZE, DecodedBatch, empty_batch
from ketch.redis.driver import Reply
from ketch.store.coordination import native
from ketch.store.layouts import marked
from ketch.store.layouts.layout import Chunk, DecodedChunk, fitting
from ketch.store.layouts.marked import Marks
from ketch.store.stream.isolation import Aborted
from ketch.store.topics.archives import Announcement
from ketch.store.xinfo import StreamInfo
from ketch.wire.pieces import Pieces

Member = tuple[str, str]  # group id and member id

_WHOLE = 1 << 62  # bytes: a chunk of the whole reply


class Read(NamedTuple):
    """Batches from the offset asked for on, and the bounds they were read between.

    Attributes:
        more: whether there are records after these.
        aborted: for a reader of committed records, the aborted transactions among them.
    """

    records: bytes | Pieces
    bounds: Bounds
    more: bool = False
    aborted: Sequence[Aborted] = ()


class Records(NamedTuple):
    """Records, and the messages of Kafka 0.7 that some of them came in.

    Attributes:
        end: the offset after the last one that was read, given or not.
    """

    batches: list[DecodedBatch]
    marks: Marks
    end: int


class PartitionReader:
    """Reads one partition.

    Attributes:
        gap: a start and a last stable offset between which nothing lies.
    """

    def __init__(
        self, stream: LiveStream, bounds: PartitionBounds, tier: Tier, groups: GroupPositions, shared: Shared
    ) -> None:
        self._stream, self._bounds, self._tier, self._groups = stream, bounds, tier, groups
        self._ahead, self._tails, self._newest = shared.ahead, shared.tails, shared.newest
        self.gap = (0, 0)

    def exhausted(self, offset: int, end: int) -> bool:
        """Whether it is known that no record lies from `offset` to below `end`."""
        return offset >= end or (self.gap[0] <= offset and end <= self.gap[1])

    def ask(self, offset: int, max_bytes: int, bounds: Bounds, committed: bool) -> asyncio.Future[Chunk] | None:
        """Has Redis asked already what `read` will have to know, so that many partitions take one round trip.

        None where that is not known, or where the records may come from the archive.
        """
        info = self._stream.known()
        if info is not None and bounds.local_start <= offset < bounds.end(committed):
            with contextlib.suppress(StorageUnavailable):  # `read` will say it
                return self._ask(offset, max_bytes, bounds.end(committed), info)
        return None

    async def read(
        self,
        offset: int,
        max_bytes: int,
        bounds: Bounds,
        zstd: bool,
        member: Member | None = None,
        asked: asyncio.Future[Chunk] | None = None,
        at_least_one: bool = True,
        committed: bool = False,
    ) -> Read:
        """Batches from `offset` on, `max_bytes` of them at most.

        The first batch may begin before `offset`.

        Args:
            bounds: as they were a moment ago.
            zstd: whether the reader knows this compression.
            member: where the reader is known to be one: its native group follows.
            asked: what `ask` gave for the same offset and bytes; not for a member.
            at_least_one: the first record is given if there is any, however large (KIP-74). Only then do batches that
                have become larger by compression exceed `max_bytes`.
            committed: the reader wants committed records only.

        Raises:
            OffsetOutOfRange: below the log start or above the high watermark.
            StorageUnavailable: Redis is gone.
        """
        limit = None if at_least_one else max_bytes
        bounds.check(offset)
        end = bounds.end(committed)
        if offset >= end:
            return Read(b"", bounds)
        archived = await self._archived(offset, max_bytes, zstd) if offset < bounds.local_start else b""
        if archived:
            return _limited(archived, bounds, True, limit)
        if member:
            given = partial(self._within, limit, zstd)
            found, chunk = await self._deliver(offset, max_bytes, bounds, committed, member, given)
        else:
            asked = asked or self._ask(offset, max_bytes, end, await self._stream.info())
            found = asked.result() if asked.done() else await asyncio.shield(asked)
            chunk = self._allowed(found, bounds, committed)
        if (not chunk or chunk.base > offset) and await self._trimmed(offset):
            archived = await self._archived(offset, max_bytes, zstd)
            if archived:
                return _limited(archived, bounds, True, limit)
        if not found:
            return await self._read_gap(offset, max_bytes, zstd, at_least_one, committed)
        if chunk is not found:  # what comes next is not stable yet, or lacks copies
            self.gap = (chunk.end if chunk else offset, end)
            if not chunk:
                return Read(b"", bounds)
        aborted: Sequence[Aborted] = ()
        if committed and chunk.transactional(offset) is not None:
            aborted = await self._stream.aborted(offset, chunk.end)
            now = await self._bounds.readable()
            if now.local_start > offset:  # removed since it was read, and what is known of its transactions, too
                return await self.read(offset, max_bytes, now, zstd, None, None, at_least_one, committed)
        bounds = _beyond(bounds, chunk)
        more = chunk is found and chunk.end < bounds.end(committed)
        read = _limited(self._wire(chunk, zstd), bounds, more, limit)
        return read._replace(aborted=aborted) if aborted else read

    async def records(self, offset: int, max_bytes: int, end: int | None = None, least: int = 1) -> Records:
        """Committed records from `offset` on, about `max_bytes` of what lies there but `least` records at least.

        The first batch may begin before `offset`. What is given may reach beyond `end`, whose records are not needed,
        and beyond the last stable offset.

        Raises:
            StorageUnavailable: Redis is gone, or the archive.
        """
        if offset < (await self._bounds.get()).local_start:
            archived = await self._archived_records(offset, max_bytes)
            if archived.batches:
                return archived
        count = max(self._stream.sizes.count(max_bytes), least)
        reply = await self._stream.range(offset, count, end)
        chunk = self._stream.chunk(reply, _WHOLE)
        if (not chunk or chunk.base > offset) and await self._trimmed(offset):
            return await self._archived_records(offset, max_bytes)
        if not chunk:
            return Records([], {}, offset)
        batches = chunk.decoded()
        if chunk.transactional(offset) is not None:
            batches = _committed(batches, await self._stream.aborted(offset, chunk.end))
        return Records(batches, marked.find_marks(reply, self._stream.numbering, chunk.entries), chunk.end)

    # -- from Redis

    def _ask(self, offset: int, max_bytes: int, end: int, info: StreamInfo) -> asyncio.Future[Chunk]:
        at_hand = partial(self._newest.read, self._stream.key, info.lineage, offset, max_bytes)
        ranged = partial(self._range, offset, max_bytes, end)
        return self._tails.read((self._stream.incarnation, offset), info, max_bytes, at_hand, ranged)

    def at_hand(self, offset: int, max_bytes: int, info: StreamInfo) -> Chunk | None:
        """The records that `read` would take without a question, for the lane; None where they are not in memory."""
        newest = partial(self._newest.read, self._stream.key, info.lineage, offset, max_bytes)
        return self._tails.at_hand((self._stream.incarnation, offset), info, max_bytes, newest)

    def bring(self, offset: int, max_bytes: int, end: int, info: StreamInfo) -> asyncio.Future[Chunk]:
        """Asks Redis for the records from `offset` on, about `max_bytes` of them; for the lane.

        Args:
            end: where the log ends for this reader.

        Raises:
            StorageUnavailable: Redis is gone.
        """
        return self._ask(offset, max_bytes, end, info)

    def post(self, offset: int, max_bytes: int, take: Callable[[Reply], None]) -> None:
        """Asks Redis as `bring` does, but keeps nothing for other readers: the records of the many partitions of one
        request would push out all that is kept. For the lane.

        Args:
            take: gets the reply, which `chunk` reads.

        Raises:
            StorageUnavailable: Redis is gone; `take` is not called.
        """
        self._stream.post_range(offset, self._stream.sizes.count(max_bytes), take)

    def chunk(self, reply: bytes, max_bytes: int) -> Chunk:
        """The batches in a reply, about `max_bytes` of them; raises as `Layout.read`."""
        return self._stream.chunk(reply, max_bytes)

    def asking(self, chunk: Chunk, offset: int) -> asyncio.Future[Announcement | None] | None:
        """The announcement that `begins_at` needs, on its way from Redis; None where nothing has to be asked. For the
        lane."""
        return None if chunk.base <= offset else self._tier.asking()

    def begins_at(self, chunk: Chunk, offset: int) -> bool:
        """Whether a chunk has the first records from `offset` on: none of them can be in the archive, for the lane."""
        return chunk.base <= offset or self._tier.is_known_missing()

    def _range(self, offset: int, max_bytes: int, end: int) -> asyncio.Future[Chunk]:
        count = self._stream.sizes.count(max_bytes)
        chunk: asyncio.Future[Chunk] = asyncio.get_running_loop().create_future()
        reply = self._ahead.take(self._stream.incarnation, offset) or self._stream.range(offset, count)
        reply.add_done_callback(partial(self._ranged, chunk, max_bytes, count, end))
        return chunk

    def _ranged(
        self, answer: asyncio.Future[Chunk], max_bytes: int, count: int, end: int, reply: asyncio.Future[bytes]
    ) -> None:
        try:
            chunk = self._stream.chunk(reply.result(), max_bytes)
        except Exception as error:  # of any kind: a future that is never set would block its waiters for ever
            answer.set_exception(error)
            answer.exception()  # marks it as retrieved: asyncio logs an exception that no waiter is left to take
            return
        answer.set_result(chunk)
        # At least half of the entries asked for came: a sequential reader will want what follows.
        if chunk and 2 * chunk.entries >= count and chunk.end < end:
            with contextlib.suppress(StorageUnavailable):
                self._ahead.ask(self._stream.incarnation, chunk.end, lambda: self._stream.range(chunk.end, count))

    async def _deliver(
        self,
        offset: int,
        max_bytes: int,
        bounds: Bounds,
        committed: bool,
        member: Member,
        given: Callable[[Chunk], bool],
    ) -> tuple[Chunk, Chunk]:
        """Reads through the member's native group: what was found, and what of it the reader may get.

        Args:
            given: whether the reader will be given a chunk; one that will not be stays undelivered.
        """
        group, consumer = member
        position = self._groups.of(group)
        # None too many: what does not fit would have to be taken back.
        count = self._stream.sizes.count(max_bytes, spare=0)
        entries = await position.read(offset, count, consumer, await self._stream.info())
        if entries is None:
            found = await asyncio.shield(self._range(offset, max_bytes, bounds.end(committed)))
        else:
            found = self._stream.chunk(entries, max_bytes)
        chunk = self._allowed(found, bounds, committed)
        if found and not (chunk and given(chunk)):
            if entries is not None:
                await position.delivered(offset, 0, 0, whole=False)
        elif chunk and entries is None:
            position.passed(chunk.end, chunk.entries, chunk.records)
        elif chunk and entries is not None:
            whole = chunk.entries == native.entry_count(entries)
            await position.delivered(chunk.end, chunk.entries, chunk.records, whole)
        return found, chunk

    async def _read_gap(self, offset: int, max_bytes: int, zstd: bool, at_least_one: bool, committed: bool) -> Read:
        """The tail from `offset` on was deleted: an empty batch takes the consumer to its end."""
        self._stream.changed()  # what was cached may be older than the range
        bounds = await self._bounds.readable()
        bounds.check(offset)
        reply = await self._stream.range(offset, self._stream.sizes.count(max_bytes))
        if self._stream.chunk(reply, max_bytes):  # something has come meanwhile
            return await self.read(offset, max_bytes, bounds, zstd, at_least_one=at_least_one, committed=committed)
        if offset >= bounds.end(committed):
            return Read(b"", bounds)
        last_delta = min(bounds.end(committed) - offset, 2**31) - 1
        return _limited(empty_batch(offset, last_delta, -1), bounds, False, None if at_least_one else max_bytes)

    def _allowed(self, found: Chunk, bounds: Bounds, committed: bool) -> Chunk:
        """What a reader may get of a chunk, which may have been read after the bounds."""
        chunk = _stable(found, bounds) if committed else found
        if chunk.end > bounds.high_watermark and self._stream.topic.intake.copies > 1:
            return chunk.below(bounds.high_watermark)
        return chunk

    # -- from the archive

    async def _archived(self, offset: int, max_bytes: int, zstd: bool) -> bytes | Pieces:
        log_append_time = self._stream.topic.log_append_time

        def encode(batches: list[DecodedBatch]) -> bytes | Pieces:
            return self._wire(DecodedChunk(fitting(batches, max_bytes), log_append_time), zstd)

        return await self._tier.read(offset, max_bytes - HEADER_SIZE, log_append_time, encode)

    async def _archived_records(self, offset: int, max_bytes: int) -> Records:
        batches, marks = await self._tier.records(offset, max_bytes)
        return Records(batches, marks, batches[-1].last_offset + 1 if batches else offset)

    async def _trimmed(self, offset: int) -> bool:
        """Whether there were archived entries from `offset` on that were removed while they were about to be read."""
        archived = await self._tier.archived()
        if archived is None or offset >= archived.through:
            return False
        return self._bounds.local(await self._stream.fresh_info())[0] > offset

    # -- onto the wire

    def _wire(self, chunk: Chunk, zstd: bool) -> bytes | Pieces:
        return chunk.served(fetch_codec(self._stream.topic), zstd)

    def _within(self, limit: int | None, zstd: bool, chunk: Chunk) -> bool:
        return limit is None or len(self._wire(chunk, zstd)) <= limit


def _stable(chunk: Chunk, bounds: Bounds) -> Chunk:
    """What a reader of committed records may get of a chunk."""
    if chunk.end <= bounds.last_stable:
        return chunk
    end: int | None = bounds.last_stable
    if end == bounds.high_watermark:  # then no transaction is open, but for those that have begun since
        end = chunk.transactional(end)
    return chunk if end is None else chunk.below(end)


def _committed(batches: list[DecodedBatch], aborted: Sequence[Aborted]) -> list[DecodedBatch]:
    """The batches without markers and without those of aborted transactions."""

    def gone(batch: DecodedBatch) -> bool:
        return batch.transactional and any(
            each.producer == batch.producer_id and each.first <= batch.base_offset < each.marker for each in aborted
        )

    return [batch for batch in batches if not (batch.control or gone(batch))]


def _beyond(bounds: Bounds, chunk: Chunk) -> Bounds:
    """The bounds, where records have come since."""
    if chunk.end <= bounds.high_watermark:
        return bounds
    stable = bounds.last_stable
    if stable == bounds.high_watermark and chunk.transactional(stable) is None:
        stable = chunk.end
    return replace(bounds, high_watermark=chunk.end, last_stable=stable)


def _limited(records: bytes | Pieces, bounds: Bounds, more: bool, limit: int | None) -> Read:
    """What is larger than `limit` is left for another fetch."""
    if limit is not None and len(records) > limit:
        return Read(b"", bounds, more=True)
    return Read(records, bounds, more)
