"""Which batch is sent when, and with whose ids: every row of the table in `log.appending.state`, and the whole of it
against a model of a stream (`tests.log.appended`). No server, no event loop."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ketch.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    KetchError,
    NotInTransaction,
    OutOfOrderSequence,
    RedisError,
    StorageUnavailable,
    UnknownTopicOrPartition,
)
from ketch.log.appending import state as states
from ketch.log.appending.producers import ProducerState, Sequenced
from ketch.log.appending.state import Append, AppendState, Mode, Preparation
from ketch.store.append.markers import Ended
from ketch.store.append.producers import StoredProducer
from ketch.store.offsets import ZERO
from tests.log.appended import FIRST, Batch, Wire, append, ending, new_state

NOW = 2_000  # ms
CLOCK = 50.0  # s


def ours(last: int = FIRST - 1, dense: bool = False) -> AppendState:
    """A state whose stream ends with an offset."""
    state = new_state(dense)
    state.mode, state.exists = Mode.OURS, True
    state.last = state.numbering.to_id(last) if last >= 0 else ZERO
    return state


def sent(state: AppendState) -> list[Append]:
    """What is sent now."""
    found = []
    while isinstance(entry := state.next(NOW, CLOCK), Append):
        found.append(entry)
    assert entry is None
    return found


def queued(state: AppendState, *entries: Any) -> None:
    for entry in entries:
        state.add(entry)


def fly(state: AppendState, *entries: Any) -> None:
    """They are in flight."""
    queued(state, *entries)
    for entry in entries:
        assert state.next(NOW, CLOCK) is entry


def prepared(state: AppendState) -> Preparation:
    what = state.next(NOW, CLOCK)
    assert isinstance(what, Preparation)
    assert state.next(NOW, CLOCK) is None  # one at a time
    return what


# -- a row each


def test_cold_looks_at_the_streams_end_first() -> None:
    state, entry = new_state(), append()
    queued(state, entry)
    assert prepared(state) == (False, True, True, None, True)
    state.ready((5, 6), CLOCK)
    state.preparing = False
    assert sent(state) == [entry]
    assert (state.mode, entry.expected) == (Mode.OURS, (5, 6))


def test_ours_sends_without_waiting_each_batch_behind_the_one_before() -> None:
    state, entries = ours((NOW << 10) + 5), [append(count=3), append(count=1_030), append()]
    queued(state, *entries)
    assert sent(state) == entries
    base = (NOW << 10) + 6
    assert [entry.base for entry in entries] == [base, base + 3, base + 1_033]
    assert [entry.expected for entry in entries] == [(NOW, 5), (NOW, 8), (NOW + 1, 14)]


@pytest.mark.parametrize(("dense", "last", "base"), [(False, FIRST - 1, NOW << 10), (True, 7, 8), (True, -1, 0)])
def test_ids_follow_the_clock_or_dense_the_last_one(dense: bool, last: int, base: int) -> None:
    state, entry = ours(last, dense), append()
    fly(state, entry)
    assert entry.base == base


def test_no_id_lies_below_the_partitions_first_offset() -> None:
    state, entry = ours(-1), append()
    queued(state, entry)
    state.next(0, CLOCK)
    assert entry.base == FIRST


def idempotent(name: str, first: int) -> Append:
    return append(name, producer=Sequenced(7, 0, first))


@pytest.mark.parametrize("mode", [Mode.OURS, Mode.CONTENDED])
def test_producers_are_forgotten_where_nothing_is_to_be_relied_on(mode: Mode) -> None:
    """A batch that the old master had answered is no duplicate on the new one, which may lack it."""
    state, first, retry = ours(), idempotent("1", 0), idempotent("1", 0)
    state.mode, state.contended_until = mode, CLOCK + 1
    state.learned(7, ProducerState(0, -1))
    fly(state, first)
    state.flying.clear()
    state.landed(first, FIRST, as_expected=False)
    state.void_all()
    queued(state, retry)
    assert prepared(state).learn is retry
    assert not retry.future.done()


def test_what_was_learned_of_a_node_that_was_left_is_learned_again() -> None:
    state, entry = new_state(), idempotent("1", 5)
    queued(state, entry)
    assert prepared(state).learn is entry
    state.void_all()
    state.ready((5, 6), CLOCK)
    state.learned(7, ProducerState(0, 4))
    state.preparing = False
    assert prepared(state).learn is entry


def test_another_client_writes_while_ids_are_chosen_here() -> None:
    state, first, second = ours(), append("1"), append("2")
    fly(state, first)
    state.foreign_write()
    queued(state, second)
    assert sent(state) == []
    assert state.mode is Mode.MOVED
    state.landed(state.flying.pop(0), first.base, True)  # type: ignore[arg-type]
    assert prepared(state) == (False, False, True, None, True)
    state.ready(None, CLOCK)
    state.preparing = False
    assert (state.mode, sent(state)) == (Mode.CONTENDED, [second])
    assert second.expected is None


def test_one_that_the_module_put_elsewhere_means_that_the_stream_has_moved() -> None:
    state, entry = ours(), append()
    fly(state, entry)
    state.landed(state.flying.pop(0), entry.base + 9, False)  # type: ignore[arg-type]
    assert (state.mode, entry.future.result()) == (Mode.MOVED, entry.base + 9)


def test_a_refused_batch_goes_first_when_all_that_flies_is_answered() -> None:
    state, entries, behind = ours(), [append("1"), append("2")], append("3")
    fly(state, *entries)
    queued(state, behind)
    for entry in entries:
        assert state.mode is Mode.OURS or sent(state) == []
        state.flying.pop(0)
        state.refused(entry, wide=False)
        assert state.mode is Mode.DRAINING
    assert prepared(state) == (True, False, True, None, True)
    state.ready(None, CLOCK)
    state.preparing = False
    assert sent(state) == [*entries, behind]


def test_a_failed_batch_stops_what_follows_it() -> None:
    state, entry, behind = ours(), append(), append()
    fly(state, entry)
    state.flying.pop(0)
    state.failed(entry, RedisError("no"))
    queued(state, behind)
    assert state.mode is Mode.DRAINING
    assert prepared(state) == (True, True, True, None, True)
    with pytest.raises(RedisError):
        entry.future.result()


@pytest.mark.parametrize("mode", list(Mode))
def test_what_is_known_of_producers_is_forgotten_where_others_may_have_written_for_them(mode: Mode) -> None:
    state = ours()
    state.learned(7, ProducerState())
    state.mode, state.others_wrote = mode, True
    queued(state, append())
    prepared(state)
    assert bool(state.producers) is (mode is Mode.CONTENDED)


def test_contended_ends_after_a_second() -> None:
    state = ours()
    state.ready(None, CLOCK - 0.5)
    fly(state, append())
    state.contended_until = CLOCK
    queued(state, append())
    assert sent(state) == []  # something flies
    state.flying.clear()
    assert prepared(state) == (False, True, False, None, True)  # the topic is known to be there
    state.ready((9, 9), CLOCK)
    assert state.mode is Mode.OURS


def test_a_lost_connection() -> None:
    state = ours()
    fly(state, append())
    state.unsent(StorageUnavailable("gone"))
    assert state.mode is Mode.COLD
    state = ours()
    fly(state, append(), append())
    state.unsent(StorageUnavailable("gone"))
    assert state.mode is Mode.DRAINING


def test_a_malformed_batch_was_never_there() -> None:
    state, entry, behind = ours((NOW << 10) + 5), append(), append()
    fly(state, entry)
    state.unsent(UnknownTopicOrPartition("any error of its own"))
    fly(state, behind)
    assert (behind.base, behind.expected, state.mode) == (entry.base, entry.expected, Mode.OURS)


def test_a_wide_batch_goes_by_foreign_writes_and_ever_farther_ahead() -> None:
    state, entry = ours(), append(wide=True)
    state.foreign_write()
    leads = []
    for _ in range(12):
        queued(state, *([entry] if not state.repeated else []))
        if state.mode is not Mode.OURS:
            assert prepared(state).read_end
            state.ready(state.last, CLOCK)
            state.preparing = False
        assert sent(state) == [entry]
        leads.append((entry.base >> 10) - NOW)
        state.flying.pop(0)
        state.last = (1, 0)
        state.refused(entry, wide=True)
    assert leads == [0, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000, 1_000]
    for _ in range(30):
        state.refused(entry, wide=True)
    with pytest.raises(StorageUnavailable):
        entry.future.result()


def test_a_wide_batch_of_dense_ids_is_only_repeated() -> None:
    state, entry = ours(7, dense=True), append(wide=True)
    fly(state, entry)
    entry.attempts = 5
    state.flying.pop(0)
    queued(state, entry)
    assert sent(state) == [entry]
    assert entry.expected is not None


def test_nothing_follows_a_marker_whose_id_is_not_known() -> None:
    state, marker, behind = ours(), ending(1, 0), append()
    fly(state, marker)
    queued(state, behind)
    assert sent(state) == []
    state.flying.pop(0)
    state.ended(marker, Ended((NOW + 7, 3), ZERO))
    assert marker.future.result() is True
    assert sent(state) == [behind]
    assert behind.expected == (NOW + 7, 3)


@pytest.mark.parametrize(("error", "mode"), [(StorageUnavailable("?"), Mode.DRAINING), (RedisError("?"), Mode.OURS)])
def test_a_marker_that_failed(error: KetchError, mode: Mode) -> None:
    state, marker = ours(), ending(1, 0)
    fly(state, marker)
    state.flying.pop(0)
    state.ending_failed(marker, error)
    assert (state.mode, state.ending) == (mode, None)
    with pytest.raises(type(error)):
        marker.future.result()


def test_an_unknown_producer_is_asked_for_even_while_something_flies() -> None:
    state, entry = ours(), append(producer=Sequenced(7, 0, 0))
    fly(state, append())
    queued(state, entry)
    assert prepared(state) == (False, False, False, entry, False)
    state.learned(7, ProducerState())
    state.preparing = False
    assert sent(state) == [entry]
    assert entry.moved is not None
    assert (entry.moved.expected, entry.moved.head) == ("", "0 0")


def test_a_gap_is_an_error_only_when_redis_knows_of_nothing_that_fills_it() -> None:
    state, entry = ours(), append(producer=Sequenced(7, 0, 5))
    state.learned(7, ProducerState(0, 0))
    queued(state, entry)
    what = prepared(state)
    assert (state.mode, what.learn) == (Mode.COLD, entry)
    entry.asked = True
    state.ready(ZERO, CLOCK)
    state.learned(7, ProducerState.of(StoredProducer(0, 1), state.numbering))
    state.preparing = False
    assert sent(state) == []
    with pytest.raises(OutOfOrderSequence):
        entry.future.result()


def test_a_duplicate_gets_the_earlier_offset_once_that_is_known() -> None:
    state, first, again = ours(), append(producer=Sequenced(7, 0, 0)), append(producer=Sequenced(7, 0, 0))
    state.learned(7, ProducerState())
    queued(state, first, again)
    assert sent(state) == [first]
    assert not again.future.done()
    state.flying.pop(0)
    state.landed(first, first.base, True)
    assert again.future.result() == first.base


def test_a_duplicate_of_a_batch_that_nobody_waits_for_any_more(caplog: pytest.LogCaptureFixture) -> None:
    state, first, again = ours(), append(producer=Sequenced(7, 0, 0)), append(producer=Sequenced(7, 0, 0))
    state.learned(7, ProducerState())
    queued(state, first, again)
    assert sent(state) == [first]
    first.future.cancel()
    assert not again.future.done()
    assert not caplog.records, "its end is no error"


def test_the_oldest_producer_goes_unless_a_batch_of_it_flies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_MAX_PRODUCERS", 2)
    state, entry = ours(), append(producer=Sequenced(1, 0, 0))
    state.learned(1, ProducerState())
    fly(state, entry)
    for pid in (2, 3):
        state.learned(pid, ProducerState())
    assert list(state.producers) == [1, 2, 3]
    entry.future.set_result(5)
    state.learned(4, ProducerState())
    assert list(state.producers) == [2, 3, 4]


def test_a_preparation_that_fails_fails_what_waits() -> None:
    state, entries = new_state(), [append(), append()]
    queued(state, *entries)
    prepared(state)
    state.give_up(OSError("no"))
    for entry in entries:
        with pytest.raises(StorageUnavailable):
            entry.future.result()


def test_a_topic_that_is_being_deleted_takes_nothing() -> None:
    state, entries = ours(), [append(), append(), append()]
    fly(state, entries[0])
    state.mode = Mode.DRAINING
    queued(state, entries[1])
    state.close()
    queued(state, entries[2])
    for entry in entries[1:]:
        with pytest.raises(UnknownTopicOrPartition):
            entry.future.result()
    assert not entries[0].future.done()  # it is on its way


# -- against the model

TOLD = (
    StorageUnavailable, OutOfOrderSequence, NotInTransaction, InvalidTransactionState, InvalidProducerEpoch,
)  # fmt: skip


class AppendsAgainstModel(RuleBasedStateMachine):
    """Whatever comes in between whatever else."""

    @initialize(dense=st.booleans(), module=st.booleans())
    def begin(self, dense: bool, module: bool) -> None:
        self.wire = Wire(dense, module)
        self.written = 0
        self.next = {1: 0, 2: 0}  # the sequence that each producer goes on with
        self.lost = False

    def name(self) -> str:
        self.written += 1
        return f"{self.written}"

    @rule(counts=st.lists(st.sampled_from([1, 2, 1_100]), min_size=1, max_size=4))
    def produce(self, counts: list[int]) -> None:
        for count in counts:
            self.wire.produce(Batch(self.name(), count), None, False)

    @rule(count=st.sampled_from([1, 2, 1_100]), malformed=st.booleans())
    def produce_odd(self, count: int, malformed: bool) -> None:
        """One that is malformed, or too wide for Lua."""
        self.wire.produce(Batch(self.name(), count, malformed), None, not malformed)

    @rule(
        pid=st.sampled_from([1, 2]),
        count=st.integers(1, 3),
        how=st.sampled_from(["next", "next", "next", "again", "gap"]),
        transactional=st.booleans(),
        started=st.booleans(),
    )
    def produce_idempotent(self, pid: int, count: int, how: str, transactional: bool, started: bool) -> None:
        first, mine = self.next[pid], self.of(pid)
        if how == "again" and mine:
            assert mine[-1].producer is not None
            first, count = mine[-1].producer.first, mine[-1].batch.count
        elif how == "gap":
            first += 5
        else:
            self.next[pid] += count
        transactional = transactional and pid == 2
        producer = Sequenced(pid, 0, first, transactional, 5 if transactional and started else None)
        self.wire.produce(Batch(self.name(), count), producer, False)

    def of(self, pid: int) -> list[Append]:
        """What a producer has sent."""
        return [each for each in self.wire.entries if each.producer is not None and each.producer.id == pid]

    def start_over(self) -> None:
        """The producers go on with what Redis has of them, as they do when requests have failed."""
        for pid in self.next:
            if all(each.future.done() for each in self.of(pid)):
                self.next[pid] = self.wire.redis.states.get(pid, StoredProducer()).last_sequence + 1

    @rule()
    def end(self) -> None:
        self.wire.end(2, 0)

    @rule()
    def look(self) -> None:
        self.wire.look()

    @precondition(lambda self: self.wire.sent)
    @rule(times=st.integers(1, 4))
    def redis_moves(self, times: int) -> None:
        for _ in range(min(times, len(self.wire.sent))):
            self.wire.carry_out()

    @precondition(lambda self: self.wire.coming)
    @rule(times=st.integers(1, 4))
    def answers_come(self, times: int) -> None:
        for _ in range(min(times, len(self.wire.coming))):
            self.wire.take()

    @rule(counts=st.lists(st.sampled_from([1, 2]), max_size=3))
    def another_client_writes(self, counts: list[int]) -> None:
        """While batches are on their way."""
        wire = self.wire
        self.produce(counts)
        base = 0 if wire.state.numbering.dense else wire.now << 10
        wire.push(wire.redis.foreign(base, "foreign"))
        self.produce(counts)

    @rule(transactional=st.booleans())
    def another_broker_writes_for_a_producer(self, transactional: bool) -> None:
        """The next batch of a producer that has gone there meanwhile."""
        redis = self.wire.redis
        known = redis.states.get(1, StoredProducer())
        pushed = redis.foreign(0, "foreign")
        redis.states[1] = StoredProducer(0, known.last_sequence + 1, 0, ())
        if transactional and 9 not in redis.open:
            pushed += [b"open"] if b"open" in redis.tracked else []
            redis.open[9] = redis.stored[-1].base
        self.wire.push(pushed)

    @rule(carried_out=st.integers(0, 30))
    def the_connection_is_lost(self, carried_out: int) -> None:
        if carried_out < 6:  # seldom
            self.lost = True
            self.wire.lose(carried_out)

    @rule(ms=st.integers(0, 3_000))
    def time_passes(self, ms: int) -> None:
        self.wire.now += ms
        self.wire.clock += ms / 1000

    @rule()
    def all_is_answered(self) -> None:
        self.wire.settle()
        self.start_over()
        self.wire.look()
        self.wire.settle()

    @invariant()
    def what_is_known_is_what_redis_held_when_it_wrote_last(self) -> None:
        wire = self.wire
        state = wire.state
        if state.info is not None:
            assert state.info.last == wire.seen.last
            assert state.info.length == sum(each.count for each in wire.redis.stored[: wire.seen.stored])
        if state.transactions is not None:
            assert state.transactions.open == wire.seen.open
        if state.info is not None and state.info.lineage is wire.lineage:
            held = wire.redis.stored[: wire.seen.stored][-len(wire.row) :] if wire.row else []
            assert [(base, name) for _, base, name in wire.row] == [(each.base, each.name) for each in held]
            ends = [behind for behind, _, _ in wire.row[1:]]
            assert ends == [each.base + each.count for each in held[:-1]]

    @invariant()
    def what_is_acknowledged_is_where_it_was_said_to_be(self) -> None:
        stored = {each.base: each for each in self.wire.redis.stored}
        for entry in self.wire.entries:
            if entry.future.done() and entry.future.exception() is None:
                there = stored[entry.future.result()]
                batch: Any = entry.batch
                assert there.count == batch.count
                if entry.producer is None:
                    assert there.name == batch.name
                else:
                    assert there.producer is not None
                    assert there.producer[:3] == entry.producer[:3]

    @invariant()
    def each_batch_is_there_once_and_in_order(self) -> None:
        """In the order of its producer, and those without one in theirs."""
        stored = [each for each in self.wire.redis.stored if each.name.isdigit()]
        assert len({each.name for each in stored}) == len(stored)
        for pid in (None, *self.next):
            mine = [each for each in stored if (each.producer and each.producer.id) == pid]
            names = [int(each.name) for each in mine]
            assert names == sorted(names)
            firsts = [each.producer.first for each in mine if each.producer is not None]
            assert firsts == sorted(set(firsts))

    def teardown(self) -> None:
        if not hasattr(self, "wire"):
            return
        self.wire.settle()
        state = self.wire.state
        assert not any([state.waiting, state.flying, state.repeated, state.preparing, state.ending])
        there = {each.name for each in self.wire.redis.stored}
        for entry in self.wire.entries:
            assert entry.future.done(), "an answer is owed for ever"
            error, batch = entry.future.exception(), entry.batch
            assert error is None or isinstance(error, TOLD) or batch.malformed  # type: ignore[attr-defined]
            if error is not None and not self.lost:
                assert batch.name not in there  # type: ignore[attr-defined]
        assert all(each.future.done() for each in self.wire.endings)
        self.what_is_known_is_what_redis_held_when_it_wrote_last()
        self.what_is_acknowledged_is_where_it_was_said_to_be()
        self.each_batch_is_there_once_and_in_order()


AppendsAgainstModel.TestCase.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
TestAppendsAgainstModel = AppendsAgainstModel.TestCase
