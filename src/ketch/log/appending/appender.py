"""The write side of one partition: appends batches whole or not at all, on consecutive offsets, in the order given.

The shell around `log.appending.state`, which decides what is sent next and how: this file turns its decisions into
commands (`store.append`), posts them, and tells it of the replies. It owns the partition's `AppendState`, and the task
that asks Redis what a preparation needs. The ways to append are `store.append.appends`'s. It may not choose ids or
modes. Who reads the partition hears of an append by way of the state; the batch itself is kept in `log.recent`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from ketch import metrics
from ketch.clock import now_ms
from ketch.errors import InvalidRecord, KetchError, RightMissing, StorageUnavailable, UnknownTopicOrPartition
from ketch.log.appending.producers import ProducerState, Sequenced
from ketch.log.appending.state import Append, AppendState, Ending, Mode, Preparation
from ketch.log.recent import Newest
from ketch.records.control import Marker
from ketch.redis.driver import Reply, received
from ketch.redis.question import Command, Question
from ketch.store.append import appends, markers, producers
from ketch.store.append.appends import Landed, Refusal
from ketch.store.layouts.layout import Payload
from ketch.store.offsets import EntryId
from ketch.store.stream.ranges import EntrySizes
from ketch.store.xinfo import StreamInfo

T = TypeVar("T")

log = logging.getLogger(__name__)


class Writes(Protocol):
    """The connection of appends.

    Attributes:
        module: the version of the append module that the server behind it has; 0 for none.
        post: see `Pipe.post`. Replies come in the order of the commands.
        ask: the answer to a question.
    """

    module: int

    @property
    def post(self) -> Callable[[Command, Callable[[Reply], None]], None]: ...

    @property
    def ask(self) -> Callable[[Question[Any]], Awaitable[Any]]: ...

    def watch(self, state: AppendState) -> None:
        """Has writes of others to this stream reported to its state; to be called before it is read."""


class Appender:
    """The write side of one partition.

    Args:
        newest: keeps what was appended for who reads it.
        sizes: hears how large entries are.
        alive: whether the topic still exists; asked when the stream is not known, or not as it had been left.
    """

    __slots__ = ("_alive", "_newest", "_preparing", "_sizes", "_state", "_writes")

    def __init__(
        self,
        state: AppendState,
        writes: Writes,
        newest: Newest,
        sizes: EntrySizes,
        alive: Callable[[], Awaitable[bool]],
    ) -> None:
        self._state, self._writes, self._newest, self._sizes = state, writes, newest, sizes
        self._alive = alive
        self._preparing: asyncio.Task[None] | None = None

    def append(self, batch: Payload, producer: Sequenced | None = None, now: int = 0) -> asyncio.Future[int]:
        """Stores a batch; the future gets the offset of its first record once Redis has it.

        The future fails with InvalidRecord, InvalidProducerEpoch, OutOfOrderSequence, NotInTransaction,
        InvalidTransactionState or StorageUnavailable; nothing of the batch is stored then, save that a connection lost
        at that very moment leaves it open.

        Args:
            now: ms, where the caller has just asked the clock.
        """
        entry = Append(batch, producer, asyncio.get_running_loop().create_future())
        if appends.too_long(batch):
            entry.wide = appends.operands(batch, self._writes.module) is None
        self._state.add(entry)
        self._pump(now or now_ms())
        return entry.future

    def end_transaction(self, marker: Marker) -> asyncio.Future[bool]:
        """Appends a marker, after what was given before; the future gets False where no such transaction was open.

        It fails with InvalidProducerEpoch, UnknownTopicOrPartition or StorageUnavailable.
        """
        ending = Ending(marker, asyncio.get_running_loop().create_future())
        self._state.add(ending)
        self._pump(now_ms())
        return ending.future

    def in_transaction(self, producer: int, epoch: int) -> bool:
        """Whether this producer's transaction is known to be open; another broker may have ended it since."""
        state = self._state.producers.get(producer)
        return state is not None and state.in_transaction and state.epoch == epoch

    def close(self) -> None:
        """The topic is being deleted: nothing more is written."""
        self._state.close()

    def resume(self, entry: Append, reply: Reply) -> None:
        """Takes the reply to a batch that the lane has sent. It is the first of those that fly, and Python's now."""
        self._state.flying[0] = entry
        self._replied(reply)

    def pump(self) -> None:
        """Nothing flies any more: what waits for that is sent."""
        self._pump(now_ms())

    # -- sending

    def _pump(self, now: int) -> None:
        """Sends what can be sent, ms."""
        state = self._state
        while state.waiting or state.repeated:
            entry = state.next(now, 0.0 if state.mode is Mode.OURS else time.monotonic())
            if isinstance(entry, Append):
                self._send(entry)
            elif isinstance(entry, Ending):
                self._end(entry, now)
            else:
                if entry is not None:
                    self._preparing = asyncio.get_running_loop().create_task(self._prepare(entry))
                return

    def _send(self, entry: Append) -> None:
        state, batch = self._state, entry.batch
        by_module = 0 if entry.wide else self._writes.module
        keys, numbering = state.keys, state.numbering
        try:
            if state.mode is Mode.OURS:
                expected, moved = entry.expected, entry.moved
                append = appends.chosen_here(keys, numbering, expected, entry.base, batch, moved, by_module)
            else:
                exists = state.exists
                append = appends.chosen_by_redis(keys, numbering, entry.base, batch, entry.moved, by_module, exists)
            entry.read = append.read
            self._writes.post(append.command, self._replied)
        except BaseException as error:
            state.unsent(error)
            if not isinstance(error, KetchError):
                raise

    def _end(self, ending: Ending, now: int) -> None:
        state, ending.sent = self._state, now
        keys, layout, numbering = state.transaction_keys, state.layout, state.numbering
        end = markers.end(keys, layout, numbering, state.least(now), ending.marker, now)
        ending.read = end.read
        try:
            self._writes.post(end.command, self._end_replied)
        except StorageUnavailable as error:
            state.unsent(error)

    # -- answers

    def _replied(self, reply: Reply) -> None:
        state = self._state
        entry = state.flying.pop(0)
        assert isinstance(entry, Append)
        try:
            outcome = entry.read(received(reply))
            if isinstance(outcome, Landed):
                self._landed(entry, outcome.base, outcome.follows)
            else:
                metrics.appends_refused.inc()
                log.debug("%s: another writer came in between", state.keys.stream.decode())
                state.refused(entry, outcome is Refusal.WIDE)
        except KetchError as error:
            own = isinstance(error, StorageUnavailable | InvalidRecord | RightMissing)
            state.failed(entry, error if own else StorageUnavailable(str(error)))
        if not state.flying and (state.waiting or state.repeated):
            self._pump(now_ms())

    def _landed(self, entry: Append, base: int, as_expected: bool) -> None:
        batch = entry.batch
        info = self._state.landed(entry, base, as_expected)
        self._sizes.learn_size(batch.size / batch.entries)
        if info is not None:
            self._newest.put(self._state.keys.stream, info.lineage, (entry.begin, base, batch))

    def _end_replied(self, reply: Reply) -> None:
        state = self._state
        ending = state.flying.pop(0)
        assert isinstance(ending, Ending)
        try:
            ended = ending.read(received(reply))
            info = state.ended(ending, ended)
            if ended is not None:
                self._keep_marker(ending, ended, info)
        except Exception as error:
            state.ending_failed(ending, error)
        self._pump(now_ms())

    def _keep_marker(self, ending: Ending, ended: markers.Ended, info: StreamInfo | None) -> None:
        if info is not None:
            state, to_offset = self._state, self._state.numbering.to_offset
            batch = state.layout.marker_batch(ending.marker, ending.sent)
            behind = to_offset(*ended.follows) + 1
            self._newest.put(state.keys.stream, info.lineage, (behind, to_offset(*ended.id), batch))

    # -- getting ready

    async def _prepare(self, what: Preparation) -> None:
        """Learns what the next batch in line needs to know, or fails everything in line if Redis can't say."""
        state = self._state
        try:
            if what.stream:
                await self._get_ready(what)
            if what.learn is not None:
                await self._learn_producer(what.learn)
        except KetchError as error:
            state.give_up(error)
        except Exception as error:
            log.exception("appending to %s", state.keys.stream.decode(errors="replace"))
            state.give_up(error)
        finally:
            self._preparing = None
            state.preparing = False
        self._pump(now_ms())

    async def _get_ready(self, what: Preparation) -> None:
        state, ask = self._state, self._writes.ask
        last: EntryId | None = None
        if what.clear_fence:
            await ask(appends.clear_fence(state.keys))
        if what.read_end:
            self._writes.watch(state)
            last = await ask(appends.last_id(state.keys))
        if what.check_topic:
            state.exists = False
            if not await self._alive():
                raise UnknownTopicOrPartition("the topic was deleted")
        state.ready(last, time.monotonic())

    async def _learn_producer(self, entry: Append) -> None:
        state, ask, producer = self._state, self._writes.ask, entry.producer
        assert producer is not None
        entry.asked = True
        opened = False
        stored = await ask(producers.load(state.keys.producers, producer.id))
        if producer.transactional:
            opened = await ask(markers.is_open(state.transaction_keys.transactions, producer.id))
        state.learned(producer.id, ProducerState.of(stored, state.numbering, opened))
