"""What is known of streams, until when, and who is woken: no server, no event loop."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.log.appending.producers import ProducerState, Sequenced
from ketch.log.appending.state import AppendState, Mode
from ketch.log.states import States, Waiter
from ketch.redis.question import command
from ketch.store.append import markers
from ketch.store.append.markers import Ended
from ketch.store.keys import Keyspace
from ketch.store.layouts.table import LAYOUTS
from ketch.store.offsets import OffsetNumbering
from ketch.store.scripts import AppendKeys
from ketch.store.stream.isolation import NOTHING, Transactions
from ketch.store.xinfo import StreamInfo
from tests.log.appended import append, ending

KEYS = Keyspace("ks")
MAX_AGE = 10.0
INFO = StreamInfo(1, (5, 0), (5, 0))


def new(topic: str) -> AppendState:
    stream = KEYS.stream(topic, 0)
    beside = markers.keys_of(KEYS, stream)
    keys = AppendKeys(stream, beside.producers, b"fence")
    return AppendState(keys, beside, LAYOUTS["record"], OffsetNumbering(), 0, command(stream, "XINFO"))


class Known(NamedTuple):
    states: States
    state: AppendState
    waiter: Waiter

    @property
    def stream(self) -> bytes:
        return self.state.keys.stream


@pytest.fixture
def known() -> Known:
    """All is known of a stream since second 100, and somebody waits for it."""
    states, state = States(MAX_AGE), new("t")
    states.claim(state)
    waiter = states.waiter()
    waiter.add(state.keys.stream)
    states.found_info(state, INFO, 100.0)
    states.found_transactions(state, NOTHING, 100.0)
    return Known(states, state, waiter)


def test_an_answer_serves_until_it_is_too_old(known: Known) -> None:
    states, state, _ = known
    assert states.info(state, 109.9) is INFO
    assert states.transactions(state, 109.9) is NOTHING
    assert states.info(state, 110.0) is states.transactions(state, 110.0) is None
    states.verified = 105.0
    assert states.info(state, 114.9) is INFO
    assert states.info(state, 115.0) is None


def test_a_push_of_the_stream_drops_its_ends(known: Known) -> None:
    known.states.pushed([known.stream])
    assert known.state.info is None
    assert known.state.transactions is NOTHING
    assert known.state.others_wrote
    assert known.waiter.take() == {known.stream}


@pytest.mark.parametrize("which", ["transactions", "aborted"])
def test_a_push_of_a_key_beside_it_drops_its_transactions(known: Known, which: str) -> None:
    known.states.pushed([getattr(known.state.transaction_keys, which)])
    assert known.state.transactions is None
    assert known.state.info is INFO
    assert not known.state.others_wrote
    assert known.waiter.take() == {known.stream}


def test_keys_that_were_read_for_something_else(known: Known) -> None:
    known.states.pushed([b"ks:anything", known.state.keys.producers])
    known.states.changed(b"ks:anything")
    assert known.state.info is INFO
    assert known.waiter.take() == set()


def test_what_this_broker_changed_is_no_write_of_others(known: Known) -> None:
    known.states.changed(known.stream)
    assert known.state.info is None
    assert not known.state.others_wrote
    assert known.waiter.take() == {known.stream}


@pytest.mark.parametrize("how", ["flushed", "lost"])
def test_nothing_is_relied_on_after_a_loss(known: Known, how: str) -> None:
    if how == "lost":
        known.states.lost()
    else:
        known.states.pushed(None)
    assert known.state.info is known.state.transactions is None
    assert known.state.others_wrote
    assert known.waiter.take() == {known.stream}


def test_of_two_topics_of_one_name_the_one_that_asked_last_has_the_keys(known: Known) -> None:
    states, old, waiter = known
    again = new("t")
    states.found_info(again, INFO, 101.0)
    assert old.info is old.transactions is None
    assert old.others_wrote
    assert waiter.take() == {known.stream}
    states.pushed([known.stream])
    assert again.info is None
    states.found_info(old, INFO, 102.0)
    assert states.info(old, 103.0) is INFO
    states.forget(again)  # which has nothing to forget
    assert states.info(old, 103.0) is INFO


def test_a_topic_that_is_gone(known: Known) -> None:
    states, state, waiter = known
    state.close()
    assert waiter.take() == {known.stream}
    states.found_info(state, INFO, 101.0)
    assert state.info is None
    waiter.add(known.stream)
    states.forget(state)
    assert waiter.take() == {known.stream}
    waiter.add(known.stream)  # nobody would wake it
    assert waiter.take() == {known.stream}
    waiter.close()


def test_our_own_append_goes_on_with_what_is_known(known: Known) -> None:
    known.state.mode, known.state.last = Mode.OURS, INFO.last
    entry = append(count=3)
    known.state.add(entry)
    known.state.next(0, 0.0)
    known.state.flying.pop(0)
    info = known.state.landed(entry, entry.base, True)
    assert info is known.state.info
    assert info == StreamInfo(4, (5, 3), (5, 0))
    assert info.lineage is INFO.lineage
    assert known.waiter.take() == {known.stream}


def stored(known: Known, last: tuple[int, int], as_expected: bool, producer: Sequenced | None = None) -> AppendState:
    """After an append that was sent to follow `last`."""
    state, entry = known.state, append(producer=producer)
    state.mode, state.last = Mode.OURS, last
    state.producers[9] = ProducerState(0, -1)
    state.add(entry)
    state.next(0, 0.0)
    state.flying.pop(0)
    state.landed(entry, entry.base, as_expected)
    return state


@pytest.mark.parametrize(("last", "as_expected"), [(INFO.last, False), ((5, 1), True)])
def test_an_append_that_does_not_follow_what_is_known(known: Known, last: tuple[int, int], as_expected: bool) -> None:
    assert stored(known, last, as_expected).info is None
    assert known.waiter.take() == {known.stream}


@pytest.mark.parametrize("as_expected", [True, False])
def test_the_first_batch_of_a_transaction(known: Known, as_expected: bool) -> None:
    """The script that lets Redis choose ids does not read the keys beside the stream again."""
    state = stored(known, INFO.last, as_expected, Sequenced(9, 0, 0, transactional=True, started=1))
    assert state.transactions == (Transactions({9: (5 << 10) + 1}) if as_expected else None)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_known_at_once_where_it_commits(known: Known, commit: bool) -> None:
    state, marker = known.state, ending(9, 0, commit)
    state.mode, state.last, state.transactions = Mode.OURS, INFO.last, Transactions({8: 3, 9: 4})
    state.add(marker)
    state.next(0, 0.0)
    state.flying.pop(0)
    info = state.ended(marker, Ended((6, 0), INFO.last))
    assert info is state.info
    assert info is not None
    assert (info.last, state.last) == ((6, 0), (6, 0))
    assert state.transactions == (Transactions({8: 3}) if commit else None)


@pytest.mark.parametrize("of_open", [True, False])
def test_who_waits_for_committed_records_sleeps_while_a_transaction_is_open(known: Known, of_open: bool) -> None:
    state = known.state
    state.mode, state.last = Mode.OURS, INFO.last
    state.transactions = Transactions({9: 1}) if of_open else NOTHING
    all_records = known.states.waiter()
    all_records.add(known.stream)
    known.waiter.committed = True
    entry = append()
    state.add(entry)
    state.next(0, 0.0)
    state.landed(entry, entry.base, True)
    assert all_records.take() == {known.stream}
    assert known.waiter.take() == (set() if of_open else {known.stream})
    known.states.pushed([known.stream])
    assert known.waiter.take() == ({known.stream} if of_open else set())


def test_one_that_has_gone_is_not_woken(known: Known) -> None:
    known.waiter.close()
    known.states.pushed([known.stream])
    assert known.waiter.take() == set()
    assert not known.state.listeners


def test_waiting() -> None:
    async def run() -> None:
        states, state = States(MAX_AGE), new("t")
        states.claim(state)
        waiter = states.waiter()
        waiter.add(state.keys.stream)
        assert not await waiter.wait(0.0)
        waiting = asyncio.create_task(waiter.wait(60.0))
        await asyncio.sleep(0)
        states.lost()
        assert await waiting
        assert await waiter.wait(60.0)  # nobody has taken it

    asyncio.run(run())


events = st.lists(
    st.tuples(st.sampled_from(["info", "push", "changed", "lost", "look", "verify"]), st.integers(0, 2)), max_size=40
)


@given(events)
def test_what_is_known_is_what_redis_said_after_the_last_change(events: list[tuple[str, int]]) -> None:
    """Of three streams, two of which are topics of one name."""
    states, of = States(MAX_AGE), [new("a"), new("b"), new("b")]
    said: dict[int, tuple[float, StreamInfo]] = {}
    for now, (event, n) in enumerate(events):
        state = of[n]
        alike = [each for each in range(3) if of[each].keys.stream == state.keys.stream]
        match event:
            case "info":
                for each in alike:
                    said.pop(each, None)
                said[n] = float(now), StreamInfo(now)
                states.found_info(state, said[n][1], float(now))
            case "push" | "changed":
                for each in alike:
                    said.pop(each, None)
                if event == "push":
                    states.pushed([state.keys.stream])
                else:
                    states.changed(state.keys.stream)
            case "lost":
                said.clear()
                states.lost()
            case "verify":
                states.verified = float(now)
        for each, which in enumerate(of):
            since, info = said.get(each, (0.0, None))
            fresh = now - max(since, states.verified) < MAX_AGE
            assert states.info(which, float(now)) is (info if fresh else None)
