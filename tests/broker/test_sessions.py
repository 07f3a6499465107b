"""Fetch sessions (KIP-227) without a broker: ids, epochs, eviction and what is due, held against a model."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ketch.broker.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    InvalidSessionEpoch,
    PartitionKey,
    Session,
    SessionNotFound,
    Sessions,
    SessionTopicIds,
    Target,
)
from ketch.log.watcher import Waiter
from tests.support.session_model import LAST_EPOCH, LOOK_AGAIN_S, SessionModel, SessionsModel

ERRORS = {70: SessionNotFound, 71: InvalidSessionEpoch, 106: SessionTopicIds}
NAMES = [("t", 0), ("t", 1), ("u", 0)]
IDS = [(UUID(int=1), 0), (UUID(int=1), 1), (UUID(int=2), 0)]
ASKED = st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(-1, 2))


def stream(key: PartitionKey) -> bytes:
    return f"{key[0]}:{key[1]}".encode()


def targets(asked: dict[Any, tuple[int, int, int]]) -> list[Target]:
    return [Target(*key, *what) for key, what in asked.items()]


class Stream:
    """What a waiter needs of a stream's state: who waits for its next change."""

    def __init__(self) -> None:
        self.listeners: set[Waiter] = set()


class Streams(dict[bytes, Any]):
    """Every stream there could be."""

    def __missing__(self, key: bytes) -> Stream:
        return self.setdefault(key, Stream())

    def get(self, key: bytes, default: Any = None) -> Stream:
        return self[key]


class Cache:
    """Sessions over streams that change when the test says so."""

    def __init__(self, slots: int) -> None:
        self.streams = Streams()
        self.sessions = Sessions(slots, lambda: Waiter(self.streams, {}))

    def change(self, key: PartitionKey) -> None:
        """A record is appended."""
        told, self.streams[stream(key)].listeners = self.streams[stream(key)].listeners, set()
        for waiter in told:
            waiter.fire(stream(key))

    @property
    def waiting(self) -> set[Waiter]:
        return {waiter for each in self.streams.values() for waiter in each.listeners}

    def open(self, *keys: PartitionKey, by_id: bool = False) -> Session:
        asked = targets(dict.fromkeys(keys, (0, 1, -1)))
        return self.sessions.resolve(0, INITIAL_EPOCH, asked, [], by_id)

    def go_on(self, session: Session, epoch: int, *forgotten: PartitionKey, **given: Any) -> Session:
        asked = targets(given.get("asked", {}))
        return self.sessions.resolve(session.id, epoch, asked, list(forgotten), given.get("by_id", session.by_id))


def due(session: Session, now: float = 1000.0) -> list[PartitionKey]:
    return [target.key for target in session.due(now)]


def at_end(session: Session, now: float = 1000.0) -> None:
    """A fetch that finds nothing new in any partition."""
    for target in session.due(now):
        session.watch(target, stream(target.key))
        session.reached_end(target)


class Fetches(RuleBasedStateMachine):
    """Clients that open, use, misuse and end sessions."""

    @initialize(slots=st.integers(0, 3))
    def start(self, slots: int) -> None:
        self.cache, self.model = Cache(slots), SessionsModel(slots)
        self.real: dict[int, Session] = {}  # every session that ever was
        self.now = 1000.0

    def _draw(self, data: st.DataObject) -> tuple[bool, dict[Any, tuple[int, int, int]], list[Any]]:
        by_id = data.draw(st.booleans())
        keys = IDS if by_id else NAMES
        asked = data.draw(st.dictionaries(st.sampled_from(keys), ASKED))
        return by_id, asked, data.draw(st.lists(st.sampled_from(keys), max_size=3))

    def _known(self, data: st.DataObject) -> int:
        """The id of a session that is or was, or of none."""
        return int(data.draw(st.sampled_from([0, 12345, *self.real])))

    @rule(data=st.data(), epoch=st.sampled_from([INITIAL_EPOCH, FINAL_EPOCH]))
    def full_fetch(self, data: st.DataObject, epoch: int) -> None:
        session_id, (by_id, asked, forgotten) = self._known(data), self._draw(data)
        session = self.cache.sessions.resolve(session_id, epoch, targets(asked), forgotten, by_id)
        expected = SessionModel(by_id, targets=dict(asked), due=list(asked))
        assert not session.incremental
        assert {target.key for target in session.due(self.now)} == set(asked)
        expected.looked = self.now
        self.model.full(session_id)
        if epoch == FINAL_EPOCH or not self.model.slots:
            assert session.id == 0
            return
        assert 0 < session.id <= LAST_EPOCH
        assert session.id not in self.real
        assert session.by_id == by_id
        self.real[session.id] = session
        self.model.keep(session.id, expected)

    @rule(data=st.data(), epoch=st.sampled_from(["next", "again", "late", LAST_EPOCH, -2]), same=st.booleans())
    def incremental_fetch(self, data: st.DataObject, epoch: int | str, same: bool) -> None:
        session_id, (by_id, asked, forgotten) = self._known(data), self._draw(data)
        known = self.model.kept.get(session_id)
        if known is not None and same and known.by_id != by_id:
            return
        at = {"next": 0, "again": -1, "late": 1}.get(str(epoch))
        number = int(epoch) if at is None else (known.epoch if known else 1) + at
        if number in (INITIAL_EPOCH, FINAL_EPOCH):
            return
        expected = self.model.incremental(session_id, number, by_id)
        if isinstance(expected, int):
            with pytest.raises(ERRORS[expected]):
                self.cache.sessions.resolve(session_id, number, targets(asked), forgotten, by_id)
            return
        session = self.cache.sessions.resolve(session_id, number, targets(asked), forgotten, by_id)
        assert session is self.real[session_id]
        assert session.incremental
        expected.update(asked, forgotten)

    @precondition(lambda self: self.model.kept)
    @rule(data=st.data(), seconds=st.sampled_from([0, 0, 0, 10, LOOK_AGAIN_S]))
    def look(self, data: st.DataObject, seconds: int) -> None:
        """What a handler does between `resolve` and its answer."""
        self.now += seconds
        session_id = data.draw(st.sampled_from(list(self.model.kept)))
        model, session = self.model.kept[session_id], self.real[session_id]
        found = session.due(self.now)
        assert [target.key for target in found] == model.look(self.now)
        for target in found:
            model.watched.add(target.key)
            session.watch(target, stream(target.key))
            if data.draw(st.booleans(), "at its end"):
                session.reached_end(target)
                model.due.remove(target.key)
            elif data.draw(st.booleans(), "gave records"):
                session.served(target)
                model.due.remove(target.key)
                model.due.append(target.key)

    @rule(key=st.sampled_from(NAMES + IDS))
    def change(self, key: PartitionKey) -> None:
        self.cache.change(key)
        for model in self.model.kept.values():
            if key in model.watched:
                model.watched.remove(key)
                if key not in model.changed:
                    model.changed.append(key)

    @precondition(lambda self: self.model.kept)
    @rule(data=st.data(), committed=st.booleans())
    def isolation(self, data: st.DataObject, committed: bool) -> None:
        session_id = data.draw(st.sampled_from(list(self.model.kept)))
        model = self.model.kept[session_id]
        if model.committed and not committed:
            model.looked = None
        model.committed = committed
        self.real[session_id].isolate(committed)

    @invariant()
    def what_is_kept(self) -> None:
        assert len(self.cache.sessions) == len(self.model.kept) <= self.model.slots
        for session_id, model in self.model.kept.items():
            session = self.real[session_id]
            assert (session.id, session.epoch) == (session_id, model.epoch)
            held = {key: (t.offset, t.max_bytes, t.leader_epoch) for key, t in session.targets.items()}
            assert held == model.targets
        kept = {self.real[session_id].waiter for session_id in self.model.kept}
        assert self.cache.waiting <= kept, "a session that has gone waits for nothing"


TestFetches = Fetches.TestCase
TestFetches.settings = settings(max_examples=40, stateful_step_count=20)


def test_a_session_from_its_first_fetch_to_its_last() -> None:
    cache = Cache(1)
    session = cache.open(*NAMES)
    assert (session.epoch, session.incremental, due(session)) == (1, False, NAMES)
    at_end(session)
    assert cache.go_on(session, 1) is session
    assert (session.epoch, session.incremental, due(session)) == (2, True, [])
    cache.change(NAMES[1])
    assert due(cache.go_on(session, 2)) == [NAMES[1]]
    passing = cache.go_on(session, FINAL_EPOCH, asked={NAMES[0]: (5, 5, 5)})
    assert (passing.id, passing.incremental, due(passing), len(cache.sessions)) == (0, False, [NAMES[0]], 0)
    with pytest.raises(SessionNotFound, match=f"no fetch session {session.id}"):
        cache.go_on(session, 3)


def test_who_changed_first_is_first() -> None:
    """The order of answers depends on nothing but what happened; not on the hashes of keys, say."""
    keys = [("t", n) for n in random.Random(1).sample(range(100), 50)]
    cache = Cache(1)
    session = cache.open(*sorted(keys))
    at_end(session)
    for key in [*keys, *keys[:3]]:
        cache.change(key)
    assert due(session) == keys


def test_epochs_wrap_around_past_the_initial_one() -> None:
    cache = Cache(1)
    session = cache.open(NAMES[0])
    session.epoch = LAST_EPOCH
    cache.go_on(session, LAST_EPOCH)
    assert session.epoch == 1


@pytest.mark.parametrize("epoch", [2, LAST_EPOCH, -2])
def test_a_wrong_epoch_changes_nothing(epoch: int) -> None:
    cache = Cache(2)
    session, other = cache.open(NAMES[0]), cache.open(NAMES[0])
    with pytest.raises(InvalidSessionEpoch, match=rf"epoch {epoch} of fetch session {session.id}, 1 is next"):
        cache.go_on(session, epoch, NAMES[0], asked={NAMES[1]: (1, 1, 1)})
    assert (session.epoch, list(session.targets)) == (1, [NAMES[0]])
    cache.open(NAMES[0])
    assert cache.go_on(other, 1) is other
    with pytest.raises(SessionNotFound):  # the failed fetch was no use of it
        cache.go_on(session, 1)


def test_the_session_unused_for_longest_goes() -> None:
    cache = Cache(2)
    first, second = cache.open(NAMES[0]), cache.open(NAMES[1])
    at_end(second)
    cache.go_on(first, 1)
    third = cache.open(NAMES[2])
    assert len(cache.sessions) == 2
    with pytest.raises(SessionNotFound):
        cache.go_on(second, 1)
    assert cache.go_on(first, 2) is first
    assert cache.go_on(third, 1) is third
    assert not cache.waiting, "and waits for nothing more"


@pytest.mark.parametrize(("opened", "kind"), [(True, "ids"), (False, "names")])
def test_names_and_ids_do_not_mix(opened: bool, kind: str) -> None:
    cache = Cache(1)
    session = cache.open(IDS[0] if opened else NAMES[0], by_id=opened)
    with pytest.raises(SessionTopicIds, match=f"is one of topic {kind}"):
        cache.go_on(session, 1, by_id=not opened)
    assert session.epoch == 1


def test_a_partition_that_is_named_and_forgotten_at_once_is_forgotten() -> None:
    cache = Cache(1)
    session = cache.open(NAMES[0])
    cache.go_on(session, 1, NAMES[1], asked={NAMES[1]: (1, 1, 1)})
    assert list(session.targets) == due(session) == [NAMES[0]]


def test_a_change_of_a_forgotten_partition_is_nothing() -> None:
    cache = Cache(1)
    session = cache.open(*NAMES)
    at_end(session)
    cache.go_on(session, 1, NAMES[0])
    cache.change(NAMES[0])
    assert due(session) == []


def test_what_the_consumer_was_told_survives_a_new_offset() -> None:
    """Else a fetch on from there would name the partition though nothing about it is new."""
    cache = Cache(1)
    session = cache.open(NAMES[0])
    session.targets[NAMES[0]].answered = (3, 9)
    cache.go_on(session, 1, asked={NAMES[0]: (7, 100, 2)})
    (target,) = session.due(1000.0)
    assert (target.offset, target.max_bytes, target.leader_epoch, target.answered) == (7, 100, 2, (3, 9))


def test_a_partition_that_gave_records_comes_last() -> None:
    session = Cache(1).open(*NAMES)
    session.served(session.targets[NAMES[0]])
    assert due(session) == [NAMES[1], NAMES[2], NAMES[0]]
    session.reached_end(session.targets[NAMES[1]])
    session.served(session.targets[NAMES[1]])
    assert due(session) == [NAMES[2], NAMES[0]], "it is at its end all the same"


@pytest.mark.parametrize("now", [0.5, 1000.0])
def test_who_wants_all_records_now_looks_at_every_partition(now: float) -> None:
    """Also on a machine that was started just now, whose monotonic clock is near 0."""
    session = Cache(1).open(*NAMES)
    session.isolate(committed=True)
    at_end(session, now)
    session.isolate(committed=True)
    assert due(session, now) == []
    session.isolate(committed=False)
    assert due(session, now) == NAMES
    at_end(session, now)
    assert due(session, now + LOOK_AGAIN_S - 1) == []
    assert due(session, now + LOOK_AGAIN_S) == NAMES
