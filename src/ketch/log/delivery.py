"""One consumer group on one partition: its native group in Redis follows what the group reads and commits.

Reads that go on where the last one ended go through XREADGROUP, so that XINFO GROUPS and XPENDING show the group as any
Redis consumer. The records are those from the offset asked for, whatever the native group thinks: each read is checked
against the stream's own next entry, and where they disagree (a seek, somebody's XGROUP SETID) the stream is read and
the native group is set right.

Tracking a delivery costs an entry in the pending list, so no more than `pending_max` are tracked at a time; beyond that
the group's position alone moves (NOACK) until commits make room.
"""

from __future__ import annotations

import asyncio

from ketch.errors import KetchError, RedisError
from ketch.store import native, streams
from ketch.store.link import Link
from ketch.store.native import NativeGroup
from ketch.store.offsets import OffsetCodec
from ketch.store.pipe import checked, pack, parse
from ketch.store.streams import StreamInfo

_COUNT_MAX = 100_000  # entries that are counted to tell Redis a group's lag; a longer one stays unknown to XINFO
_COUNT_STEP = 2_000


class Delivery:
    """Keeps a native group. Reads and commits of one group on one partition come one after the other.

    Args:
        pending_max: deliveries tracked at one time, 0 for none.
    """

    def __init__(self, group: str, stream: bytes, codec: OffsetCodec, link: Link, pending_max: int) -> None:
        self._group, self._stream, self._codec, self._link = group, stream, codec, link
        self._pending_max = pending_max
        self._position: int | None = None  # the offset behind the last delivered entry; None: not known
        self._pending = 0
        self._reading = False  # a member reads through this group: commits must not pull its position about
        self._lock = asyncio.Lock()

    # -- reading

    async def read(self, offset: int, count: int, consumer: str, info: StreamInfo) -> bytes | memoryview:
        """About `count` entries from `offset` on as XRANGE's reply; the group has then been delivered these."""
        async with self._lock:
            self._reading = True
            try:
                if self._position != offset:
                    await self._move(offset, info)
                return await self._deliver(offset, count, consumer)
            except RedisError:
                self._position = None  # NOGROUP: somebody removed it. The next read makes it again.
                return await self._plain(offset, count)

    async def _deliver(self, offset: int, count: int, consumer: str) -> bytes | memoryview:
        room = self._pending_max - self._pending
        tracked = room > 0
        if tracked:
            count = min(count, room)
        probe = self._link.pipe.send(streams.range_command(self._stream, self._codec, offset, 1))
        answer = self._link.pipe.send(native.read_command(self._stream, self._group, consumer, count, tracked))
        expected, reply = await asyncio.gather(probe, answer)
        try:
            entries = native.entries_of(reply, self._stream)
        except ValueError as error:
            raise RedisError(str(error)) from None
        if entries is None or native.first_id(entries) != native.first_id(expected):
            self._position = None
            return await self._plain(offset, count)
        if tracked:
            self._pending += native.entry_count(entries)
        return entries

    async def _plain(self, offset: int, count: int) -> bytes:
        return await self._link.pipe.send(streams.range_command(self._stream, self._codec, offset, count))

    async def delivered(self, end: int, whole: bool) -> None:
        """Says how far the entries read last were given to the consumer: up to offset `end`, exclusive.

        Args:
            whole: all of them were; else those behind are taken back.
        """
        if self._position is None:  # they did not come through the native group
            return
        self._position = end
        if not whole:
            async with self._lock:
                await self._take_back(end)

    async def _take_back(self, end: int) -> None:
        last = self._codec.format_id(*self._codec.to_id(end - 1))
        self._pending = await self._acknowledge("(" + last.decode(), "+")
        await self._link.pipe.call("XGROUP", "SETID", self._stream, self._group, last)

    async def _move(self, offset: int, info: StreamInfo) -> None:
        """Makes sure there is a native group, and that what it is given next is the entry at `offset` or behind."""
        groups = await self._native_groups()
        if groups is None or self._group not in groups:
            await self._set("CREATE", offset, info, "MKSTREAM")
            self._pending = 0
        else:
            known = groups[self._group]
            self._pending = known.pending
            if self._codec.to_offset(*known.last_delivered) + 1 != offset:
                await self._set("SETID", offset, info)
        self._position = offset

    async def _set(self, verb: str, offset: int, info: StreamInfo, *options: str) -> None:
        last = self._codec.to_id(offset - 1) if offset > 0 else streams.ZERO
        read = await self._entries_before(offset, info)
        counted = ("ENTRIESREAD", read) if read is not None else ()
        entry = self._codec.format_id(*last)
        try:
            await self._link.pipe.call("XGROUP", verb, self._stream, self._group, entry, *options, *counted)
        except RedisError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def _entries_before(self, offset: int, info: StreamInfo) -> int | None:
        """How many entries were ever added before `offset`, by which Redis 7 knows the lag; None if that is unknown."""
        if info.added is None:
            return None
        behind = await self.count_from(offset)
        return None if behind is None else info.added - behind

    async def count_from(self, offset: int, most: int = _COUNT_MAX) -> int | None:
        """How many entries there are from `offset` on, None if more than `most`. In steps, not to hold up Redis."""
        total: int = 0
        start = self._codec.format_id(*self._codec.to_id(offset))
        while total <= most:
            step, last = await self._link.pipe.call("EVAL", native.COUNT, 1, self._stream, start, _COUNT_STEP)
            total += step
            if step < _COUNT_STEP:
                return total
            start = b"(" + last
        return None

    async def _native_groups(self) -> dict[str, NativeGroup] | None:
        reply = parse(await self._link.pipe.send(pack("XINFO", "GROUPS", self._stream)))
        if isinstance(reply, Exception) and "no such key" in str(reply):
            return None
        return native.parse_groups(checked(reply))

    # -- committing

    async def commit(self, offset: int, info: StreamInfo) -> None:
        """Everything below `offset` is acknowledged; a group that nobody reads through goes on from there."""
        async with self._lock:
            groups = await self._native_groups() or {}
            known = groups.get(self._group)
            if known is None:
                await self._set("CREATE", offset, info, "MKSTREAM")
            elif self._strays(known, offset):
                await self._set("SETID", offset, info)
                self._position = None
            if known is not None and known.pending and offset > 0:
                last = self._codec.format_id(*self._codec.to_id(offset - 1)).decode()
                self._pending = await self._acknowledge("-", last)

    def _strays(self, known: NativeGroup, offset: int) -> bool:
        """Whether the group's position is not what a commit of `offset` implies. A reader's may be ahead of it."""
        delivered = self._codec.to_offset(*known.last_delivered) + 1
        return delivered < offset if self._reading else delivered != offset

    async def _acknowledge(self, first: str, last: str) -> int:
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
