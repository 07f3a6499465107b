"""A share group on a partition in the batch layout: ranges of offsets (`log.sharing.in_flight`), kept in Redis.

The ranges are what Redis has (`store.coordination.sharing.stored_ranges`): each change is written before anybody is
answered, and refused where another broker has changed them since; then they are read again, and the change is made
anew. A batch is given whole, so that a fetch may give more records than it wants, as in Kafka; what of the batch the
member has not is not named in the answer. Markers, aborted records of a group that reads committed ones, and what was
removed from the log are settled by themselves.

Locks are ms of Redis's clock, which comes with every answer of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ketch.clock import now_ms
from ketch.coordinator.share.config import Isolation, ShareConfig
from ketch.errors import StorageUnavailable
from ketch.log.appending.notes import fetch_codec
from ketch.log.bounds import Bounds
from ketch.log.sharing.in_flight import InFlight, Range
from ketch.log.sharing.locked import LockedShare, SharedPartition
from ketch.log.sharing.share import Acknowledged, Acquired, InvalidRecordState, NotInFlight, Run, joined
from ketch.store.coordination.sharing import stored_ranges
from ketch.store.coordination.sharing.stored_ranges import StoredRange
from ketch.store.layouts.layout import Chunk, Span
from ketch.store.stream.isolation import AbortedIndex

T = TypeVar("T")

_TRUSTED_S = 1.0  # for how long nobody else is taken to have changed anything; members of a partition come here
_LEAST_READ = 1 << 20  # bytes that are read at least: the first batches may be in flight already
_ATTEMPTS = 5  # to change what other brokers change, too; and to get past what holds no records


class BatchShare(LockedShare):
    """One share group on one partition in the batch layout: a `Share`.

    Args:
        shares: the key of the hash.
    """

    def __init__(self, of: SharedPartition, shares: bytes) -> None:
        super().__init__(of)
        self._shares = shares
        self._flight: InFlight | None = None  # as it is in Redis; None: it has to be read
        self._version = self._next = 0  # as they are in Redis
        self._seen = 0.0  # when they were last known to be, monotonic seconds
        self._record_bytes = 0.0  # of a record in its batch; 0: not known
        self._skew = 0  # ms by which Redis's clock is ahead

    # -- giving

    async def acquire(self, member: str, records: int, size: int, config: ShareConfig) -> Acquired:
        async def act(flight: InFlight) -> Acquired:
            flight.expire(self._now(), config.delivery_limit)
            bounds = await self._bounds.readable()
            flight.removed_below(bounds.local_start)
            return await self._acquire(flight, bounds, member, records, size, config)

        acquired = await self._change(act, config)
        self._watch(config)
        return acquired

    async def _acquire(
        self, flight: InFlight, bounds: Bounds, member: str, records: int, size: int, config: ShareConfig
    ) -> Acquired:
        committed = config.isolation is Isolation.READ_COMMITTED
        end = bounds.end(committed)
        for _ in range(_ATTEMPTS):
            offset = self._first(flight, end, config)
            if offset is None:
                break
            chunk = await self._read(offset, min(size, self._size_of(records)), end)
            if not chunk:
                flight.skip(offset, end - 1)
                continue
            aborted = AbortedIndex(await self._stream.aborted(offset, chunk.end) if committed else ())
            runs = self._take(flight, chunk, offset, member, records, aborted, config)
            if runs:
                kept = _holding(chunk.spans(), runs)
                served = chunk.only(kept).served(fetch_codec(self._stream.topic), True)
                return Acquired(served, joined(runs), sum(run.last - run.first + 1 for run in runs))
        return Acquired()

    def _first(self, flight: InFlight, end: int, config: ShareConfig) -> int | None:
        """The first offset that can be delivered; None where there is none."""
        if flight.available is not None:
            return flight.available
        self._starved = flight.size >= config.locks_max and flight.next < end
        return flight.next if flight.next < end and not self._starved else None

    def _size_of(self, records: int) -> int:
        """Bytes of batches with so many records, about: a consumer takes 500, and 50 MB."""
        return max(int(records * self._record_bytes), _LEAST_READ)

    async def _read(self, offset: int, size: int, end: int) -> Chunk:
        count = self._stream.sizes.count(size)
        chunk = self._stream.chunk(await self._stream.range(offset, count, end), size)
        if chunk:
            self._record_bytes = chunk.size / chunk.records
        return chunk if chunk.end <= end else chunk.below(end)

    def _take(
        self,
        flight: InFlight,
        chunk: Chunk,
        offset: int,
        member: str,
        records: int,
        aborted: AbortedIndex,
        config: ShareConfig,
    ) -> list[Run]:
        """Acquires what a chunk has, batch by batch."""
        runs: list[Run] = []
        until, taken = self._now() + round(config.lock_duration * 1000), 0
        for span in chunk.spans():
            if taken >= records or (span.last >= flight.next and flight.size >= config.locks_max):
                break
            if span.base > offset:
                flight.skip(offset, span.base - 1)
            if span.control or (span.producer >= 0 and aborted.has(span.producer, span.base)):
                flight.skip(span.base, span.last)
            else:
                got = flight.acquire(member, span.base, span.last, until)
                taken += sum(run.last - run.first + 1 for run in got)
                runs += got
            offset = span.last + 1
        return runs

    async def backlog(self, config: ShareConfig) -> float:
        async with self._lock:
            flight = await self._loaded(config)
            end = (await self._bounds.readable()).end(config.isolation is Isolation.READ_COMMITTED)
            offset = self._first(flight, end, config)
            if offset is None:
                return 0
            return math.inf if flight.available is not None else (await self._read(offset, 1 << 20, end)).wire_size

    # -- taking

    async def acknowledge(self, member: str, acknowledged: Sequence[Acknowledged], config: ShareConfig) -> None:
        async def act(flight: InFlight) -> bool:
            return flight.acknowledge(member, acknowledged, self._now(), config.delivery_limit)

        self._freed(await self._change(act, config))

    async def leave(self, member: str, config: ShareConfig) -> None:
        async def act(flight: InFlight) -> bool:
            return flight.leave(member)

        self._freed(await self._change(act, config))

    def _freed(self, freed: bool) -> None:
        if freed or self._starved:
            self._starved = False
            self._changed()

    # -- its place in the log

    async def start(self) -> int | None:
        async with self._lock:
            self._flight = None
            stored = await self._driver.ask(stored_ranges.load(self._shares, self._group))
        if not stored.version:
            return None
        first = stored.ranges[0].first if stored.ranges else stored.next
        return max(first, (await self._bounds.get()).local_start)

    async def move(self, offset: int) -> None:
        async with self._lock:
            self._flight = None
            await self._driver.ask(stored_ranges.move(self._shares, self._group, offset))
        self._changed()

    async def remove(self) -> None:
        async with self._lock:
            self._flight = None
            await self._driver.ask(stored_ranges.remove([self._shares], self._group))

    # -- what is in Redis

    async def _change(self, act: Callable[[InFlight], Awaitable[T]], config: ShareConfig) -> T:
        """Makes a change, and writes it, unless another broker was faster: then anew."""
        async with self._lock:
            for _ in range(_ATTEMPTS):
                flight = await self._loaded(config)
                try:
                    result = await act(flight)
                    saved = await self._save(flight)
                except (InvalidRecordState, NotInFlight):
                    raise  # nothing has changed
                except BaseException:  # whether it was written is not known
                    self._flight = None
                    raise
                if saved:
                    return result
                self._flight = None
        key = self._stream.key.decode()
        raise StorageUnavailable(f"share group {self._group} on {key}: other brokers change it all the time")

    async def _loaded(self, config: ShareConfig) -> InFlight:
        if self._flight is not None and time.monotonic() >= self._seen + _TRUSTED_S:
            self._seen = time.monotonic()
            if await self._driver.ask(stored_ranges.version(self._shares, self._group)) != self._version:
                self._flight = None
        if self._flight is not None:
            return self._flight
        self._seen = time.monotonic()
        stored = await self._driver.ask(stored_ranges.load(self._shares, self._group))
        self._skew, self._version, self._next = stored.now - now_ms(), stored.version, stored.next
        first = stored.next
        if not stored.version:
            reset = await self._start(config.reset)
            first = (await self._bounds.readable()).high_watermark if reset is None else reset
        held = [Range(each.first, each.last, each.deliveries, each.member, each.until) for each in stored.ranges]
        self._flight = InFlight(first, held)
        return self._flight

    async def _save(self, flight: InFlight) -> bool:
        """Writes what has changed; False where another broker has written since."""
        changes = flight.changes()
        if self._version and not changes and flight.next == self._next:
            return True
        gone = [first for first, now in changes if now is None]
        come = [
            StoredRange(now.first, now.last, now.deliveries, now.until, now.member)
            for _, now in changes
            if now is not None
        ]
        saved = await self._driver.ask(
            stored_ranges.save(self._shares, self._group, self._version, flight.next, gone, come)
        )
        if saved is None:
            return False
        self._version, self._next, self._skew = saved.version, flight.next, saved.now - now_ms()
        self._seen = time.monotonic()
        return True

    def _now(self) -> int:
        return now_ms() + self._skew

    # -- locks that expire

    def _watch(self, config: ShareConfig) -> None:
        expiry = None if self._flight is None else self._flight.expiry
        if expiry is not None:
            self._watch_locks((expiry - self._now()) / 1000, config)

    async def _give_up_expired(self, config: ShareConfig) -> None:
        async def act(flight: InFlight) -> bool:
            return flight.expire(self._now(), config.delivery_limit)

        self._freed(await self._change(act, config))
        self._watch(config)


def _holding(spans: Sequence[Span], runs: Sequence[Run]) -> set[int]:
    """The base offsets of the batches that hold an offset of the runs, both in order."""
    holding, left = set(), iter(runs)
    run = next(left, None)
    for span in spans:
        while run is not None and run.last < span.base:
            run = next(left, None)
        if run is not None and run.first <= span.last:
            holding.add(span.base)
    return holding
