"""Compaction: of a topic with `cleanup.policy=compact` the newest record of each key stays (Kafka's LogCleaner).

A pass over one partition has two halves:

1. It reads what has come since the last pass and keeps the newest offset of each key in a `KeyTable`, whose size is
   fixed (`log.cleaner.dedupe.buffer.size`). Where the table is full, the pass ends there, and the next one goes on.
2. It reads the stream from its start and copies what stays into another stream, with the same ids: the newest record of
   each key, and everything from the end of the first half on. Then the copy takes the stream's place, in one step of
   Redis (`store.stream.compaction.swap`). Where nothing would go, nothing is copied. Native groups go with the copy:
   what they have pending is carried there before the swap, in steps, and again for consumers that have gone on
   meanwhile.

The cases:

- Others append meanwhile. The copy follows them to the end, and the swap takes over the last few entries itself.
- An entry is removed meanwhile, by retention or by hand. The swap sees that by the number of entries, and the pass was
  for nothing: it would have brought the entry back.
- This broker or Redis dies, at any point. The stream is as it was, or swapped. The copy is left behind and expires.
- Another broker compacts the same partition. The first one holds a lease (`compacting.begin`); a swap in an older term
  than the current one is refused.
- A record's transaction is open: the pass ends before it. Records of aborted transactions go. Markers go like
  tombstones: who has read the records had `delete.retention.ms` to read the marker, too.
- The topic has an archive: the pass ends at what has been archived, so that the archive holds every record. Where a
  reader gets older records from it, or will once retention has removed them here, tombstones stay: without one its key
  would have the value that the archive still gives.

The newest record of a partition is never looked at. A tombstone goes when a pass that has seen it ended
`delete.retention.ms` ago. No command keeps Redis busy for long: reads are bound by bytes, and writes are XADDs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from ketch import metrics
from ketch.clock import now_ms
from ketch.configs.settings import Settings
from ketch.errors import KetchError, StorageUnavailable
from ketch.log.partition import Partition
from ketch.log.topic_cache import TopicCache
from ketch.log.upkeep.key_table import LOAD, SLOT, KeyTable
from ketch.records import DecodedBatch, select_records
from ketch.records.columns import row_timestamps
from ketch.redis.driver import Driver
from ketch.redis.resp import checked, parse
from ketch.store.append import markers
from ketch.store.coordination import native
from ketch.store.keys import Keyspace
from ketch.store.layouts.layout import Thinned
from ketch.store.offsets import MAX_OFFSET
from ketch.store.stream import compaction, isolation, ranges
from ketch.store.stream.compaction import Copy, State
from ketch.store.stream.isolation import Aborted
from ketch.store.stream.ranges import EntrySizes
from ketch.store.topics.topic import Topic
from ketch.store.xinfo import StreamInfo

log = logging.getLogger(__name__)

_STEP_BYTES = 256 << 10  # of entries that one command reads: a millisecond of Redis
_STEP = 500  # entries of these
_SWAP_BYTES = 128 << 10  # of entries that the swap may take over itself
_SWAP = 100  # entries of these
_SWAPS = 100  # attempts to get to the end of a stream that grows
_PENDING = 500  # deliveries of native groups that one command carries to the copy
_CARRY_S = 0.5  # how long deliveries are carried before the copy follows the stream again
_CARRIES = 50  # times; then the swap carries what consumers that never rest have pending
_HOLD_S = 3.0  # how often the lease is renewed
_EVERYTHING = 1 << 62  # bytes


class _Aborted:
    """The transactions that were aborted below where a pass ends: their records go, and stand for no key."""

    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._of: dict[int, list[Aborted]] = {}
        for each in aborted:
            self._of.setdefault(each.producer, []).append(each)

    def holds(self, batch: DecodedBatch) -> bool:
        """Whether a batch is part of one of them."""
        if not batch.transactional:
            return False
        # A producer has one transaction at a time, so that the first whose marker comes later is the batch's, if any.
        of = self._of.get(batch.producer_id, ())
        at = bisect_left(of, batch.base_offset, key=lambda aborted: aborted.marker)
        return at < len(of) and of[at].first <= batch.base_offset


@dataclass(slots=True)
class _Throttle:
    """Keeps to so many bytes a second, if that is 0 or more."""

    rate: int
    since: float = field(default_factory=time.monotonic)
    taken: int = 0

    async def take(self, size: int) -> None:
        self.taken += size
        ahead = self.taken / self.rate - (time.monotonic() - self.since) if self.rate > 0 else 0.0
        await asyncio.sleep(max(0.0, ahead))


class _Overtaken(KetchError):
    """Another broker compacts the partition, or the topic is gone."""


class Cleaner:
    """Compacts the partitions that this broker leads, one at a time.

    Args:
        session: this broker process.
    """

    def __init__(self, settings: Settings, keys: Keyspace, driver: Driver, session: str) -> None:
        self.settings, self.keys, self.driver, self.session = settings, keys, driver, session

    async def sweep(
        self, topics: TopicCache, find: Callable[[Topic, int], Partition], leads: Callable[[UUID, int], bool]
    ) -> None:
        """Compacts what is due; what fails for one partition is logged and does not keep it from the others.

        Raises:
            StorageUnavailable: Redis is gone.
        """
        dirtiest, failed = 0.0, 0
        for topic in [topic for topic in await topics.all() if topic.compacts]:
            for index in [index for index in range(topic.partitions) if leads(topic.id, index)]:
                try:
                    dirtiest = max(dirtiest, await self._clean(find(topic, index), topic))
                except StorageUnavailable:
                    raise
                except (KetchError, ValueError) as error:  # ValueError: what lies there was written by hand
                    failed += 1
                    log.warning("%s-%d: compaction: %s", topic.name, index, error)
        metrics.cleaner_looked(dirtiest, failed)

    async def _clean(self, partition: Partition, topic: Topic) -> float:
        """Compacts a partition if that is due; which part of it is dirty."""
        state, info = await self.driver.ask(compaction.look(partition.stream, self.keys.compaction(partition.key)))
        dirty = state.dirty(info) / max(1, info.length)
        due = dirty > float(topic.configs["min.cleanable.dirty.ratio"])
        overdue = dirty > 0 and await self._overdue(partition, topic, state)
        if info.length > 1 and (due or overdue):
            while await _Pass(self, partition, topic, state, overdue).run():
                state, _ = await self.driver.ask(compaction.look(partition.stream, self.keys.compaction(partition.key)))
        return dirty

    async def _overdue(self, partition: Partition, topic: Topic, state: State) -> bool:
        """Whether the oldest record that was never compacted is older than `max.compaction.lag.ms`."""
        most = int(topic.configs["max.compaction.lag.ms"])
        if most == MAX_OFFSET:
            return False
        chunk = await self.driver.ask(ranges.read(partition.stream, state.cleaned, 1))
        return bool(chunk) and now_ms() - _appended(topic, chunk.base, chunk.max_timestamp) > most


def _appended(topic: Topic, offset: int, timestamp: int) -> int:
    """When a record was appended, ms: with dense ids its timestamp has to do."""
    return timestamp if topic.numbering.dense else offset >> topic.numbering.bits


class _Pass:
    """One compaction of one partition."""

    def __init__(self, cleaner: Cleaner, partition: Partition, topic: Topic, state: State, overdue: bool) -> None:
        self._partition, self._topic, self._state, self._overdue = partition, topic, state, overdue
        self._driver, self._session, self._keys = cleaner.driver, cleaner.session, cleaner.keys
        self._buffer = cleaner.settings.log_cleaner_dedupe_buffer_size
        self._throttle = _Throttle(cleaner.settings.log_cleaner_io_max_bytes_per_second)
        self._at, self._name = partition.stream, f"{topic.name}-{partition.stream.index}"
        self._began = self._held = time.monotonic()
        self._now = now_ms()
        self._read = 0  # entries whose keys are in the table
        self._full = False  # the table is: another pass has to follow

    async def run(self) -> bool:
        """Compacts the partition, unless another broker does; whether there is more to do at once."""
        state_key = self._keys.compaction(self._at.key)
        term = await self._driver.ask(compaction.begin(state_key, self._session))
        if not term:
            return False
        before, own = (self._keys.compacting(self._at.key, number) for number in (term - 1, term))
        self._copy = Copy(self._at, state_key, own, term)
        try:
            await self._driver.ask(compaction.drop(before))  # left by a broker that died during its pass
            return await self._compact() and self._full
        except _Overtaken:
            log.info("%s: another broker compacts it", self._name)
            return False
        finally:
            if self._driver.up:  # without it the copy and the lease expire by themselves
                await self._driver.ask(compaction.drop(own))
                await self._driver.ask(compaction.hold(self._copy, 0))

    async def _compact(self) -> bool:
        """Whether the partition was compacted."""
        info = await self._driver.ask(ranges.info(self._at))
        bounds = await self._partition.bounds.get(MAX_OFFSET)  # beyond any end, so Redis is asked
        self._count = max(1, min(_STEP, EntrySizes.of(self._at, info).count(_STEP_BYTES, spare=0)))
        end = await self._end(bounds.high_watermark - 1)
        if end <= self._state.cleaned:
            return False
        self._table = KeyTable(self._table_size(info))
        isolation_keys = isolation.keys_of(self._keys, self._at.key)
        self._aborted = _Aborted(
            await self._driver.ask(isolation.aborted_in(isolation_keys, self._at.numbering, 0, end))
        )
        self._until = await self._fill(self._state.cleaned, end)
        if not (self._overdue or self._full or self._read > self._least):
            return False
        self._tombstones = await self._tombstones_below(bounds.log_start < bounds.local_start)
        total = await self._scan()
        if total.changed:
            # Before its markers: a reader that is told of an aborted transaction waits for the marker.
            least = self._at.numbering.to_id(self._tombstones)
            await self._driver.ask(markers.trim_aborted(isolation_keys.aborted, least))
            return await self._replace()
        await self._store(total)
        return True

    @property
    def _least(self) -> float:
        """How many entries must have been read: too young ones do not count (LogToClean.cleanableRatio)."""
        ratio = float(self._topic.configs["min.cleanable.dirty.ratio"])
        return ratio * (self._read + self._state.entries)

    # -- what may be compacted

    async def _end(self, end: int) -> int:
        """The offset below which records may go: none of these is in an open transaction, too young or not archived."""
        archived = await self._partition.tier.settled()
        if archived is not None:
            end = min(end, archived)
        elif self._topic.configs["remote.storage.enable"] == "true":
            return 0
        for opened in await self._driver.ask(markers.all_open(self._keys.transactions(self._at.key))):
            end = min(end, self._at.numbering.to_offset(*opened.first))
        lag = int(self._topic.configs["min.compaction.lag.ms"])
        if lag and not self._at.numbering.dense:
            end = min(end, max(0, self._now - lag) << self._at.numbering.bits)
        return end

    async def _tombstones_below(self, cold: bool) -> int:
        """The offset below which tombstones go.

        Args:
            cold: readers from the log's start get its first records from the archive.
        """
        retention = int(self._topic.configs["delete.retention.ms"])
        if retention < 0:  # it is what stands for a number that nobody can read
            return 0
        if cold or (self._topic.deletes and await self._partition.tier.archived() is not None):
            return 0
        return self._state.tombstones_below(self._now - retention)

    def _table_size(self, info: StreamInfo) -> int:
        """No more than the keys that there can be."""
        if not self._at.layout.entry_is_record:
            return self._buffer
        return min(self._buffer, int(self._state.dirty(info) / LOAD + 100) * SLOT)

    # -- first half: the newest offset of each key

    async def _fill(self, begin: int, end: int) -> int:
        """Adds the keys of the records from `begin` to below `end`; the offset up to which that was possible."""
        lag = int(self._topic.configs["min.compaction.lag.ms"]) if self._at.numbering.dense else 0
        latest = self._now - lag if lag else None
        cursor = begin
        while cursor < end:
            reply = await self._range(cursor, end)
            chunk = self._at.layout.read(reply, self._at.numbering, _EVERYTHING, False)
            if not chunk or chunk.base >= end:
                break
            self._read += chunk.entries
            for batch in chunk.decoded():
                if batch.control or self._aborted.holds(batch):
                    continue
                until = self._add_batch(_from(batch, begin), end, latest)
                if until is not None:
                    return until
            cursor = chunk.end
        return end

    def _add_batch(self, batch: DecodedBatch, end: int, latest: int | None) -> int | None:
        """The offset up to which keys are in the table, where that is not the batch's end."""
        count, until = _stop(batch, end, latest) or (batch.record_count, None)
        full_at = self._table.add(batch, count) if count else None
        self._full = full_at is not None
        return until if full_at is None else full_at

    # -- second half: what stays

    async def _scan(self) -> Thinned:
        """Looks whether anything goes, up to the first entry that does."""
        total, cursor = Thinned(), 0
        while cursor < self._until and not total.changed:
            thinned = await self._thin(cursor)
            if not thinned.seen:
                break
            total.add_up(thinned)
            cursor = thinned.end
        return total

    async def _replace(self) -> bool:
        """Copies what stays, to the end of the stream, and swaps; whether that was possible."""
        total, cursor, swaps, carries, state = Thinned(), 0, 0, 0, None
        while swaps < _SWAPS:
            thinned = await self._thin(cursor)
            # What is removed before the first read is known now; what is removed later prevents the swap.
            state = state or await self._found()
            total.add_up(thinned)
            command = compaction.write(self._copy, thinned)
            if command is not None:
                await self._throttle.take(len(command.payload))
                checked(parse(await self._driver.send(command)))
            cursor = max(cursor, thinned.end)
            if thinned.seen == self._count:
                continue
            swaps += 1
            most = max(1, self._count * _SWAP_BYTES // _STEP_BYTES // 2)
            found = replace(state, entries=total.clean, first=total.first)
            most_pending = _PENDING if carries < _CARRIES else MAX_OFFSET
            answer = await self._driver.ask(compaction.swap(self._copy, total, min(most, _SWAP), most_pending, found))
            if answer == "overtaken":
                raise _Overtaken(answer)
            if answer == "pending":
                carries += 1
                await self._carry()
            if answer == "done":
                self._done(total)
                return True
            if answer == "changed":
                break
        log.info("%s: compaction begins anew: entries were removed, or appended too fast, while it ran", self._name)
        return False

    async def _carry(self) -> None:
        """Carries what native groups have pending to the copy, by consumers; one that is carried costs little."""
        began = time.monotonic()
        for group, consumer in await self._driver.ask(native.pending(self._at.key)):
            cursor = b"-"
            while cursor:
                await self._keep()
                cursor = await self._driver.ask(compaction.carry(self._copy, group, consumer, cursor, _PENDING))
            if time.monotonic() - began > _CARRY_S:
                return

    async def _store(self, total: Thinned) -> None:
        """Nothing goes: the next pass begins where this one ended."""
        found = replace(await self._found(), entries=total.clean, first=self._state.first, start=self._state.start)
        await self._driver.ask(compaction.hold(self._copy, found=found))
        self._done(total)

    async def _found(self) -> State:
        """What is to be known of the partition, as it is now."""
        info = await self._driver.ask(ranges.info(self._at))
        start = (await self._partition.bounds.get(MAX_OFFSET)).local_start
        horizons = self._state.passed(self._until, self._now)
        return State(self._until, removed=info.removed or 0, start=start, horizons=horizons)

    async def _thin(self, cursor: int) -> Thinned:
        reply = await self._range(cursor)
        return self._at.layout.thin(reply, self._at.numbering, self._copy.key, self._until, self._retain)

    def _retain(self, batch: DecodedBatch) -> bytearray:
        if batch.control:  # a marker; what it has ended may still be read
            return bytearray([batch.base_offset >= self._tombstones]) * batch.record_count
        if self._aborted.holds(batch):
            return bytearray(batch.record_count)
        return self._table.retained(batch, self._until, self._tombstones)

    async def _range(self, cursor: int, end: int | None = None) -> bytes:
        """The next entries; the lease is kept and the throttle held on the way."""
        await self._keep()
        reply = await self._driver.send(self._at.range_command(cursor, self._count, end))
        await self._throttle.take(len(reply))
        return reply

    async def _keep(self) -> None:
        """Keeps the lease."""
        if time.monotonic() - self._held > _HOLD_S:
            if not await self._driver.ask(compaction.hold(self._copy)):
                raise _Overtaken("the lease was lost")
            self._held = time.monotonic()

    def _done(self, total: Thinned) -> None:
        took = time.monotonic() - self._began
        log.info(
            "%s: compacted %d records to %d, below offset %d, with %d new keys, in %.1f s",
            self._name, total.records_seen, total.records_kept, self._until, self._table.keys, took,
        )  # fmt: skip
        metrics.compacted(self._topic.name, total.records_seen, total.records_kept, took, self._table.utilization)


def _from(batch: DecodedBatch, begin: int) -> DecodedBatch:
    """The records from offset `begin` on of a batch, which may start before it."""
    if batch.base_offset >= begin:
        return batch
    mask = bytearray(offset >= begin for offset, _ in row_timestamps(batch))
    return batch._replace(records=select_records(batch.records, mask), record_count=sum(mask))


def _stop(batch: DecodedBatch, end: int, latest: int | None) -> tuple[int, int] | None:
    """The index of the first record at `end` or above, or later than `latest` (ms), and the end of those before."""
    if batch.last_offset < end and (latest is None or batch.max_timestamp <= latest):
        return None
    for index, (offset, timestamp) in enumerate(row_timestamps(batch)):
        if offset >= end or (latest is not None and timestamp > latest):
            return index, min(offset, end)
    return None
