"""The write side of one partition: appends batches whole or not at all, on consecutive offsets, in the order given.

It owns the queue of batches, what is in flight, what is known of the stream's end and of its idempotent producers, and
the choice among the ways to append. The ways themselves are `store.append.appends`'s. The cases:

- Nobody else writes to the stream. Ids are chosen here, after the last-generated-id that is known, and batches are
  pipelined without waiting. Redis refuses them if the stream has moved.
- A batch is refused, or Redis reports a foreign write (`log.watcher`). Nothing more is sent until all that is in
  flight is answered. Then refused batches and the queue are sent in order, with Redis choosing the ids, for
  `_CONTENDED_S`. That is slower, but no other writer can starve it. After that ids are chosen here again.
- The server has the append module. Where a stream has moved, it takes other ids in the same command, so nothing is
  refused for that. This learns of it by the reply, and Redis chooses the ids from then on, as above.
- A batch is too wide for Lua. Only the way with ids chosen here takes it. With each refusal its ids lie farther ahead
  of the stream, until none has come in between. Dense ids leave no gaps, so there it is only repeated.
- A marker ends a transaction (`store.append.markers`). Redis chooses its id, so nothing more is sent until that is
  known. It takes its turn in the queue all the same, so that it is no foreign write, and ids go on being chosen here.
- The connection is lost. What was in flight fails, since nobody knows whether it is stored. The stream's end and the
  producers are read again before the next batch.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ketch import metrics
from ketch.clock import now_ms
from ketch.errors import (
    InvalidRecord,
    KetchError,
    OutOfOrderSequence,
    RedisError,
    StorageUnavailable,
    UnknownTopicOrPartition,
)
from ketch.log.appending.producers import ProducerState, Sequenced, sequence_behind
from ketch.log.watcher import Watcher
from ketch.records.control import Marker
from ketch.redis.driver import Reply, received
from ketch.store.append import appends, markers, producers
from ketch.store.append.appends import Landed, Refusal
from ketch.store.append.markers import End, Ended
from ketch.store.layouts.layout import Layout, Payload
from ketch.store.offsets import ZERO, EntryId, OffsetNumbering
from ketch.store.scripts import AppendKeys, Producer, TransactionKeys

_CONTENDED_S = 1.0  # how long Redis goes on choosing ids after another writer was met
_MAX_ATTEMPTS = 30  # of one batch; only one with an entry too wide for Lua and dense ids ever comes near
_MAX_LEAD_MS = 1_000  # how far ahead of the stream a batch too wide for Lua may be put
_MAX_PRODUCERS = 1_000  # states held of one partition

log = logging.getLogger(__name__)


class _Mode(enum.Enum):
    COLD = enum.auto()  # the stream's end is not known
    FAST = enum.auto()  # ids chosen here
    MOVED = enum.auto()  # another client has written, nothing was refused: waits for what is in flight
    DRAINING = enum.auto()  # a batch was refused: waits for the replies to those sent after it
    CONTENDED = enum.auto()  # ids chosen by Redis


@dataclass(slots=True, eq=False)
class _Append:
    batch: Payload
    producer: Sequenced | None
    future: asyncio.Future[int]  # base offset
    attempts: int = 0
    wide: bool = False  # more fields than one command can pass on
    asked: bool = False  # Redis was asked for its producer's state

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            # Its traceback names this batch and this future: neither would go before the next collection.
            self.future.set_exception(error.with_traceback(None))
            self.future.exception()  # acks=0: nobody may ask


@dataclass(slots=True, eq=False)
class _Ending:
    """A marker in the queue."""

    marker: Marker
    future: asyncio.Future[bool]
    wide: ClassVar[bool] = False
    producer: ClassVar[None] = None

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error.with_traceback(None))
            self.future.exception()


class Appender:
    """The write side of one partition.

    Args:
        watcher: appends go over its connection; it hears when the stream may be another than it was left.
        keys: stream, producers and fence key.
        floor: the partition's first offset; no record comes before it.
        landed: called with every batch stored, its base offset, and the last-generated-id that it follows, None
            where that is not known.
        ended: the same for every marker: with it, the batch that it is read back as, its offset, and that id.
        alive: whether the topic still exists; asked when the stream is not known, or not as it had been left.
    """

    def __init__(
        self,
        watcher: Watcher,
        keys: AppendKeys,
        transaction_keys: TransactionKeys,
        layout: Layout,
        numbering: OffsetNumbering,
        floor: int,
        landed: Callable[[Payload, int, EntryId | None], None],
        ended: Callable[[Marker, Payload, int, EntryId], None],
        alive: Callable[[], Awaitable[bool]],
    ) -> None:
        self._watcher, self._link = watcher, watcher.link
        self._keys, self._numbering, self._floor = keys, numbering, floor
        self._transaction_keys, self._layout = transaction_keys, layout
        self._landed, self._told_ended, self._alive = landed, ended, alive
        self._mode = _Mode.COLD
        self._last = ZERO
        self._contended_until = 0.0
        self._exists = False  # a batch has landed since the topic was last known to be there
        self._producers: dict[int, ProducerState] = {}
        self._waiting: deque[_Append | _Ending] = deque()
        self._refused: list[_Append] = []
        self._inflight = 0
        self._closed = False
        self._preparing: asyncio.Task[None] | None = None
        self._ending: _Ending | None = None  # in flight: what follows it has to know its offset

    def close(self) -> None:
        """The topic is being deleted: nothing more is written."""
        self._closed = True
        self._watcher.unwatch_writes(self._keys.stream)
        self._fail_all(UnknownTopicOrPartition("the topic was deleted"))

    def append(self, batch: Payload, producer: Sequenced | None = None) -> asyncio.Future[int]:
        """Stores a batch; the future gets the offset of its first record once Redis has it.

        The future fails with InvalidRecord, InvalidProducerEpoch, OutOfOrderSequence, NotInTransaction,
        InvalidTransactionState or StorageUnavailable; nothing of the batch is stored then, save that a connection lost
        at that very moment leaves it open.
        """
        entry = _Append(batch, producer, asyncio.get_running_loop().create_future())
        if appends.too_long(batch):
            entry.wide = appends.operands(batch, self._watcher.module) is None
        if self._closed:
            entry.fail(UnknownTopicOrPartition("the topic was deleted"))
            return entry.future
        self._waiting.append(entry)
        self._pump()
        return entry.future

    def end_transaction(self, marker: Marker) -> asyncio.Future[bool]:
        """Appends a marker, after what was given before; the future gets False where no such transaction was open.

        It fails with InvalidProducerEpoch, UnknownTopicOrPartition or StorageUnavailable.
        """
        ending = _Ending(marker, asyncio.get_running_loop().create_future())
        if self._closed:
            ending.fail(UnknownTopicOrPartition("the topic was deleted"))
        else:
            self._waiting.append(ending)
            self._pump()
        return ending.future

    def in_transaction(self, producer: int, epoch: int) -> bool:
        """Whether this producer's transaction is known to be open; another broker may have ended it since."""
        state = self._producers.get(producer)
        return state is not None and state.in_transaction and state.epoch == epoch

    # -- sending

    def _pump(self) -> None:
        while (self._waiting or self._refused) and self._preparing is None and self._ending is None:
            if self._refused or not self._open_for(self._waiting[0]):
                if self._inflight == 0:
                    self._prepare()
                return
            if self._unknown(self._waiting[0]):
                self._prepare()
                return
            entry = self._waiting.popleft()
            if isinstance(entry, _Ending):
                self._end(entry)
            else:
                self._submit(entry)

    def _open_for(self, entry: _Append | _Ending) -> bool:
        if self._mode is _Mode.CONTENDED:
            return not entry.wide and time.monotonic() < self._contended_until
        # One that is wide would wait for ever while others write all the time; it has a guard that misses nothing.
        if self._mode is _Mode.FAST and not entry.wide and self._watcher.others_wrote(self._keys.stream):
            self._mode = _Mode.MOVED
        return self._mode is _Mode.FAST

    def _unknown(self, entry: _Append | _Ending) -> bool:
        return entry.producer is not None and entry.producer.id not in self._producers

    def _submit(self, entry: _Append) -> None:
        try:
            producer = self._admit(entry)
            if producer is not None or entry.producer is None:  # else a duplicate, which follows the earlier batch
                self._send(entry, producer)
        except (StorageUnavailable, RedisError) as error:  # the connection is gone, or the ids are beyond any offset
            entry.fail(error)
            self._forget()
        except OutOfOrderSequence as error:
            if entry.asked:
                entry.fail(error)
            else:  # what is missing may have gone through another broker: Redis knows
                self._waiting.appendleft(entry)
                self._mode = _Mode.COLD
        except KetchError as error:
            entry.fail(error)

    def _admit(self, entry: _Append) -> Producer | None:
        """The producer's next state; or, for a duplicate, the entry's future follows the earlier batch's."""
        if entry.producer is None:
            return None
        pid, epoch, first, transactional, started = entry.producer
        state = self._producers[pid]
        duplicate = state.check(epoch, first, entry.batch.count)
        if duplicate is not None:
            _follow(entry.future, duplicate.offset)
            return None
        state.check_transaction(entry.producer)
        last = sequence_behind(first, entry.batch.count - 1)
        opened = self._transaction_keys.transactions if transactional else None
        return producers.moved(pid, state.head, epoch, first, last, now_ms(), opened, started)

    def _send(self, entry: _Append, producer: Producer | None) -> None:
        expected: EntryId | None = None
        by_module = 0 if entry.wide else self._watcher.module
        if self._mode is _Mode.FAST:
            base, expected = self._place(entry)
            append = appends.chosen_here(self._keys, self._numbering, expected, base, entry.batch, producer, by_module)
        else:
            floor = self._now_offset()
            append = appends.chosen_by_redis(
                self._keys, self._numbering, floor, entry.batch, producer, by_module, self._exists
            )
        self._link.post(append.command, partial(self._replied, entry, append.read, expected))
        if self._mode is _Mode.FAST:
            self._last = self._numbering.to_id(base + entry.batch.count - 1)
        self._inflight += 1
        if entry.producer is not None and producer is not None:
            pid, epoch, first, transactional, _ = entry.producer
            state = self._producers.pop(pid)
            state.advance(epoch, first, entry.batch.count, entry.future, transactional)
            self._producers[pid] = state  # the latest comes last

    def _end(self, ending: _Ending) -> None:
        now = now_ms()
        end = markers.end(self._transaction_keys, self._layout, self._numbering, self._now_offset(), ending.marker, now)
        try:
            self._link.post(end.command, partial(self._end_replied, ending, end, now))
        except StorageUnavailable as error:
            ending.fail(error)
            self._forget()
            return
        self._ending = ending
        self._inflight += 1

    def _end_replied(self, ending: _Ending, end: End, now: int, reply: Reply) -> None:
        self._ending = None
        try:
            self._ended(ending, now, end.read(received(reply)))
        except StorageUnavailable as error:
            ending.fail(error)
            self._watcher.changed(self._keys.stream)
            self._mode = _Mode.DRAINING
        except Exception as error:
            ending.fail(error)
        self._inflight -= 1
        self._pump()

    def _ended(self, ending: _Ending, now: int, ended: Ended | None) -> None:
        marker, state = ending.marker, self._producers.get(ending.marker.producer)
        if state is not None:
            state.end_transaction(marker.epoch)
        if ended is not None:
            self._last = max(self._last, ended.id)
            offset = self._numbering.to_offset(*ended.id)
            self._told_ended(marker, self._layout.marker_batch(marker, now), offset, ended.follows)
        if not ending.future.done():
            ending.future.set_result(ended is not None)

    def _place(self, entry: _Append) -> tuple[int, EntryId | None]:
        """The base offset, and the last-generated-id that it follows, None for any below."""
        base = max(self._now_offset(), self._numbering.to_offset(*self._last) + 1)
        if entry.wide and entry.attempts and self._last != ZERO and not self._numbering.dense:
            return base + (min(1 << entry.attempts, _MAX_LEAD_MS) << self._numbering.bits), None
        return base, self._last

    def _now_offset(self) -> int:
        if self._numbering.dense:
            return 0
        return max(now_ms() << self._numbering.bits, self._floor)

    # -- answers

    def _replied(
        self,
        entry: _Append,
        read: Callable[[bytes], Landed | Refusal],
        expected: EntryId | None,
        reply: Reply,
    ) -> None:
        try:
            outcome = read(received(reply))
            if isinstance(outcome, Landed):
                self._stored(entry, outcome.base, expected if outcome.follows else None)
            else:
                entry.wide = entry.wide or outcome is Refusal.WIDE
                self._refuse(entry)
        except KetchError as error:
            self._failed(entry, error)
        self._answered()

    def _stored(self, entry: _Append, base: int, follows: EntryId | None) -> None:
        if not entry.future.done():
            entry.future.set_result(base)
        self._exists = True
        if follows is None and self._mode is _Mode.FAST and not entry.wide:
            self._mode = _Mode.MOVED
        self._landed(entry.batch, base, follows)

    def _refuse(self, entry: _Append) -> None:
        self._mode = _Mode.DRAINING
        self._watcher.changed(self._keys.stream)
        entry.attempts += 1
        metrics.appends_refused.inc()
        log.debug("%s: another writer came in between", self._keys.stream.decode())
        if entry.attempts < _MAX_ATTEMPTS:
            self._refused.append(entry)
        else:
            entry.fail(StorageUnavailable("other writers kept this batch out"))

    def _failed(self, entry: _Append, error: KetchError) -> None:
        own = isinstance(error, StorageUnavailable | InvalidRecord)
        entry.fail(error if own else StorageUnavailable(str(error)))
        self._watcher.changed(self._keys.stream)
        self._mode = _Mode.DRAINING  # what was pipelined after it follows an id that will not come

    def _answered(self) -> None:
        self._inflight -= 1
        if self._inflight == 0:
            self._pump()

    # -- getting ready

    def _prepare(self) -> None:
        if self._preparing is None:
            self._preparing = asyncio.get_running_loop().create_task(self._prepared())

    async def _prepared(self) -> None:
        """Learns what the next batch in line needs to know, or fails everything in line if Redis can't say."""
        try:
            if self._inflight == 0 and (self._refused or (self._waiting and not self._open_for(self._waiting[0]))):
                await self._get_ready()
            if self._waiting:
                await self._learn_producer(self._waiting[0])
        except KetchError as error:
            self._fail_all(error)
        except Exception as error:
            log.exception("appending to %s", self._keys.stream.decode(errors="replace"))
            self._fail_all(error)
        finally:
            self._preparing = None
        self._pump()

    async def _get_ready(self) -> None:
        """Nothing is in flight: from draining to contended, from cold (or contended long ago) to fast."""
        refused, self._refused = self._refused, []
        self._waiting.extendleft(reversed(refused))
        if self._mode is not _Mode.CONTENDED:
            self._producers.clear()
        if self._mode is _Mode.DRAINING:
            await self._link.ask(appends.clear_fence(self._keys))
        if (refused or self._mode is _Mode.MOVED) and not (self._waiting and self._waiting[0].wide):
            await self._check_alive()
            self._mode, self._contended_until = _Mode.CONTENDED, time.monotonic() + _CONTENDED_S
            return
        self._watcher.watch_writes(self._keys.stream)
        self._last = await self._link.ask(appends.last_id(self._keys))
        if self._mode is not _Mode.CONTENDED:
            await self._check_alive()  # after the look at the stream, so that the stream was this topic's
        self._mode = _Mode.FAST

    async def _check_alive(self) -> None:
        self._exists = False
        if not await self._alive():
            raise UnknownTopicOrPartition("the topic was deleted")

    async def _learn_producer(self, entry: _Append | _Ending) -> None:
        if isinstance(entry, _Ending) or entry.producer is None or not self._unknown(entry):
            return
        entry.asked = True
        pid, opened = entry.producer.id, False
        stored = await self._link.ask(producers.load(self._keys.producers, pid))
        if entry.producer.transactional:
            opened = await self._link.ask(markers.is_open(self._transaction_keys.transactions, pid))
        self._producers[pid] = ProducerState.of(stored, self._numbering, opened)
        self._forget_oldest_producer()

    def _forget_oldest_producer(self) -> None:
        """Redis has them all; here are those of late. One with a batch in flight is not let go."""
        if len(self._producers) > _MAX_PRODUCERS:
            oldest = next(iter(self._producers))
            if all(isinstance(b.offset, int) or b.offset.done() for b in self._producers[oldest].batches):
                del self._producers[oldest]

    def _fail_all(self, error: Exception) -> None:
        waiting, self._waiting = [*self._refused, *self._waiting], deque()
        self._refused = []
        for entry in waiting:
            entry.fail(error if isinstance(error, KetchError) else StorageUnavailable(str(error)))
        self._forget()

    def _forget(self) -> None:
        """The connection went: what is known may be wrong, so everything is read again."""
        self._mode = _Mode.COLD if self._inflight == 0 else _Mode.DRAINING
        self._producers.clear()


def _follow(future: asyncio.Future[int], earlier: int | asyncio.Future[int]) -> None:
    if isinstance(earlier, int):
        future.set_result(earlier)
        return

    def done(first: asyncio.Future[int]) -> None:
        error = first.exception()
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
            future.exception()
        else:
            future.set_result(first.result())

    earlier.add_done_callback(done)
