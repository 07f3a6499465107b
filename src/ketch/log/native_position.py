"""The native position of one consumer group on one partition: it follows what the group reads and commits.

XINFO GROUPS and XPENDING then show the group as they show any Redis consumer. The consumer always gets the records from
the offset that it asked for; the native group never decides that. The cases of a read:

- It begins where the last one ended. XREADGROUP reads the entries and tracks them as deliveries.
- The consumer has moved (a seek). The native group is set to the new offset first.
- Another client has moved the native group (XGROUP SETID). Each read asks for the group's position in its transaction;
  where that is not the consumer's, the stream is read by XRANGE, and the next read sets the group.
- `pending_max` deliveries are tracked already; each takes memory in Redis. The stream is read by XRANGE, and only the
  group's position moves (XGROUP SETID), until commits make room. So it is on compacted topics always: compaction would
  have to carry each delivery to the stream's next copy.

A native group is there from the moment when its members are told their assignment, see
`broker.coordination.native_groups`; a read or a commit makes it where it is missing all the same. A commit acknowledges
the deliveries below it. What commands say and reply is `store.coordination.native`'s.
"""

from __future__ import annotations

import asyncio
import time

from ketch import metrics
from ketch.errors import KetchError, RedisError
from ketch.log.live import LiveStream
from ketch.redis.driver import Driver
from ketch.store.coordination import native
from ketch.store.coordination.native import NativeGroup
from ketch.store.offsets import ZERO, EntryId
from ketch.store.stream import counting
from ketch.store.xinfo import StreamInfo

_RECOUNT_S = 1.0  # how often Redis is asked whether a full window has got room


class NativePosition:
    """Keeps a native group. Reads and commits of one group on one partition come one after the other.

    Args:
        pending_max: deliveries tracked at one time, 0 for none.
    """

    def __init__(self, group: str, stream: LiveStream, driver: Driver, pending_max: int) -> None:
        self._group, self._stream, self._driver, self._pending_max = group, stream, driver, pending_max
        self._key, self._numbering = stream.key, stream.numbering
        self._position: int | None = None  # the offset after the last delivered entry; None: not known
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
                self._position = None  # NOGROUP: another client removed it. The next read makes it again.
                return await self._stream.range(offset, count)

    async def _room(self) -> int:
        """How many more deliveries can be tracked."""
        most = 0 if self._stream.topic.compacts else self._pending_max
        room = most - self._pending
        if room > 0 or not most or time.monotonic() < self._counted_at + _RECOUNT_S:
            return room
        # Commits may go through another broker, and anybody may XACK.
        self._counted_at = time.monotonic()
        known = await self._native()
        self._pending = known.pending if known is not None else 0
        return most - self._pending

    async def _deliver(self, offset: int, count: int, consumer: str) -> bytes | memoryview:
        reply = await self._driver.send(native.read_command(self._key, self._group, consumer, count))
        try:
            delivered, entries = native.read_reply(reply, self._key)  # before the read, and by it
        except ValueError as error:
            raise RedisError(str(error)) from None
        if entries is None or self._behind(delivered) != offset:
            self._position = None
            return await self._stream.range(offset, count)
        self._pending += native.entry_count(entries)
        return entries

    def passed(self, end: int, count: int, records: int) -> None:
        """The consumer was given `count` entries, up to offset `end`, exclusive, that are not tracked."""
        metrics.delivered(self._group, self._stream.topic.name, records, tracked=False)
        if self._position is None:
            return
        self._advance(end, count)
        moved = native.move_command(self._key, self._group, self._last_before(end), self._entries_read)
        self._driver.send(moved).add_done_callback(self._moved)

    def _moved(self, reply: asyncio.Future[bytes]) -> None:
        if reply.cancelled() or reply.exception() or reply.result() != b"+OK\r\n":
            self._position = None  # the next read looks what there is

    def _advance(self, end: int, count: int) -> None:
        self._position = end
        if self._entries_read is not None:
            self._entries_read += count

    async def delivered(self, end: int, count: int, records: int, whole: bool) -> None:
        """Says how far the entries read last were given to the consumer: up to offset `end`, exclusive.

        Args:
            count: how many of them, with how many records.
            whole: all of them were; else those after `end` are taken back.
        """
        tracked = self._position is not None  # else they did not come through the native group
        metrics.delivered(self._group, self._stream.topic.name, records, tracked=tracked)
        if not tracked:
            return
        self._advance(end, count)
        if not whole:
            async with self._lock:
                await self._take_back(end)

    async def _take_back(self, end: int) -> None:
        known = await self._native()
        if known is not None:
            await self._set_position(end, self._seen, known)
            self._pending = await self._acknowledge(self._entry(end), b"+")

    async def _move(self, offset: int, info: StreamInfo) -> None:
        """Makes sure there is a native group which is given the entry at `offset`, or the one after it, next."""
        known = await self._native()
        if known is None:
            await self._create(offset, info)
            self._pending = 0
        else:
            self._pending = known.pending
            delivered = self._delivered(known)
            self._entries_read = known.entries_read
            if delivered != offset:
                await self._set_position(offset, info, known)
            if delivered > offset and known.pending:
                self._pending = await self._acknowledge(self._entry(offset), b"+")  # they are delivered again
        self._position = offset

    async def _create(self, offset: int, info: StreamInfo) -> None:
        read = self._entries_read = await self._entries_before(offset, info, None)
        last = self._last_before(offset)
        if not await self._driver.ask(native.create(self._key, self._group, last, read)):  # made a moment ago
            await self._driver.ask(native.move(self._key, self._group, last, read))

    async def _set_position(self, offset: int, info: StreamInfo, known: NativeGroup) -> None:
        read = self._entries_read = await self._entries_before(offset, info, known)
        await self._driver.ask(native.move(self._key, self._group, self._last_before(offset), read))

    async def _entries_before(self, offset: int, info: StreamInfo, known: NativeGroup | None) -> int | None:
        """How many entries were ever added before `offset`, by which Redis 7 knows the lag; None if that is unknown.

        It is known at both ends of the stream and where the group stands: counted from the nearest.
        """
        if info.added is None:
            return None
        marks = [(self._numbering.to_offset(*info.last) + 1, info.added)]
        if info.first is not None:
            marks.append((self._numbering.to_offset(*info.first), info.added - info.length))
        if known is not None and known.entries_read is not None:
            marks.append((self._delivered(known), known.entries_read))
        mark, read = min(marks, key=lambda pair: abs(pair[0] - offset))
        start, end = sorted((mark, offset))
        between = await self._driver.ask(counting.entries(self._stream.at, start, end, info.entry_bytes))
        if between is None:
            return None
        return read + between if mark < offset else read - between

    def _last_before(self, offset: int) -> EntryId:
        """The id of the last entry that may lie before `offset`."""
        return self._numbering.to_id(offset - 1) if offset > 0 else ZERO

    def _entry(self, offset: int) -> bytes:
        return self._numbering.format_id(*self._numbering.to_id(max(offset, 0)))

    def _delivered(self, known: NativeGroup) -> int:
        """The offset after the last entry that the group was delivered."""
        return self._behind(known.last_delivered)

    def _behind(self, last: EntryId) -> int:
        return self._numbering.to_offset(*last) + 1 if last != ZERO else 0

    async def _native(self) -> NativeGroup | None:
        """The native group as it is now; None where it, or the stream, is not there."""
        groups = await self._driver.ask(native.groups(self._key))
        return groups.get(self._group)

    # -- committing

    async def commit(self, offset: int, info: StreamInfo, tracked: bool, elsewhere: bool) -> None:
        """Everything below `offset` is acknowledged; a group that nobody reads through goes on from there.

        Args:
            tracked: whether fetches are known to be those of a member of the group. They may have been before another
                group came whose members cannot be told apart; then the commits alone say where the group is.
            elsewhere: such a member reads through another broker.
        """
        async with self._lock:
            if not tracked:
                self._reading, self._position = False, None
            if self._position is not None and self._reading and offset <= self._position:
                # The usual case, and a cheap one: where nothing is tracked Redis is not even asked.
                if self._pending:
                    await self._acknowledge_below(offset)
                return
            known = await self._native()
            if known is None:
                if info.exists:  # else none shall be made
                    await self._create(offset, info)
            elif self._strays(known, offset, self._reading or elsewhere):
                await self._set_position(offset, info, known)
                self._position = None
                if known.pending and self._delivered(known) > offset:
                    await self._acknowledge(self._entry(offset), b"+")  # they are delivered again
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
        return await self._driver.ask(native.acknowledge(self._key, self._group, first, last))

    async def leave(self, consumer: str) -> None:
        """A member is gone: what it had and did not commit is delivered again, to the next reader."""
        async with self._lock:
            self._reading, self._position = False, None
            try:
                await self._driver.ask(native.remove_consumer(self._key, self._group, consumer))
            except KetchError:
                return  # the group or the stream is gone as well
