"""A share group on a partition in the record layout: the native group of its name.

Redis alone knows who holds what, see `store.coordination.sharing.pending`. Here is kept only what spares questions:
where the group stood last, and when locks expire that were given here. So any broker may serve any member at any time,
and a native consumer too.

- What others have given up comes before what was never delivered.
- What was never delivered comes through XREADGROUP. A group of committed records (`share.isolation.level`) reads up to
  the last stable offset, and is delivered the entries that are no marker's and no aborted transaction's; the group's
  position moves past all of them.
- A lock expires when its time has come: a timer gives up what was held for too long, by whomever. Nothing depends on
  the timer but when that becomes available: an acknowledgement after the lock's time is refused all the same.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ketch.coordinator.share.config import Isolation, ShareConfig
from ketch.errors import KetchError, RedisError
from ketch.log.appending.notes import fetch_codec
from ketch.log.sharing.locked import LockedShare, SharedPartition
from ketch.log.sharing.share import (
    BEYOND_FIRST,
    BEYOND_LAST,
    NOT_HELD,
    NOT_OWNED,
    NOTHING,
    Acknowledge,
    Acknowledged,
    Acquired,
    InvalidRecordState,
    NotInFlight,
    Run,
    joined,
    runs_of,
)
from ketch.records import DecodedBatch
from ketch.records.columns import row_timestamps
from ketch.store.coordination.native import destroy, entry_count
from ketch.store.coordination.sharing import pending
from ketch.store.coordination.sharing.pending import Held, Standing
from ketch.store.layouts.layout import Chunk, DecodedChunk
from ketch.store.offsets import ZERO
from ketch.store.stream.isolation import AbortedIndex, readable
from ketch.store.xinfo import StreamInfo
from ketch.wire.pieces import Pieces

_TAKEN_MAX = 500  # entries that are delivered again at once: they pass through Lua
_ATTEMPTS = 3  # to read where other brokers do
_TRUSTED_S = 1.0  # for how long nobody else is taken to have given anything up; members of a partition come here
_WORDS = {
    Acknowledge.GAP: "gap",
    Acknowledge.ACCEPT: "done",
    Acknowledge.RELEASE: "release",
    Acknowledge.REJECT: "done",
}
_REFUSALS: dict[pending.Refusal, tuple[type[KetchError], str]] = {
    pending.Refusal.NOT_HELD: (InvalidRecordState, NOT_HELD),
    pending.Refusal.NOT_OWNED: (InvalidRecordState, NOT_OWNED),
    pending.Refusal.NOTHING: (InvalidRecordState, NOTHING),
    pending.Refusal.BEYOND_LAST: (NotInFlight, BEYOND_LAST),
    pending.Refusal.BEYOND_FIRST: (NotInFlight, BEYOND_FIRST),
}


class Locks:
    """When locks have to be looked at that were given here, and those that others may have given. No I/O."""

    def __init__(self) -> None:
        self._given: deque[float] = deque()  # monotonic seconds
        self._looked = -math.inf

    def given(self, now: float) -> None:
        """Records were handed out."""
        if not self._given or self._given[-1] < now - 0.01:
            self._given.append(now)

    def looked(self, now: float, lock: float) -> None:
        """Those have been given up that were given `lock` seconds ago, or before."""
        self._looked = now
        while self._given and self._given[0] <= now - lock:
            self._given.popleft()

    def due(self, lock: float) -> float:
        """When some may expire: of ours the first, and others' are looked for twice in a lock's time."""
        own = self._given[0] + lock if self._given else math.inf
        return min(own, self._looked + lock / 2)


class RecordShare(LockedShare):
    """One share group on one partition in the record layout: a `Share`."""

    def __init__(self, of: SharedPartition) -> None:
        super().__init__(of)
        self._key, self._numbering = of.stream.key, of.stream.numbering
        self._standing = Standing(ZERO, 0, False)  # as it was last seen
        self._stale = True  # it has to be looked at again
        self._seen = 0.0  # when it was last looked at, monotonic seconds
        self._locks = Locks()

    # -- giving

    async def acquire(self, member: str, records: int, size: int, config: ShareConfig) -> Acquired:
        async with self._lock:
            try:
                acquired = await self._acquire(member, records, size, config)
            except RedisError:  # another client has deleted the group, or the stream
                self._stale = True
                acquired = await self._acquire(member, records, size, config)
            except BaseException:  # the client may be gone, and what it was about to get is not known
                self._stale = True
                raise
        if acquired.count:
            self._locks.given(time.monotonic())
            self._watch(config)
        return acquired

    async def _acquire(self, member: str, records: int, size: int, config: ShareConfig) -> Acquired:
        for _ in range(_ATTEMPTS):
            standing = await self._stand(config)
            if standing.available:
                acquired = await self._take(member, min(records, self._fitting(size)), config)
                if acquired.count:
                    return acquired
                continue
            room = await self._room(config)
            if room <= 0 or not await self._has_more(config):
                return Acquired()
            count = min(records, room, self._fitting(size))
            if config.isolation is Isolation.READ_COMMITTED:
                acquired, again = await self._claim(member, count, size)
            else:
                acquired, again = await self._read(member, count, size)
            if acquired.count or not again:
                return acquired
        return Acquired()

    async def backlog(self, config: ShareConfig) -> float:
        async with self._lock:
            standing = await self._stand(config)
            if standing.available:
                return math.inf
            if await self._room(config) <= 0 or not await self._has_more(config):
                return 0
            info = await self._stream.info()
            behind = _behind(standing, info)
            return math.inf if behind is None else max(behind, 1) * (self._stream.sizes.average or math.inf)

    def _fitting(self, size: int) -> int:
        return self._stream.sizes.count(size, spare=0)

    async def _stand(self, config: ShareConfig) -> Standing:
        """Where the group stands, as far as that is known; what was held for too long is given up before."""
        if self._stale or time.monotonic() >= self._seen + _TRUSTED_S:
            await self._look(config)
        if time.monotonic() >= self._locks.due(config.lock_duration):
            await self._expire(config)
        return self._standing

    async def _look(self, config: ShareConfig) -> None:
        self._stale, self._seen = False, time.monotonic()  # it may become stale again while Redis is asked
        standing = await self._driver.ask(pending.look(self._key, self._group))
        if standing is None:
            offset = await self._start(config.reset)
            position = None if offset is None else self._numbering.to_id(offset - 1) if offset > 0 else ZERO
            await self._driver.ask(pending.create(self._key, self._group, position))
            standing = await self._driver.ask(pending.look(self._key, self._group))
        if standing is None:
            raise RedisError(f"share group {self._group} is gone from {self._key.decode()}")
        self._standing = standing

    async def _room(self, config: ShareConfig) -> int:
        """How many more records may be in flight."""
        if self._standing.pending >= config.locks_max:  # it may have become less since
            await self._look(config)
        room = config.locks_max - self._standing.pending
        self._starved = room <= 0
        return room

    async def _has_more(self, config: ShareConfig) -> bool:
        """Whether there are records that were never delivered."""
        info = await self._stream.info()
        if info.last <= self._standing.position:
            return False
        return config.isolation is not Isolation.READ_COMMITTED or (await self._bounds.get()).last_stable > self._next

    @property
    def _next(self) -> int:
        """The first offset that was never delivered."""
        position = self._standing.position
        return self._numbering.to_offset(*position) + 1 if position != ZERO else 0

    async def _take(self, member: str, records: int, config: ShareConfig) -> Acquired:
        """Delivers again what others have given up."""
        most = max(1, min(records, _TAKEN_MAX))
        reply = await self._driver.send(
            pending.take_command(self._key, self._group, member, most, config.delivery_limit)
        )
        counts, entries = pending.take_reply(reply)
        await self._look(config)
        if not counts:
            return Acquired()
        chunk = self._stream.chunk(entries, 1 << 62)
        delivered = sorted((self._numbering.to_offset(*entry), count) for entry, count in counts.items())
        return Acquired(self._wire(chunk), runs_of(delivered), len(delivered))

    async def _read(self, member: str, count: int, size: int) -> tuple[Acquired, bool]:
        """Delivers what was never delivered; and whether it is worth while to try again."""
        reply = await self._driver.send(pending.read_command(self._key, self._group, member, count))
        standing, entries = pending.read_reply(reply, self._key)
        if standing is None or entries is None:
            self._stale = True
            return Acquired(), standing is None
        read = entry_count(entries)
        chunk = self._stream.chunk(entries, size)
        if chunk.entries < read:
            self._stale = True
            await self._undo(member, chunk.end)
        else:
            position = self._numbering.to_id(chunk.end - 1)
            after = None if standing.entries_read is None else standing.entries_read + read
            self._standing = Standing(position, standing.pending + read, standing.available, after)
            self._seen = time.monotonic()
        found = _found(chunk.decoded())
        if found.markers:
            await self._settle(member, found.markers, "gap")
        return Acquired(self._wire(chunk) if found.records else b"", found.runs, found.records), bool(found.markers)

    async def _claim(self, member: str, count: int, size: int) -> tuple[Acquired, bool]:
        """As `_read`, of committed records."""
        bounds, start, since = await self._bounds.get(), self._next, self._standing.position
        end = bounds.last_stable
        chunk = self._stream.chunk(await self._stream.range(start, count, end), size)
        chunk = chunk if chunk.end <= end else chunk.below(end)
        if not chunk:
            self._stream.changed()
            return Acquired(), False
        aborted = AbortedIndex(await self._stream.aborted(start, chunk.end))
        batches = readable(chunk.decoded(), aborted)
        found = _found(batches)
        ids = [self._numbering.to_id(offset) for run in found.runs for offset in range(run.first, run.last + 1)]
        to = self._numbering.to_id(chunk.end - 1)
        self._stale = True
        if not await self._driver.ask(pending.claim(self._key, self._group, member, since, to, chunk.entries, ids)):
            return Acquired(), True
        served = DecodedChunk(batches, self._stream.topic.log_append_time)
        return Acquired(self._wire(served) if found.records else b"", found.runs, found.records), True

    def _wire(self, chunk: Chunk) -> bytes | Pieces:
        return chunk.served(fetch_codec(self._stream.topic), True)

    async def _undo(self, member: str, offset: int) -> None:
        """Takes back what was delivered from `offset` on, and cannot be given."""
        standing = await self._driver.ask(pending.look(self._key, self._group))
        if standing is not None:
            last = self._numbering.to_offset(*standing.position)
            await self._settle(member, [Run(offset, last, 1)], "undo")

    async def _settle(self, member: str, runs: Sequence[Run], what: str) -> None:
        """Settles what was delivered just now."""
        held = [self._held(what, run.first, run.last) for run in runs]
        await self._ask_settle(member, 1 << 31, 1 << 15, held)

    # -- taking

    async def acknowledge(self, member: str, acknowledged: Sequence[Acknowledged], config: ShareConfig) -> None:
        if any(each.first < 0 for each in acknowledged):
            raise InvalidRecordState("an offset below 0")
        ranges = [self._held(_WORDS[each.what], each.first, each.last) for each in acknowledged]
        settled = await self._ask_settle(member, _ms(config.lock_duration), config.delivery_limit, ranges)
        if isinstance(settled, pending.Refusal):
            error, why = _REFUSALS[settled]
            raise error(why)
        self._freed(settled)

    async def _ask_settle(self, member: str, lock_ms: int, limit: int, ranges: Sequence[Held]) -> int | pending.Refusal:
        width = 1 << self._numbering.bits
        return await self._driver.ask(pending.settle(self._key, self._group, member, lock_ms, limit, width, ranges))

    def _held(self, what: str, first: int, last: int) -> Held:
        return Held(what, self._numbering.to_id(first), self._numbering.to_id(last), last - first + 1)

    def _freed(self, freed: int) -> None:
        if freed or self._starved:
            self._stale, self._starved = True, False
            self._changed()

    async def leave(self, member: str, config: ShareConfig) -> None:
        self._freed(await self._driver.ask(pending.leave(self._key, self._group, member)))

    # -- its place in the log

    async def start(self) -> int | None:
        first = await self._driver.ask(pending.first(self._key, self._group))
        if first is None:
            return None
        return (await self._bounds.get()).local_start if first == ZERO else self._numbering.to_offset(*first)

    async def move(self, offset: int) -> None:
        position = self._numbering.to_id(offset - 1) if offset > 0 else ZERO
        async with self._lock:
            self._stale = True
            await self._driver.ask(pending.recreate(self._key, self._group, position))
        self._changed()

    async def remove(self) -> None:
        async with self._lock:
            self._stale = True
            await self._driver.ask(destroy([self._key], self._group))

    # -- locks that expire

    async def _expire(self, config: ShareConfig) -> None:
        lock, limit = _ms(config.lock_duration), config.delivery_limit
        freed, left = await self._driver.ask(pending.expire(self._key, self._group, lock, limit))
        self._locks.looked(time.monotonic(), config.lock_duration)
        if freed or self._standing.pending != left:
            await self._look(config)

    def _watch(self, config: ShareConfig) -> None:
        self._watch_locks(self._locks.due(config.lock_duration) - time.monotonic(), config)

    async def _give_up_expired(self, config: ShareConfig) -> None:
        try:
            async with self._lock:
                await self._expire(config)
        except KetchError:
            self._stale = True
            raise
        if self._standing.pending:
            self._watch(config)
        if self._standing.available or self._starved:
            self._changed()


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _behind(standing: Standing, info: StreamInfo) -> int | None:
    """How many entries lie behind a group's position; None where that is not known."""
    if info.first is not None and standing.position < info.first:
        return info.length
    if info.added is None or standing.entries_read is None:
        return None
    return info.added - standing.entries_read


class _Found(NamedTuple):
    """The records of some batches, and the transactions' markers among them."""

    runs: list[Run]
    markers: list[Run]
    records: int


def _found(batches: Sequence[DecodedBatch]) -> _Found:
    runs: list[Run] = []
    markers: list[Run] = []
    for batch in batches:
        if batch.control:
            markers.append(Run(batch.base_offset, batch.last_offset, 1))
        elif batch.record_count > batch.last_offset_delta:
            runs.append(Run(batch.base_offset, batch.last_offset, 1))
        else:
            runs += runs_of((offset, 1) for offset, _ in row_timestamps(batch))
    return _Found(joined(runs), markers, sum(run.last - run.first + 1 for run in runs))
