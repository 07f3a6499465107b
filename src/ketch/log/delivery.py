"""One consumer group on one partition: its native group in Redis follows what the group reads and commits.

Reads that go on where the last one ended go through XREADGROUP, so that XINFO GROUPS and XPENDING show the group as any
Redis consumer. The records are those from the offset asked for, whatever the native group thinks: each read asks for
the group's position in the same transaction, and where that is another (a seek, somebody's XGROUP SETID) the stream is
read and the native group is set right.

Tracking a delivery costs an entry in the pending list, so no more than `pending_max` are tracked at a time; beyond that
the stream is read as for anybody and the group's position alone moves (XGROUP SETID) until commits make room.
"""

from __future__ import annotations

import asyncio
import time

from ketch import metrics
from ketch.errors import KetchError, RedisError
from ketch.store import native, streams
from ketch.store.layout import Layout
from ketch.store.link import Link
from ketch.store.native import NativeGroup
from ketch.store.offsets import OffsetCodec
from ketch.store.pipe import checked, pack, parse
from ketch.store.streams import StreamInfo

# Counting copies entries inside Redis: so many bytes or entries at a time, not to hold it up, and so many times.
_STEP_BYTES, _STEP_MAX = 1 << 20, 2_000
_STEPS = 50
_RECOUNT_S = 1.0  # how often Redis is asked whether a full window has got room


class Delivery:
    """Keeps a native group. Reads and commits of one group on one partition come one after the other.

    Args:
        where: topic and stream.
        pending_max: deliveries tracked at one time, 0 for none.
    """

    def __init__(
        self, group: str, where: tuple[str, bytes], codec: OffsetCodec, layout: Layout, link: Link, pending_max: int
    ) -> None:
        self._group, (self._topic, self._stream), self._codec, self._link = group, where, codec, link
        self._layout = layout
        self._pending_max = pending_max
        self._position: int | None = None  # the offset behind the last delivered entry; None: not known
        self._seen = StreamInfo()  # the stream as it was at the last read
        self._pending = 0
        self._counted_at = 0.0
        self._entries_read: int | None = None  # entries ever added before the position; None where that is unknown
        self._reading = False  # a member reads through this group: commits must not pull its position about
        self._lock = asyncio.Lock()

    # -- reading

    async def read(self, offset: int, count: int, consumer: str, info: StreamInfo) -> bytes | memoryview | None:
        """About `count` entries from `offset` on as XRANGE's reply; the group has then been delivered these.

        None when no more deliveries can be tracked: the caller reads the stream itself and says so by `passed`.
        """
        async with self._lock:
            self._reading, self._seen = True, info
            try:
                if self._position != offset:
                    await self._move(offset, info)
                room = await self._room()
                return await self._deliver(offset, min(count, room), consumer) if room > 0 else None
            except RedisError:
                self._position = None  # NOGROUP: somebody removed it. The next read makes it again.
                return await self._plain(offset, count)

    async def _room(self) -> int:
        """How many more deliveries can be tracked."""
        room = self._pending_max - self._pending
        if room > 0 or not self._pending_max or time.monotonic() < self._counted_at + _RECOUNT_S:
            return room
        # Commits may go through another broker, and anybody may XACK.
        self._counted_at = time.monotonic()
        known = await self._native()
        self._pending = known.pending if known is not None else 0
        return self._pending_max - self._pending

    async def _deliver(self, offset: int, count: int, consumer: str) -> bytes | memoryview:
        reply = await self._link.pipe.send(*native.read_command(self._stream, self._group, consumer, count))
        try:
            delivered, entries = native.read_reply(reply, self._stream)  # before the read, and by it
        except ValueError as error:
            raise RedisError(str(error)) from None
        if entries is None or self._behind(delivered) != offset:
            self._position = None
            return await self._plain(offset, count)
        self._pending += native.entry_count(entries)
        return entries

    def passed(self, end: int, count: int, records: int) -> None:
        """The consumer was given `count` entries, up to offset `end`, exclusive, that are not tracked."""
        metrics.delivered(self._group, self._topic, records, tracked=False)
        if self._position is None:
            return
        self._advance(end, count)
        setid = ("XGROUP", "SETID", self._stream, self._group, self._entry(end - 1), *_counted(self._entries_read))
        self._link.pipe.send(pack(*setid)).add_done_callback(self._moved)

    def _moved(self, reply: asyncio.Future[bytes]) -> None:
        if reply.cancelled() or reply.exception() or reply.result() != b"+OK\r\n":
            self._position = None  # the next read looks what there is

    def _advance(self, end: int, count: int) -> None:
        self._position = end
        if self._entries_read is not None:
            self._entries_read += count

    async def _plain(self, offset: int, count: int) -> bytes:
        return await self._link.pipe.send(self._layout.range_command(self._stream, self._codec, offset, count))

    async def delivered(self, end: int, count: int, records: int, whole: bool) -> None:
        """Says how far the entries read last were given to the consumer: up to offset `end`, exclusive.

        Args:
            count: how many of them, with how many records.
            whole: all of them were; else those behind are taken back.
        """
        tracked = self._position is not None  # else they did not come through the native group
        metrics.delivered(self._group, self._topic, records, tracked=tracked)
        if not tracked:
            return
        self._advance(end, count)
        if not whole:
            async with self._lock:
                await self._take_back(end)

    async def _take_back(self, end: int) -> None:
        known = await self._native()
        if known is not None:
            await self._set("SETID", end, self._seen, known)
            self._pending = await self._acknowledge(self._entry(end), b"+")

    async def _move(self, offset: int, info: StreamInfo) -> None:
        """Makes sure there is a native group, and that what it is given next is the entry at `offset` or behind."""
        known = await self._native()
        if known is None:
            await self._set("CREATE", offset, info, known)
            self._pending = 0
        else:
            self._pending = known.pending
            delivered = self._delivered(known)
            self._entries_read = known.entries_read
            if delivered != offset:
                await self._set("SETID", offset, info, known)
            if delivered > offset and known.pending:
                self._pending = await self._acknowledge(self._entry(offset), b"+")  # they are delivered anew
        self._position = offset

    async def _set(self, verb: str, offset: int, info: StreamInfo, known: NativeGroup | None) -> None:
        last = self._codec.to_id(offset - 1) if offset > 0 else streams.ZERO
        self._entries_read = await self._entries_before(offset, info, known)
        where = (self._stream, self._group, self._codec.format_id(*last))
        try:
            await self._link.pipe.call("XGROUP", verb, *where, *_counted(self._entries_read))
        except RedisError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def _entries_before(self, offset: int, info: StreamInfo, known: NativeGroup | None) -> int | None:
        """How many entries were ever added before `offset`, by which Redis 7 knows the lag; None if that is unknown.

        It is known at both ends of the stream and where the group stands: counted from the nearest.
        """
        if info.added is None:
            return None
        marks = [(self._codec.to_offset(*info.last) + 1, info.added)]
        if info.first is not None:
            marks.append((self._codec.to_offset(*info.first), info.added - info.length))
        if known is not None and known.entries_read is not None:
            marks.append((self._delivered(known), known.entries_read))
        mark, read = min(marks, key=lambda place: abs(place[0] - offset))
        between = await self._count(min(mark, offset), max(mark, offset), info.entry_bytes)
        if between is None:
            return None
        return read + between if mark < offset else read - between

    async def _count(self, start: int, end: int, entry_bytes: int) -> int | None:
        """How many entries there are from offset `start` up to `end`; None if too many to count."""
        step = max(1, min(_STEP_MAX, _STEP_BYTES // max(entry_bytes, 1)))
        total: int = 0
        first, last = self._entry(start), b"(" + self._entry(end)
        for _ in range(_STEPS if start < end else 0):
            found, at = await self._link.pipe.call("EVAL", native.COUNT, 1, self._stream, first, last, step)
            total += found
            if found < step:
                return total
            first = b"(" + at
        return None if start < end else 0

    def _entry(self, offset: int) -> bytes:
        return self._codec.format_id(*self._codec.to_id(max(offset, 0)))

    def _delivered(self, known: NativeGroup) -> int:
        """The offset behind what the group was delivered."""
        return self._behind(known.last_delivered)

    def _behind(self, last: streams.Id) -> int:
        return self._codec.to_offset(*last) + 1 if last != streams.ZERO else 0

    async def _native(self) -> NativeGroup | None:
        """The native group as it is now; None where it, or the stream, is not there."""
        reply = parse(await self._link.pipe.send(pack("XINFO", "GROUPS", self._stream)))
        if isinstance(reply, Exception) and "no such key" in str(reply):
            return None
        return native.parse_groups(checked(reply)).get(self._group)

    # -- committing

    async def commit(self, offset: int, info: StreamInfo, elsewhere: bool) -> None:
        """Everything below `offset` is acknowledged; a group that nobody reads through goes on from there.

        Args:
            elsewhere: somebody reads through it at another broker.
        """
        async with self._lock:
            if self._position is not None and self._reading and offset <= self._position:
                # The usual case, and a cheap one: where nothing is tracked Redis is not even asked.
                if self._pending:
                    await self._acknowledge_below(offset)
                return
            known = await self._native()
            if known is None:
                if info.added or info.length:  # else there may be no stream, and none shall be made
                    await self._set("CREATE", offset, info, known)
            elif self._strays(known, offset, self._reading or elsewhere):
                await self._set("SETID", offset, info, known)
                self._position = None
            if known is not None and known.pending:
                await self._acknowledge_below(offset)

    def _strays(self, known: NativeGroup, offset: int, reading: bool) -> bool:
        """Whether the group's position is not what a commit of `offset` implies. A reader's may be ahead of it."""
        delivered = self._delivered(known)
        return delivered < offset if reading else delivered != offset

    async def _acknowledge_below(self, offset: int) -> None:
        if offset > 0:
            self._pending = await self._acknowledge(b"-", self._entry(offset - 1))

    async def _acknowledge(self, first: bytes, last: bytes) -> int:
        left: int = await self._link.pipe.call("EVAL", native.ACKNOWLEDGE, 1, self._stream, self._group, first, last)
        return left

    async def leave(self, consumer: str) -> None:
        """A member is gone: what it had and did not commit is delivered anew, to whoever reads on."""
        async with self._lock:
            self._reading, self._position = False, None
            try:
                await self._link.pipe.call("XGROUP", "DELCONSUMER", self._stream, self._group, consumer)
            except KetchError:
                return  # the group or the stream is gone as well


def _counted(entries_read: int | None) -> tuple[str | int, ...]:
    return () if entries_read is None else ("ENTRIESREAD", entries_read)
