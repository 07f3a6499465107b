"""A transactional id's coordinator under crashes, in a world that is small enough to see that it is right.

The world has one coordinator, what is stored of it, and three partitions, each a list of what was written, with the
rules of the scripts spelled out. A step may crash before the state is stored, after that, or between two markers; then
the machine is loaded from what is stored. Coordinators that were paused come back with old markers. What must hold:

- A transaction is committed or aborted, the same on each of its partitions, however often it is finished.
- What the client was told is what happened.
- An id and epoch are given to one producer only, and a producer with an older one writes and decides nothing.
- What is loaded is what was stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from ketch.coordinator.machine import Persist, Reply, Tick
from ketch.coordinator.transactions.fields import from_fields, to_fields
from ketch.coordinator.transactions.transaction import (
    MAX_EPOCH,
    Add,
    Added,
    Delayed,
    End,
    Finish,
    Finished,
    Identity,
    Init,
    NeedsProducerId,
    State,
    Transaction,
)

OK, PARTITIONS = ErrorCode.none, 3
TIMEOUT_MS = 1000


@dataclass
class Log:
    """A partition as the scripts keep it."""

    epochs: dict[int, int] = field(default_factory=dict)  # by producer id
    open: dict[int, tuple[int, int]] = field(default_factory=dict)  # producer id -> epoch, started
    ended: list[tuple[int, bool]] = field(default_factory=list)  # started, commit

    def append(self, producer: int, epoch: int, started: int) -> bool:
        if epoch < self.epochs.get(producer, -1):
            return False
        self.epochs[producer] = epoch
        self.open.setdefault(producer, (epoch, started))
        return True

    def mark(self, finish: Finish) -> None:
        if self.epochs.get(finish.producer, -1) > finish.epoch:
            return
        if finish.producer in self.open:
            started = self.open[finish.producer][1]
            if started > finish.started:
                return
            self.ended.append((started, finish.commit))
            del self.open[finish.producer]
        self.epochs[finish.producer] = finish.epoch


@dataclass
class Producer:
    """A client: what it was given, and when the transactions began that it has written in since its last End."""

    id: int
    epoch: int
    written: set[int] = field(default_factory=set)


class World:
    """One transactional id and everything around it."""

    def __init__(self, epoch: int, bumps: bool) -> None:
        self.now, self.token, self.next_id = 1000.0, 0, 100
        self.bumps = bumps
        self.machine = Transaction("t", 0.0)
        self.stored: dict[str, str] = {}
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.finishing: list[Finish] = []  # what somebody has to carry out, or did once
        self.given: set[tuple[int, int]] = set()
        self.told: dict[int, bool] = {}  # started -> what the client was told
        self.clients: list[Producer] = []
        self.current: Producer | None = None
        self.answers: dict[int, Any] = {}
        assert self.feed(Init(self.use(), TIMEOUT_MS, fresh=1), "") is not None
        self.machine.epoch = epoch  # near its end, or at its beginning
        self.stored = to_fields(self.machine)

    def use(self) -> int:
        self.token += 1
        return self.token

    # -- the shell

    def load(self) -> None:
        self.machine = from_fields("t", self.stored, 0.0, self.now)
        assert to_fields(self.machine) == self.stored

    def feed(self, event: Any, crash: str) -> Any:
        """The answer; None where there is none yet, or it was lost."""
        effects = self.machine.handle(event, self.now)
        for effect in effects:
            match effect:
                case Persist():
                    if crash == "before":
                        self.load()
                        return None
                    self.stored = to_fields(self.machine)
                    if crash == "after":
                        self.load()
                        return None
                case Finish():
                    self.finishing.append(effect)
                case Reply(token, result):
                    self.answers[int(str(token))] = result
        token = getattr(event, "token", None)
        return self.answers.get(token) if token is not None else None

    def tick(self, crash: str = "") -> None:
        if self.machine.deadline is not None:
            self.now = max(self.now, self.machine.deadline)
            self.feed(Tick(), crash)

    def finish(self, which: int, markers: int, crash: str) -> None:
        """Carries out what was decided, perhaps long ago, or a part of it."""
        if not self.finishing:
            return
        finish = self.finishing[which % len(self.finishing)]
        for _, index in sorted(finish.partitions)[:markers]:
            self.logs[index].mark(finish)
        if markers >= len(finish.partitions):
            self.feed(Finished(finish.started), crash)
        elif crash:
            self.load()
        else:
            self.feed(Delayed(finish.started), "")

    def settle(self) -> None:
        for _ in range(4):
            if self.machine.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
                self.load()
                self.tick()
                self.finish(len(self.finishing) - 1, PARTITIONS, "")

    # -- clients

    def init(self, crash: str) -> None:
        for fresh in (None, self.next_id):
            answer = self.feed(Init(self.use(), TIMEOUT_MS, fresh=fresh), crash)
            if not isinstance(answer, NeedsProducerId):
                break
            self.next_id += 1
        if isinstance(answer, Identity) and not answer.error:
            assert (answer.producer, answer.epoch) not in self.given, "given twice"
            self.given.add((answer.producer, answer.epoch))
            self.current = Producer(answer.producer, answer.epoch)
            self.clients.append(self.current)

    def write(self, who: int, index: int, crash: str) -> None:
        if not self.clients:
            return
        client = self.clients[who % len(self.clients)]
        partitions = frozenset([("p", index)])
        answer = self.feed(Add(self.use(), client.id, client.epoch, partitions), crash)
        if not isinstance(answer, Added) or answer.error:
            return
        assert (client.id, client.epoch) == (self.machine.producer, self.machine.epoch)
        if self.logs[index].append(client.id, client.epoch, answer.started):
            client.written.add(answer.started)

    def end(self, who: int, commit: bool, crash: str) -> None:
        if not self.clients:
            return
        client = self.clients[who % len(self.clients)]
        for fresh in (None, self.next_id):
            token = self.use()
            answer = self.feed(End(token, client.id, client.epoch, commit, self.bumps, fresh), crash)
            if not isinstance(answer, NeedsProducerId):
                break
            self.next_id += 1
        if self.machine.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT) and answer is None and not crash:
            self.finish(len(self.finishing) - 1, PARTITIONS, "")
            answer = self.answers.get(token)
        if isinstance(answer, Identity) and not answer.error:
            for started in client.written:
                assert self.told.setdefault(started, commit) is commit
            if self.bumps:
                client.id, client.epoch = answer.producer, answer.epoch
                self.given.add((client.id, client.epoch))
            client.written.clear()

    # -- what must hold

    def check(self) -> None:
        outcomes: dict[int, set[bool]] = {}
        for log in self.logs:
            for started, commit in log.ended:
                outcomes.setdefault(started, set()).add(commit)
            assert len(log.ended) == len({started for started, _ in log.ended}), "ended twice on a partition"
        assert all(len(each) == 1 for each in outcomes.values()), "half committed"
        for started, commit in self.told.items():
            assert outcomes.get(started, {commit}) == {commit}, "not what the client was told"


CRASHES = st.sampled_from(["", "", "", "before", "after"])
ACTIONS = st.one_of(
    st.tuples(st.just("init"), CRASHES),
    st.tuples(st.just("write"), st.integers(-2, 1), st.integers(0, PARTITIONS - 1), CRASHES),
    st.tuples(st.just("write"), st.just(-1), st.integers(0, PARTITIONS - 1), st.just("")),
    st.tuples(st.just("end"), st.integers(-2, 1), st.booleans(), CRASHES),
    st.tuples(st.just("end"), st.just(-1), st.booleans(), st.just("")),
    st.tuples(st.just("finish"), st.integers(0, 9), st.integers(0, PARTITIONS), CRASHES),
    st.tuples(st.just("tick"), CRASHES),
    st.tuples(st.just("settle")),
)


_WRITTEN = [("init", ""), ("write", -1, 0, ""), ("write", -1, 1, "")]


# Markers before the decision is stored; a producer that goes on after its transaction was aborted at its timeout; what
# was finished long ago is reported once more.
@example(False, 0, [*_WRITTEN, ("end", -1, True, "before"), ("finish", 0, 1, ""), ("tick", "")])
@example(False, 0, [*_WRITTEN, ("tick", ""), ("settle",), ("write", -1, 2, ""), ("end", -1, True, "")])
@example(
    False, 0, [*_WRITTEN, ("end", -1, True, ""), ("write", -1, 0, ""), ("end", -1, True, "after"), ("finish", 0, 3, "")]
)
@given(st.booleans(), st.sampled_from([0, MAX_EPOCH - 4]), st.lists(ACTIONS, max_size=40))
@settings(max_examples=400, deadline=None)
def test_crashes(bumps: bool, epoch: int, actions: list[tuple[Any, ...]]) -> None:
    world = World(epoch, bumps)
    for name, *arguments in actions:
        getattr(world, name)(*arguments)
        world.check()
    if world.machine.state is State.ONGOING:
        world.tick()
    world.settle()
    world.check()
    assert not world.machine.is_open
    # What was acknowledged to belong to a transaction has ended with it.
    assert all(started > world.machine.started for log in world.logs for _, started in log.open.values())


def test_a_client_may_have_the_next_producer_id_before_that_is_stored() -> None:
    """It is answered when the markers are written. Who loads what is stored until then tells it to come again."""
    machine = Transaction("t", 0.0)
    machine.handle(Init(1, 60_000, fresh=7), 1.0)
    machine.epoch = MAX_EPOCH - 1
    machine.handle(Add(2, 7, MAX_EPOCH - 1, frozenset({("a", 0)})), 1.0)
    (_, finish) = machine.handle(End(3, 7, MAX_EPOCH - 1, commit=True, bumps=True, fresh=8), 1.0)
    stored = to_fields(machine)
    answered = machine.handle(Finished(finish.started), 1.0)
    assert answered[0] == Reply(3, Identity(producer=8, epoch=0))
    loaded = from_fields("t", stored, 0.0, 1.0)
    for event in (
        Add(4, 8, 0, frozenset({("a", 0)})),
        End(5, 8, 0, commit=True, bumps=True),
        Init(6, 60_000, known=(8, 0)),
    ):
        (reply,) = loaded.handle(event, 1.0)
        assert reply.result.error is ErrorCode.concurrent_transactions
    assert to_fields(loaded) == stored
