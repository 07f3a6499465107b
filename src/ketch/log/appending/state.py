"""One partition's stream as appends need it, in one flat object, and every decision about what is appended next.

No I/O, no event loop and no clock: a caller brings the time and what has happened, and gets what is to be sent. So
`log.appending.appender`, the shell around it, is all that would have to change for another way to send.

Who may write what: the appender alone calls what is below "deciding" and below "what happened". `log.states`, which
hears of other clients' writes, voids what is known (`void`, `foreign_write`, `transactions_written`); it and
`log.watcher` fill in what Redis has answered (`info`, `transactions`). This file may touch neither Redis nor a topic.

Theory of operation. Batches and markers stand in one queue, `waiting`. What was sent and not answered is in `flying`,
in the order of the answers. A mode says how the next batch gets its ids:

========== ====================================================== ===================================================
mode       the next batch                                         because
========== ====================================================== ===================================================
COLD       waits for a preparation                                the stream's end is not known
OURS       is sent at once, its ids chosen here to follow `last`  nobody else writes to the stream
MOVED      waits until nothing flies, then for a preparation      another client has written, nothing was refused
DRAINING   the same                                               a batch failed: those behind it follow ids that will
                                                                  not come
CONTENDED  is sent at once, its ids chosen by Redis               another client has written of late
========== ====================================================== ===================================================

(mode, event) -> next mode, and what is sent:

=================== ============================================== =============== ====================================
mode                event                                          next            what is sent
=================== ============================================== =============== ====================================
any                 lost: the connection went with the sending     COLD, or        nothing
                                                                   DRAINING if
                                                                   something flies
any                 refused: the stream had moved                  DRAINING        nothing; it is repeated first
any                 failed: any other error, a lost connection     DRAINING        nothing; who gave the batch is told
any but CONTENDED   a gap in a producer's sequences                COLD            Redis is asked for its state, once
OURS                a batch                                        OURS            it, ids chosen here
OURS                another client wrote, before a batch           MOVED           nothing
OURS, CONTENDED     nothing is to be relied on (`void_all`): pushes MOVED           nothing
                    were lost, or another node is the master
OURS                landed elsewhere: the append module had to     MOVED           nothing
                    take other ids
CONTENDED           a batch, within `_CONTENDED_S`                 CONTENDED       it, ids chosen by Redis
COLD                nothing flies                                  OURS            a look at the stream's end
MOVED               nothing flies                                  CONTENDED       -
DRAINING            nothing flies, batches to repeat               CONTENDED       the fence is cleared
DRAINING            nothing flies, none to repeat                  OURS            the same, and a look at the end
CONTENDED           the time is up, nothing flies                  OURS            a look at the stream's end
=================== ============================================== =============== ====================================

- A batch with more fields than Lua takes is `wide`. Only ids chosen here serve it. It goes by another client's write,
  since its guard misses none, and from MOVED, DRAINING and CONTENDED its preparation leads to OURS. With each refusal
  its ids lie farther ahead of the stream, until none has come in between. Dense ids leave no gaps: there it is only
  repeated.
- A marker's id is chosen by Redis in every mode. Nothing follows it before its id is known, so that it is no foreign
  write and ids go on being chosen here.
- A preparation (`Preparation`) also asks Redis for the state of a producer that is not known, in any mode.
- Outside of CONTENDED a preparation forgets the producers: other brokers may have written for them.
- A node that took over may lack what the old master had answered, and so what is known of producers: a retry would
  count as stored. `void_all` leads to a preparation that forgets them, in CONTENDED, too. What a preparation has
  learned meanwhile may be the old master's answer, so another one follows (`doubted`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from ketch.errors import (
    KetchError,
    OutOfOrderSequence,
    RedisError,
    StorageUnavailable,
    UnknownTopicOrPartition,
)
from ketch.log.appending.producers import ProducerState, Sequenced, sequence_behind
from ketch.records.control import Marker
from ketch.redis.question import Command
from ketch.store.append import producers
from ketch.store.append.appends import Landed, Refusal
from ketch.store.append.markers import Ended
from ketch.store.layouts.layout import Layout, Payload
from ketch.store.offsets import ZERO, EntryId, OffsetNumbering
from ketch.store.scripts import AppendKeys, Producer, TransactionKeys
from ketch.store.stream.isolation import Transactions
from ketch.store.xinfo import StreamInfo

if TYPE_CHECKING:
    from asyncio import Future

_CONTENDED_S = 1.0  # how long Redis goes on choosing ids after another writer was met
_MAX_ATTEMPTS = 30  # of one batch; only one with an entry too wide for Lua and dense ids ever comes near
_MAX_LEAD_MS = 1_000  # how far ahead of the stream a batch too wide for Lua may be put
_MAX_PRODUCERS = 1_000  # states held of one partition


class Mode(enum.Enum):
    """See the table above."""

    COLD = enum.auto()
    OURS = enum.auto()
    MOVED = enum.auto()
    DRAINING = enum.auto()
    CONTENDED = enum.auto()


class Append:
    """A batch in the queue or on its way.

    Attributes:
        future: gets its base offset.
        attempts: how often it was refused.
        wide: it has more fields than one command can pass on.
        asked: Redis was asked for its producer's state.
        moved: its producer's next state, for the scripts; None without a producer.
        base: the offset that was chosen for it; in CONTENDED the least that Redis may choose.
        last: the id of its last record, if it lands at `base`.
        begin: the offset after the record before it, when it was sent.
        expected: last-generated-id that its ids follow; None for any below them.
        read: what reads the reply to it, see `appends.Append`.
    """

    __slots__ = (
        "asked", "attempts", "base", "batch", "begin", "expected", "future", "last", "moved", "producer", "read",
        "wide",
    )  # fmt: skip

    base: int
    begin: int
    last: EntryId
    expected: EntryId | None
    read: Callable[[bytes], Landed | Refusal]

    def __init__(self, batch: Payload, producer: Sequenced | None, future: Future[int], wide: bool = False) -> None:
        self.batch, self.producer, self.future, self.wide = batch, producer, future, wide
        self.attempts = 0
        self.asked = False
        self.moved: Producer | None = None

    def fail(self, error: Exception) -> None:
        _fail(self.future, error)


@dataclass(slots=True, eq=False)
class Ending:
    """A marker in the queue or on its way.

    Attributes:
        future: gets whether there was a transaction to end.
        sent: ms, when it was.
        read: what reads the reply to it, see `markers.End`.
    """

    marker: Marker
    future: Future[bool]
    sent: int = 0
    read: Callable[[bytes], Ended | None] = field(init=False, repr=False)
    wide: ClassVar[bool] = False
    producer: ClassVar[None] = None

    def fail(self, error: Exception) -> None:
        _fail(self.future, error)


class Preparation(NamedTuple):
    """What has to be asked before anything more is sent, in this order.

    Attributes:
        clear_fence: batches that were refused have left a fence.
        read_end: the stream's last-generated-id is not known. Whoever reads it has writes of others reported first.
        check_topic: whether the topic still exists. After the look at the stream, so that the stream was this topic's.
        learn: a batch whose producer is not known.
        stream: whether the first three lead to another mode (`AppendState.ready`).
    """

    clear_fence: bool
    read_end: bool
    check_topic: bool
    learn: Append | None
    stream: bool


class Listener(Protocol):
    """Somebody who waits for news of some streams.

    Attributes:
        committed: it waits for committed records alone.
    """

    committed: bool

    def fire(self, stream: bytes) -> None:
        """This one has some."""


@dataclass(slots=True, eq=False)
class AppendState:
    """One partition's stream. The table above is about its mode.

    Args:
        floor: the partition's first offset; no record comes before it.
        info_command: what asks for `info`.
    """

    # Fixed when the topic was made.
    keys: AppendKeys
    transaction_keys: TransactionKeys
    layout: Layout
    numbering: OffsetNumbering
    floor: int
    info_command: Command

    # How the next batch gets its ids.
    mode: Mode = Mode.COLD
    contended_until: float = 0.0  # seconds of the monotonic clock
    last: EntryId = ZERO  # in OURS: last-generated-id once all that flies has landed
    others_wrote: bool = False  # since `last` was read
    doubted: bool = False  # since the producers were forgotten, what was known became unreliable
    exists: bool = False  # a batch has landed since the topic was last known to be there
    closed: bool = False  # the topic is being deleted

    # What is known of the stream; None where it must be asked for. `since`: when Redis said so, monotonic seconds.
    info: StreamInfo | None = None
    info_since: float = 0.0
    info_asked: Future[StreamInfo] | None = None  # the question on its way
    transactions: Transactions | None = None
    transactions_since: float = 0.0
    transactions_asked: Future[Transactions] | None = None
    producers: dict[int, ProducerState] = field(default_factory=dict)  # by id, the latest last; what flies counts

    # Batches and markers. These are short lists: of an idle partition an empty deque would be a third of its memory.
    waiting: list[Append | Ending] = field(default_factory=list)  # not sent
    flying: list[Append | Ending] = field(default_factory=list)  # sent; replies come in this order
    repeated: list[Append] = field(default_factory=list)  # refused: they go first once nothing flies
    ending: Ending | None = None  # the marker that flies: what follows it has to know its id
    preparing: bool = False  # a preparation is under way

    listeners: set[Listener] | None = None  # who waits for news of the stream; None for nobody

    # -- deciding

    def add(self, entry: Append | Ending) -> None:
        """Takes it into the queue, or fails it where the topic is being deleted."""
        if self.closed:
            entry.fail(UnknownTopicOrPartition("the topic was deleted"))
        else:
            self.waiting.append(entry)

    def next(self, now: int, clock: float) -> Append | Ending | Preparation | None:
        """What is to be sent or asked now. It counts as sent; None where nothing can be.

        Duplicates, and batches that their producer may not send, are answered on the way.

        Args:
            now: ms.
            clock: seconds of the monotonic clock; in OURS it does not matter.
        """
        waiting = self.waiting
        while (waiting or self.repeated) and not self.preparing and self.ending is None:
            if self.repeated or not self._open_for(waiting[0], clock):
                return None if self.flying else self._prepare(stream=True)
            entry = waiting[0]
            producer = entry.producer
            if producer is not None and producer.id not in self.producers:
                return self._prepare(stream=False)
            del waiting[0]
            if isinstance(entry, Ending):
                self.ending = entry
            elif producer is None or self._admit(entry, producer, now):
                self._place(entry, now)
            else:
                continue
            self.flying.append(entry)
            return entry
        return None

    def least(self, now: int) -> int:
        """The least offset of what Redis chooses ids for at this time, ms."""
        return 0 if self.numbering.dense else max(now << self.numbering.bits, self.floor)

    def _open_for(self, entry: Append | Ending, clock: float) -> bool:
        if self.mode is Mode.OURS:
            # One that is wide would wait for ever while others write all the time; its guard misses none of them.
            if not self.others_wrote or entry.wide:
                return True
            self.mode = Mode.MOVED
        return self.mode is Mode.CONTENDED and not entry.wide and clock < self.contended_until

    def _prepare(self, stream: bool) -> Preparation:
        """Args: stream: nothing flies, and the next batch cannot be sent in this mode."""
        self.preparing = True
        mode, repeated = self.mode, self.repeated
        contended = False
        if stream:
            self.waiting[:0] = repeated
            self.repeated = []
            if mode is not Mode.CONTENDED:
                self.producers.clear()
                self.doubted = False
            contended = (bool(repeated) or mode is Mode.MOVED) and not self.waiting[0].wide
        head = self.waiting[0]
        unknown = isinstance(head, Append) and head.producer is not None and head.producer.id not in self.producers
        return Preparation(
            clear_fence=stream and mode is Mode.DRAINING,
            read_end=stream and not contended,
            check_topic=stream and (contended or mode is not Mode.CONTENDED),
            learn=head if unknown and isinstance(head, Append) else None,
            stream=stream,
        )

    def _admit(self, entry: Append, producer: Sequenced, now: int) -> bool:
        """Whether the batch is the next one of its producer, which has moved on then."""
        pid, epoch, first, transactional, started = producer
        state, count = self.producers[pid], entry.batch.count
        try:
            duplicate = state.check(epoch, first, count)
            if duplicate is not None:
                _follow(entry.future, duplicate.offset)
                return False
            state.check_transaction(producer)
        except OutOfOrderSequence as error:
            if entry.asked:
                entry.fail(error)
            else:  # what is missing may have gone through another broker: Redis knows
                self.waiting.insert(0, entry)
                self.mode = Mode.COLD
            return False
        except KetchError as error:
            entry.fail(error)
            return False
        opened = self.transaction_keys.transactions if transactional else None
        last = sequence_behind(first, count - 1)
        entry.moved = producers.moved(pid, state.head, epoch, first, last, now, opened, started)
        state.advance(epoch, first, count, entry.future, transactional)
        del self.producers[pid]
        self.producers[pid] = state  # the latest comes last
        return True

    def _place(self, entry: Append, now: int) -> None:
        """Chooses the batch's ids, or in CONTENDED the least that they may be."""
        numbering = self.numbering
        bits, dense = numbering.bits, numbering.dense
        base = 0 if dense else max(now << bits, self.floor)
        entry.expected = None
        if self.mode is Mode.OURS:
            ms, seq = entry.expected = self.last
            entry.begin = (ms << bits) + seq - dense + 1
            base = max(base, entry.begin)
            if entry.wide and entry.attempts and self.last != ZERO and not dense:
                base += min(1 << entry.attempts, _MAX_LEAD_MS) << bits
                entry.expected = None
            last = base + entry.batch.count - 1 + dense
            self.last = entry.last = last >> bits, last & ((1 << bits) - 1)
        entry.base = base

    # -- what happened

    def unsent(self, error: BaseException) -> None:
        """What `next` gave last could not be sent: the connection is gone, its ids are beyond any offset, or it is
        malformed."""
        entry = self.flying.pop()
        entry.fail(error if isinstance(error, KetchError) else StorageUnavailable(str(error)))
        if isinstance(entry, Ending):
            self.ending = None
        if isinstance(error, StorageUnavailable | RedisError):
            self._forget()
        elif isinstance(entry, Append):
            self._take_back(entry)

    def landed(self, entry: Append, base: int, as_expected: bool) -> StreamInfo | None:
        """A batch is stored at offset `base`; what is known of the stream now, if anything is.

        Args:
            as_expected: it follows what it was sent to follow.
        """
        if not entry.future.done():
            entry.future.set_result(base)
        self.exists = True
        expected = entry.expected if as_expected else None
        producer = entry.producer
        if producer is not None and producer.transactional:
            self._begun(producer.id, None if expected is None else base)
        if expected is not None:
            return self._continue(expected, entry.last, entry.batch.entries)
        if self.mode is Mode.OURS and not entry.wide:
            self.mode = Mode.MOVED
        self.void()
        return None

    def refused(self, entry: Append, wide: bool) -> None:
        """Nothing of a batch was stored: the stream, or its producer, is not what was thought.

        Args:
            wide: it has more fields than this way takes.
        """
        self.mode = Mode.DRAINING
        self.void()
        entry.wide = entry.wide or wide
        entry.attempts += 1
        if entry.attempts < _MAX_ATTEMPTS:
            self.repeated.append(entry)
        else:
            entry.fail(StorageUnavailable("other writers kept this batch out"))

    def failed(self, entry: Append, error: Exception) -> None:
        """Redis has answered with an error, or the connection was lost: nobody knows then whether it is stored."""
        entry.fail(error)
        self.void()
        self.mode = Mode.DRAINING  # what was sent after it follows an id that will not come

    def ended(self, ending: Ending, ended: Ended | None) -> StreamInfo | None:
        """A marker is written, or not: None where there was no such transaction. As `landed`."""
        self.ending = None
        info, marker = None, ending.marker
        producer = self.producers.get(marker.producer)
        if producer is not None:
            producer.end_transaction(marker.epoch)
        if ended is not None:
            self.last = max(self.last, ended.id)
            known = self.transactions
            self.transactions = known.ended(marker.producer) if known is not None and marker.commit else None
            info = self._continue(ended.follows, ended.id, 1, marker=True)
        if not ending.future.done():
            ending.future.set_result(ended is not None)
        return info

    def ending_failed(self, ending: Ending, error: Exception) -> None:
        """A marker is not written; after a lost connection nobody knows."""
        self.ending = None
        ending.fail(error)
        if isinstance(error, StorageUnavailable):
            self.void()
            self.mode = Mode.DRAINING

    def ready(self, last: EntryId | None, clock: float) -> None:
        """A preparation has found out what the next mode needs.

        Args:
            last: the stream's last-generated-id, where the preparation was to read it.
            clock: seconds of the monotonic clock.
        """
        if self.doubted:
            self.mode = Mode.MOVED
        elif last is None:
            self.mode, self.contended_until = Mode.CONTENDED, clock + _CONTENDED_S
        else:
            self.mode, self.last = Mode.OURS, last

    def learned(self, pid: int, state: ProducerState) -> None:
        """A producer's state, as Redis has it."""
        self.producers[pid] = state
        # Redis has them all; here are those of late. One with a batch in flight is not let go.
        if len(self.producers) > _MAX_PRODUCERS:
            oldest = next(iter(self.producers))
            if all(isinstance(each.offset, int) or each.offset.done() for each in self.producers[oldest].batches):
                del self.producers[oldest]

    def give_up(self, error: Exception) -> None:
        """A preparation failed, and with it all that waits for it."""
        waiting, self.waiting, self.repeated = [*self.repeated, *self.waiting], [], []
        for entry in waiting:
            entry.fail(error if isinstance(error, KetchError) else StorageUnavailable(str(error)))
        self._forget()

    def close(self) -> None:
        """The topic is being deleted: nothing more is written, and who waits looks again."""
        self.closed = True
        self.give_up(UnknownTopicOrPartition("the topic was deleted"))
        self.void()

    def _forget(self) -> None:
        """The connection went: what is known may be wrong, so everything is read again."""
        self.mode = Mode.DRAINING if self.flying else Mode.COLD
        self.producers.clear()

    def _take_back(self, entry: Append) -> None:
        """As if it had never been sent. What its producer has sent is asked of Redis again, behind all that flies."""
        if entry.producer is not None:
            self.producers.pop(entry.producer.id, None)
        if self.mode is Mode.OURS:
            bits, dense = self.numbering.bits, self.numbering.dense
            last = entry.begin - 1 + dense
            self.last = entry.expected or (last >> bits, last & ((1 << bits) - 1))

    # -- what is known of the stream

    def watched(self) -> None:
        """Writes of others are reported from now on; `last` is read after this."""
        self.others_wrote = False

    def foreign_write(self) -> None:
        """Another client has written to the stream, or may have: the connection that would tell was lost."""
        self.others_wrote = True
        self.void()

    def transactions_written(self) -> None:
        """Another client has written to what lies beside the stream."""
        self.transactions = None
        self._tell()

    def void(self) -> None:
        """Something was written: what is known of the stream's ends is no longer true."""
        self.info = None
        self._tell()

    def void_all(self) -> None:
        """Nothing that is known is to be relied on."""
        self.transactions = None
        self.foreign_write()
        self.doubted = True
        if self.mode in (Mode.OURS, Mode.CONTENDED):
            self.mode = Mode.MOVED

    def _begun(self, producer: int, offset: int | None) -> None:
        """A batch of a transaction has landed.

        Args:
            offset: its first one; None where the script that appended it did not read the keys again.
        """
        known = self.transactions
        if known is not None and producer not in known.open:
            self.transactions = None if offset is None else known.begun(producer, offset)

    def _continue(self, follows: EntryId, last: EntryId, entries: int, marker: bool = False) -> StreamInfo | None:
        """Our own append has landed: what is known of the stream goes on with it.

        Args:
            follows: last-generated-id before it, as Redis has verified.
            last: the last entry's id.
            marker: it was one; the last stable offset may have moved while other transactions are open.
        """
        info = self.info
        if info is None or info.last != follows or info.first is None:
            self.void()
            return None
        self.info = info = info.appended(last, entries)
        if self.listeners:
            known = self.transactions
            self._tell(committed=marker or known is None or not known.open)
        return info

    def _tell(self, committed: bool = True) -> None:
        """Args: committed: whether there may be something for readers of committed records, too."""
        if not self.listeners:
            return
        kept = set() if committed else {each for each in self.listeners if each.committed}
        told, self.listeners = self.listeners - kept, kept or None
        for each in told:
            each.fire(self.keys.stream)


def _fail(future: Future[int] | Future[bool], error: Exception) -> None:
    if not future.done():
        # Its traceback names this batch and this future: neither would go before the next collection.
        future.set_exception(error.with_traceback(None))
        future.exception()  # acks=0: nobody may ask


def _follow(future: Future[int], earlier: int | Future[int]) -> None:
    if isinstance(earlier, int):
        future.set_result(earlier)
        return

    def done(first: Future[int]) -> None:
        if future.done() or first.cancelled():  # the latter where the process ends
            return
        error = first.exception()
        if error is not None:
            future.set_exception(error)
            future.exception()
        else:
            future.set_result(first.result())

    earlier.add_done_callback(done)
