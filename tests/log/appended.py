"""One partition's stream and the broker that appends to it, as a slow and obvious model: no server, no event loop.

`Redis` carries out one command at a time. `Wire` is the broker's side: an `AppendState`, what it has sent and not been
answered, and the replies and pushes on their way back, all in order. A test decides which of the two moves next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ketch.errors import InvalidRecord, KetchError, StorageUnavailable
from ketch.log.appending.producers import ProducerState, Sequenced
from ketch.log.appending.state import Append, AppendState, Ending, Mode, Preparation
from ketch.log.states import States
from ketch.records.control import Marker
from ketch.redis.question import command
from ketch.store.append.markers import Ended
from ketch.store.append.producers import StoredBatch, StoredProducer
from ketch.store.layouts.table import LAYOUTS
from ketch.store.offsets import ZERO, EntryId, OffsetNumbering
from ketch.store.scripts import AppendKeys, TransactionKeys
from ketch.store.stream.isolation import Transactions
from ketch.store.xinfo import StreamInfo

STREAM, FIRST = b"stream", 1_000 << 10
KEYS, BESIDE = AppendKeys(STREAM, b"producers", b"fence"), TransactionKeys(STREAM, b"producers", b"open", b"aborted")


@dataclass(eq=False)
class Batch:
    """What the state looks at of a payload."""

    name: str
    count: int
    malformed: bool = False

    @property
    def entries(self) -> int:
        return self.count


def new_state(dense: bool = False) -> AppendState:
    numbering = OffsetNumbering(10, dense)
    floor = 0 if dense else FIRST
    return AppendState(KEYS, BESIDE, LAYOUTS["record"], numbering, floor, command(STREAM, "XINFO", "STREAM", STREAM))


def append(name: str = "a", count: int = 1, producer: Sequenced | None = None, wide: bool = False) -> Append:
    """A batch to be put into the queue."""
    return Append(Batch(name, count), producer, Future(), wide)  # type: ignore[arg-type]


def ending(producer: int, epoch: int, commit: bool = True) -> Ending:
    return Ending(Marker(producer, epoch, commit, 0), Future())  # type: ignore[arg-type]


class Stored(NamedTuple):
    """Records in the stream."""

    base: int
    count: int
    name: str
    producer: Sequenced | None = None


class Seen(NamedTuple):
    """What Redis held when it wrote a reply or a push."""

    stored: int
    last: EntryId
    open: dict[int, int]


@dataclass
class Redis:
    """The server. With `module` a batch lands elsewhere where the stream has moved."""

    numbering: OffsetNumbering
    module: bool
    stored: list[Stored] = field(default_factory=list)
    last: EntryId = ZERO
    fence: bool = False
    states: dict[int, StoredProducer] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    tracked: set[bytes] = field(default_factory=set)  # keys whose next change by others is pushed

    @property
    def seen(self) -> Seen:
        return Seen(len(self.stored), self.last, dict(self.open))

    def info(self) -> StreamInfo:
        self.tracked.add(STREAM)
        first = self.numbering.to_id(self.stored[0].base) if self.stored else None
        return StreamInfo(sum(each.count for each in self.stored), self.last, first)

    def write(self, base: int, count: int, name: str, producer: Sequenced | None = None) -> int:
        """Entries at an offset, or behind all that are there."""
        base = max(base, self.numbering.to_offset(*self.last) + 1)
        self.stored.append(Stored(base, count, name, producer))
        self.last = self.numbering.to_id(base + count - 1)
        self.tracked.discard(STREAM)
        return base

    def foreign(self, base: int, name: str) -> list[bytes]:
        """A write of another client; the keys that are pushed."""
        pushed = [STREAM] if STREAM in self.tracked else []
        self.write(base, 1, name)
        return pushed

    def carry_out(self, sent: Sent) -> tuple[int, bool] | bool | KetchError:
        """Base offset and whether it is the expected one; or, for a refusal, whether that was for the width; or why
        it failed."""
        entry = sent.entry
        batch: Any = entry.batch
        if batch.malformed:
            self.fence = True
            return InvalidRecord("malformed")
        if sent.mode is not Mode.OURS and entry.wide and not self.module:
            return True
        expected = sent.expected
        moved = expected is not None and expected != self.last
        if expected is None and sent.mode is Mode.OURS:
            moved = self.numbering.to_id(sent.base) <= self.last
        by_module = self.module and not entry.wide
        ours = sent.mode is Mode.OURS
        if ((ours or by_module) and self.fence) or (ours and moved and not by_module) or not self._expects(sent):
            if ours or by_module:
                self.fence = True
                self.tracked.add(STREAM)
            return False
        base = self.write(sent.base, batch.count, batch.name, entry.producer)
        self._move_producer(sent, base)
        if ours:
            self.tracked.add(STREAM)
        return base, ours and not moved

    def end(self, marker: Marker, least: int) -> Ended | None:
        if marker.epoch > self.states.get(marker.producer, StoredProducer()).epoch:
            self.states[marker.producer] = StoredProducer(marker.epoch, -1)
        if marker.producer not in self.open:
            return None
        follows, first = self.last, self.open.pop(marker.producer)
        assert first >= 0
        self.write(least, 1, f"marker {marker.producer}")
        self.tracked |= {STREAM, BESIDE.transactions}
        return Ended(self.last, follows)

    def _expects(self, sent: Sent) -> bool:
        """Whether the producer is where the broker thinks, and so is its transaction."""
        moved = sent.moved
        if moved is None:
            return True
        known = self.states.get(int(moved.id), StoredProducer())
        return known.head == moved.expected and (
            moved.transactions is None or int(moved.id) in self.open or moved.started is not None
        )

    def _move_producer(self, sent: Sent, base: int) -> None:
        moved, producer = sent.moved, sent.entry.producer
        if moved is None or producer is None:
            return
        known = self.states.get(producer.id, StoredProducer())
        epoch, last = map(int, moved.head.split())
        mine = StoredBatch(producer.first, last, self.numbering.to_id(base))
        before = known.batches if known.epoch == epoch else ()
        self.states[producer.id] = StoredProducer(epoch, last, 0, (*before, mine)[-5:])
        if producer.transactional and producer.id not in self.open:
            self.open[producer.id] = base
            if sent.mode is Mode.OURS:
                self.tracked.add(BESIDE.transactions)
            else:
                self.tracked.discard(BESIDE.transactions)


class Sent:
    """A batch as it was when it was sent: it may be sent again before the model carries it out."""

    def __init__(self, entry: Append, mode: Mode) -> None:
        self.entry, self.mode, self.base, self.moved = entry, mode, entry.base, entry.moved
        self.expected = entry.expected


Step = Generator[str, Any, None]


class Wire:
    """The broker's side of the connection, as `Appender` and `Watcher` are."""

    def __init__(self, dense: bool, module: bool) -> None:
        self.state = new_state(dense)
        self.states = States(60.0)
        self.states.claim(self.state)
        self.redis = Redis(self.state.numbering, module)
        self.now, self.clock = 1_000, 0.0
        self.sent: deque[Any] = deque()  # commands that Redis has not carried out
        self.coming: deque[tuple[Any, Any, Seen]] = deque()  # what was asked, the answer to it, and what Redis held
        self.seen = self.redis.seen  # what Redis held when it wrote what has come in last
        self.entries: list[Append] = []
        self.endings: list[Ending] = []
        self.row: list[tuple[int, int, str]] = []  # end of the batch before, base and name: as `Newest` has it
        self.lineage: object = None
        self.foreign_known = False  # a write of another client was pushed, and the stream not read since
        self.drained = True  # nothing flies that was sent before the last refusal

    # -- the broker moves

    def produce(self, batch: Batch, producer: Sequenced | None, wide: bool) -> Append:
        entry = Append(batch, producer, Future(), wide)  # type: ignore[arg-type]
        self.entries.append(entry)
        self.state.add(entry)
        self.pump()
        return entry

    def end(self, producer: int, epoch: int) -> None:
        self.endings.append(ending(producer, epoch))
        self.state.add(self.endings[-1])
        self.pump()

    def pump(self) -> None:
        state = self.state
        while (entry := state.next(self.now, self.clock)) is not None:
            if isinstance(entry, Preparation):
                self._ask(self._prepare(entry))
                return
            if isinstance(entry, Append):
                assert self.drained, "sent while what was sent before a refusal still flies"
                if state.mode is Mode.OURS and not entry.wide:
                    assert not self.foreign_known, "ids chosen here although another client is known to write"
                self.sent.append(Sent(entry, state.mode))
            else:
                self.sent.append(entry)

    def _prepare(self, what: Preparation) -> Step:
        state, last = self.state, None
        assert not (what.stream and state.flying)
        try:
            if what.clear_fence:
                yield "clear"
            if what.read_end:
                state.watched()
                self.foreign_known = False
                last = yield "last"
            if what.stream:
                state.ready(last, self.clock)
            if what.learn is not None and what.learn.producer is not None:
                what.learn.asked = True
                pid = what.learn.producer.id
                stored, opened = yield f"producer {pid}"
                state.learned(pid, ProducerState.of(stored, state.numbering, opened))
        except KetchError as error:
            state.give_up(error)
        state.preparing = False
        self.pump()

    def look(self) -> None:
        """A reader asks for what is not known."""
        if self.state.info is None:
            self._ask(self._look())

    def _look(self) -> Step:
        try:
            self.states.found_info(self.state, (yield "info"), self.clock)
            self.states.found_transactions(self.state, (yield "transactions"), self.clock)
        except StorageUnavailable:
            pass

    def _ask(self, step: Step) -> None:
        question = next(step, None)
        if question is not None:
            self.sent.append((question, step))

    # -- Redis moves

    def carry_out(self) -> None:
        """The next command."""
        asked = self.sent.popleft()
        if isinstance(asked, Sent):
            answer: Any = self.redis.carry_out(asked)
        elif isinstance(asked, Ending):
            answer = self.redis.end(asked.marker, self.state.least(self.now))
        else:
            answer = self._answer(asked[0])
        self.coming.append((asked, answer, self.redis.seen))

    def _answer(self, question: str) -> Any:
        redis = self.redis
        match question.split():
            case ["clear"]:
                redis.fence = False
            case ["last"]:
                return redis.info().last
            case ["info"]:
                return redis.info()
            case ["transactions"]:
                redis.tracked.add(BESIDE.transactions)
                return Transactions(dict(redis.open))
            case [_, pid]:
                return redis.states.get(int(pid), StoredProducer()), int(pid) in redis.open
        return None

    def push(self, keys: list[bytes]) -> None:
        """Redis tells of a write."""
        self.redis.tracked -= set(keys)
        if keys:
            self.coming.append((None, keys, self.redis.seen))

    # -- answers come in

    def take(self) -> None:
        """The next of what Redis has written."""
        asked, answer, self.seen = self.coming.popleft()
        if asked is None:
            self.foreign_known |= STREAM in answer
            self.states.pushed(answer)
        elif isinstance(asked, tuple):
            self._resume(asked[1], answer)
        else:
            self._replied(answer)
        self.drained |= not self.state.flying
        if not self.state.flying:
            self.pump()

    def _replied(self, answer: Any) -> None:
        state = self.state
        entry = state.flying.pop(0)
        if isinstance(entry, Ending):
            info = state.ended(entry, answer)
            if answer is not None:
                numbering = state.numbering
                behind = numbering.to_offset(*answer.follows) + 1
                self._keep(info, behind, numbering.to_offset(*answer.id), f"marker {entry.marker.producer}")
            self.pump()
        elif isinstance(answer, tuple):
            batch: Any = entry.batch
            info = state.landed(entry, *answer)
            self._keep(info, entry.begin if info else 0, answer[0], batch.name)
        elif isinstance(answer, bool):
            state.refused(entry, answer)
            self.drained = False
        else:
            state.failed(entry, answer)
            self.drained = False

    def _keep(self, info: StreamInfo | None, behind: int, base: int, name: str) -> None:
        if info is not None:
            if info.lineage is not self.lineage:
                self.lineage, self.row = info.lineage, []
            self.row.append((behind, base, name))

    def _resume(self, step: Step, answer: Any) -> None:
        try:
            question = step.throw(answer) if isinstance(answer, Exception) else step.send(answer)
        except StopIteration:
            return
        self.sent.append((question, step))

    def lose(self, carried_out: int) -> None:
        """The connection goes; so many of the commands that were sent get to Redis all the same."""
        for _ in range(min(carried_out, len(self.sent))):
            self.carry_out()
        asked = [*(each for each, _, _ in self.coming if each is not None), *self.sent]
        self.coming.clear()
        self.sent.clear()
        self.redis.tracked.clear()
        error = StorageUnavailable("lost")
        for each in asked:
            if isinstance(each, tuple):
                self._resume(each[1], error)
                continue
            entry = self.state.flying.pop(0)
            if isinstance(entry, Ending):
                self.state.ending_failed(entry, error)
            else:
                self.state.failed(entry, error)
        self.states.lost()
        self.seen, self.foreign_known, self.drained = self.redis.seen, True, True
        if not self.state.flying:
            self.pump()

    def settle(self) -> None:
        """Until nothing is on its way."""
        while self.sent or self.coming:
            while self.sent:
                self.carry_out()
            self.take()
