"""Appends batches to one partition: whole or not at all, on consecutive offsets, in the order they were given.

While nobody else writes to the stream, ids are chosen here and batches are pipelined without waiting (`scripts.GUARD`
refuses them if the stream has moved). The first refusal, or a word from Redis that somebody else has written, drains
what is in flight, then everything is sent (again) in order with Redis choosing the ids (`scripts.APPEND`), for a
second: slower, but no other writer can starve it. A batch too wide for that gets ids ahead of the stream, farther with
each refusal; dense ones have no gaps, and must be lucky.
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

from ketch import metrics
from ketch.clock import now_ms
from ketch.errors import KetchError, OutOfOrderSequence, StorageUnavailable, UnknownTopicOrPartition
from ketch.log.producers import ProducerState, sequence_behind
from ketch.store import streams
from ketch.store.layout import Payload
from ketch.store.offsets import OffsetCodec
from ketch.store.pipe import pack, parse
from ketch.store.streams import Producer, Refusal
from ketch.store.watcher import Watcher

_CONTENDED_S = 1.0  # how long Redis goes on choosing ids after another writer was met
_MAX_ATTEMPTS = 30  # of one batch; only one with an entry too wide for Lua and dense ids ever comes near
_MAX_LEAD_MS = 1_000  # how far ahead of the stream a batch too wide for Lua may be put
_MAX_PRODUCERS = 1_000  # states held of one partition
_MAX_SCRIPT_ENTRIES = 50_000  # Redis 6.2 closes a connection that sends more than a million arguments

log = logging.getLogger(__name__)


class _Mode(enum.Enum):
    COLD = enum.auto()  # the stream's end is not known
    FAST = enum.auto()  # ids chosen here
    MOVED = enum.auto()  # somebody else has written: waits for what is in flight
    DRAINING = enum.auto()  # a batch was refused: waits for the fate of those behind it
    CONTENDED = enum.auto()  # ids chosen by Redis


@dataclass(slots=True, eq=False)
class _Append:
    batch: Payload
    producer: tuple[int, int, int] | None  # id, epoch, base sequence
    future: asyncio.Future[int]  # base offset
    attempts: int = 0
    wide: bool = False  # more fields than a Lua script can pass on
    told: bool = False  # Redis was asked for its producer's state

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # acks=0: nobody may ask


class Appender:
    """The write side of one partition.

    Args:
        watcher: appends go over its connection; it hears when the stream may be another than it was left.
        keys: stream, producers and fence key.
        floor: the partition's first offset; no record comes before it.
        landed: called with every batch stored, its base offset, and the last-generated-id that it landed behind, None
            where that is not known.
        alive: whether the topic still exists; asked when the stream is not known, or not as it had been left.
    """

    def __init__(
        self,
        watcher: Watcher,
        keys: tuple[bytes, bytes, bytes],
        codec: OffsetCodec,
        floor: int,
        landed: Callable[[Payload, int, streams.Id | None], None],
        alive: Callable[[], Awaitable[bool]],
    ) -> None:
        self._watcher, self._link = watcher, watcher.link
        self._keys, self._codec, self._floor = keys, codec, floor
        self._landed, self._alive = landed, alive
        self._mode = _Mode.COLD
        self._last = streams.ZERO
        self._contended_until = 0.0
        self._exists = False  # a batch has landed since the topic was last known to be there
        self._producers: dict[int, ProducerState] = {}
        self._waiting: deque[_Append] = deque()
        self._refused: list[_Append] = []
        self._inflight = 0
        self._closed = False
        self._preparing: asyncio.Task[None] | None = None

    def close(self) -> None:
        """The topic is being deleted: nothing more is written."""
        self._closed = True
        self._watcher.unmind(self._keys[0])
        self._fail_all(UnknownTopicOrPartition("the topic was deleted"))

    def append(self, batch: Payload, producer: tuple[int, int, int] | None = None) -> asyncio.Future[int]:
        """Stores a batch; the future gets the offset of its first record once Redis has it.

        Args:
            producer: (id, epoch, base sequence) of an idempotent producer.

        The future fails with InvalidRecord, InvalidProducerEpoch, OutOfOrderSequence or StorageUnavailable; nothing of
        the batch is stored then, save that a connection lost at that very moment leaves it open.
        """
        entry = _Append(batch, producer, asyncio.get_running_loop().create_future())
        entry.wide = batch.entries > _MAX_SCRIPT_ENTRIES
        if self._closed:
            entry.fail(UnknownTopicOrPartition("the topic was deleted"))
            return entry.future
        self._waiting.append(entry)
        self._pump()
        return entry.future

    # -- sending

    def _pump(self) -> None:
        while (self._waiting or self._refused) and self._preparing is None:
            if self._refused or not self._open_for(self._waiting[0]):
                if self._inflight == 0:
                    self._prepare()
                return
            if self._unknown(self._waiting[0]):
                self._prepare()
                return
            self._submit(self._waiting.popleft())

    def _open_for(self, entry: _Append) -> bool:
        if self._mode is _Mode.CONTENDED:
            return not entry.wide and time.monotonic() < self._contended_until
        # One that is wide would wait for ever while others write all the time; it has a guard that misses nothing.
        if self._mode is _Mode.FAST and not entry.wide and self._watcher.moved(self._keys[0]):
            self._mode = _Mode.MOVED
        return self._mode is _Mode.FAST

    def _unknown(self, entry: _Append) -> bool:
        return entry.producer is not None and entry.producer[0] not in self._producers

    def _submit(self, entry: _Append) -> None:
        try:
            producer = self._admit(entry)
            if producer is not None or entry.producer is None:  # else a duplicate, which follows the earlier batch
                self._send(entry, producer)
        except StorageUnavailable as error:
            entry.fail(error)
            self._forget()
        except OutOfOrderSequence as error:
            if entry.told:
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
        pid, epoch, first = entry.producer
        state = self._producers[pid]
        duplicate = state.check(epoch, first, entry.batch.count)
        if duplicate is not None:
            _follow(entry.future, duplicate.offset)
            return None
        head = state.head
        ahead = ProducerState(epoch, sequence_behind(first, entry.batch.count - 1))
        return Producer(pid, head, ahead.head, f"{first}:{ahead.last_sequence}:", now_ms())

    def _send(self, entry: _Append, producer: Producer | None) -> None:
        if self._mode is _Mode.FAST:
            base, behind = self._place(entry)
            where = self._keys, self._codec
            single = None
            if entry.batch.entries == 1 and behind is not None:
                single = streams.encode_single(*where, behind, base, entry.batch, producer)
            if single is not None:
                reply, read = self._link.pipe.send(single), streams.read_single
            else:
                commands = streams.encode_transaction(*where, behind, base, entry.batch, producer)
                reply, read = self._link.pipe.send(*commands), streams.read_transaction
            reply.add_done_callback(partial(self._landed_at, entry, base, behind, read))
            self._last = self._codec.to_id(base + entry.batch.count - 1)
        else:
            floor = self._now_offset()
            payload = streams.encode_append(self._keys, self._codec, floor, entry.batch, producer, self._exists)
            reply = self._link.pipe.send(payload)
            reply.add_done_callback(partial(self._appended, entry))
        self._inflight += 1
        if entry.producer is not None and producer is not None:
            pid, epoch, first = entry.producer
            state = self._producers.pop(pid)
            state.advance(epoch, first, entry.batch.count, entry.future)
            self._producers[pid] = state  # the latest comes last

    def _place(self, entry: _Append) -> tuple[int, streams.Id | None]:
        """The base offset, and the last-generated-id that it is chosen behind, None for any below."""
        base = max(self._now_offset(), self._codec.to_offset(*self._last) + 1)
        if entry.wide and entry.attempts and self._last != streams.ZERO and not self._codec.dense:
            return base + (min(1 << entry.attempts, _MAX_LEAD_MS) << self._codec.bits), None
        return base, self._last

    def _now_offset(self) -> int:
        if self._codec.dense:
            return 0
        return max(now_ms() << self._codec.bits, self._floor)

    # -- answers

    def _landed_at(
        self,
        entry: _Append,
        base: int,
        behind: streams.Id | None,
        read: Callable[[bytes], bool],
        reply: asyncio.Future[bytes],
    ) -> None:
        try:
            if read(reply.result()):
                self._stored(entry, base, behind)
            else:
                self._refuse(entry)
        except KetchError as error:
            self._failed(entry, error)
        self._answered()

    def _appended(self, entry: _Append, reply: asyncio.Future[bytes]) -> None:
        try:
            base = streams.read_append(reply.result(), self._codec)
            if isinstance(base, int):
                self._stored(entry, base, None)
            else:
                entry.wide = base is Refusal.WIDE
                self._refuse(entry)
        except KetchError as error:
            self._failed(entry, error)
        self._answered()

    def _stored(self, entry: _Append, base: int, behind: streams.Id | None) -> None:
        if not entry.future.done():
            entry.future.set_result(base)
        self._exists = True
        self._landed(entry.batch, base, behind)

    def _refuse(self, entry: _Append) -> None:
        self._mode = _Mode.DRAINING
        self._watcher.changed(self._keys[0])
        entry.attempts += 1
        metrics.appends_refused.inc()
        log.debug("%s: another writer came in between", self._keys[0].decode())
        if entry.attempts < _MAX_ATTEMPTS:
            self._refused.append(entry)
        else:
            entry.fail(StorageUnavailable("other writers kept this batch out"))

    def _failed(self, entry: _Append, error: KetchError) -> None:
        entry.fail(error if isinstance(error, StorageUnavailable) else StorageUnavailable(str(error)))
        self._watcher.changed(self._keys[0])
        self._mode = _Mode.DRAINING  # what was pipelined behind it expects an end that will not come

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
                await self._settle()
            if self._waiting:
                await self._learn_producer(self._waiting[0])
        except KetchError as error:
            self._fail_all(error)
        except Exception as error:
            log.exception("appending to %s", self._keys[0].decode(errors="replace"))
            self._fail_all(error)
        finally:
            self._preparing = None
        self._pump()

    async def _settle(self) -> None:
        """Nothing is in flight: from draining to contended, from cold (or contended long ago) to fast."""
        refused, self._refused = self._refused, []
        self._waiting.extendleft(reversed(refused))
        if self._mode is not _Mode.CONTENDED:
            self._producers.clear()
        if self._mode is _Mode.DRAINING:
            await self._link.pipe.call("DEL", self._keys[2])
        if (refused or self._mode is _Mode.MOVED) and not (self._waiting and self._waiting[0].wide):
            await self._check_alive()
            self._mode, self._contended_until = _Mode.CONTENDED, time.monotonic() + _CONTENDED_S
            return
        self._watcher.mind(self._keys[0])
        reply = await self._link.pipe.send(streams.info_command(self._keys[0]))
        self._last = streams.parse_info(parse(reply)).last
        if self._mode is not _Mode.CONTENDED:
            await self._check_alive()  # behind the look at the stream, so that it was this topic's
        self._mode = _Mode.FAST

    async def _check_alive(self) -> None:
        self._exists = False
        if not await self._alive():
            raise UnknownTopicOrPartition("the topic was deleted")

    async def _learn_producer(self, entry: _Append) -> None:
        if entry.producer is None or not self._unknown(entry):
            return
        entry.told = True
        pid = entry.producer[0]
        reply = await self._link.pipe.send(pack("HGET", self._keys[1], pid))
        self._producers[pid] = ProducerState.parse(parse(reply), self._codec)
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
