"""The shell around machines, with the smallest machines that use all of it: two kinds, two brokers, one Redis."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import Callable, Coroutine, Hashable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import UnionType
from typing import Any

import pytest

from ketch.broker.coordination.kinds.kind import Kinds, UnknownKind
from ketch.broker.coordination.machines import Machines, pause
from ketch.coordinator.machine import Heir, Persist, Reply, Tick
from ketch.errors import NotCoordinator, StorageUnavailable
from ketch.redis.question import Question, ask, call
from ketch.store.cluster.brokers import Announced, Node
from ketch.store.coordination import terms
from ketch.store.coordination.terms import Overtaken
from ketch.store.scripts import Holder, hold_state, save_state
from tests.support.brokers import SilentBroker
from tests.support.ketch import KetchServer

COME_AGAIN, TIME_IS_UP = "come again", "time is up"


@dataclass
class Add:
    """Adds to the tally, which is stored; answered with the sum."""

    token: Hashable
    number: int = 1


@dataclass
class Look:
    """Answered with the sum; comes from no client of the tally."""

    token: Hashable


@dataclass
class Wait:
    """Answered when the time is up."""

    token: Hashable
    seconds: float


@dataclass
class Tally:
    """The machine: a sum. It is idle at 0."""

    id: str
    sum: int = 0
    term: str = "0"
    held_at: float = -math.inf
    waiting: list[Hashable] = field(default_factory=list)
    deadline: float | None = None
    retired: bool = False

    def handle(self, event: Any, now: float) -> list[Any]:
        match event:
            case _ if self.retired:
                return [Reply(event.token, COME_AGAIN)]
            case Add(token, number):
                self.sum += number
                return [Persist(), Reply(token, self.sum)]
            case Look(token):
                return [Reply(token, self.sum)]
            case Wait(token, seconds):
                self.waiting.append(token)
                self.deadline = now + seconds
            case Tick() if self.deadline is not None and self.deadline <= now:
                waiting, self.waiting, self.deadline = self.waiting, [], None
                return [Reply(token, TIME_IS_UP) for token in waiting]
        return []

    @property
    def is_idle(self) -> bool:
        return not self.sum and not self.waiting

    def retire(self) -> bool:
        self.retired = self.is_idle
        return self.retired


class TallyNamespace:
    """How Redis keeps tallies and flags."""

    name = "tally"
    shared = False

    def __init__(self, keyspace: str) -> None:
        self._keyspace, self.saves = keyspace, 0

    def copied(self, id: str, new: bool) -> list[bytes]:
        return [self.key(id)]

    def key(self, id: str) -> bytes:
        return f"{self._keyspace}:tally:{id}".encode()

    def load(self, id: str) -> Question[dict[str, str]]:
        pairs = yield from call(self.key(id), "HGETALL", self.key(id))
        return {key.decode(): value.decode() for key, value in zip(pairs[::2], pairs[1::2], strict=True)}

    def hold(self, id: str, holder: Holder, above: int) -> Question[str]:
        return terms.granted(f"tally {id}", (yield from ask(hold_state(self.key(id), holder, above))))

    def save(self, id: str, holder: Holder, fields: Mapping[str, str]) -> Question[str]:
        self.saves += 1
        return terms.granted(f"tally {id}", (yield from ask(save_state(self.key(id), holder, fields))))

    def journal(self, id: str) -> Question[None]:
        yield from call(self.key("journal"), "XADD", self.key("journal"), "*", "id", id)

    def changes(self, since: bytes | None) -> Question[tuple[list[str], bytes]]:
        after = b"(" + since if since else "-"
        found = yield from call(self.key("journal"), "XRANGE", self.key("journal"), after, "+")
        return [fields[1].decode() for _, fields in found], found[-1][0] if found else since or b"0-0"


class TallyKind:
    """What is particular to a tally: the first kind of its namespace."""

    name = "tally"
    machine: type[Tally] = Tally
    events: UnionType = Add | Look | Wait
    gives_way = True
    outlives = True

    def __init__(self) -> None:
        self.changed_ids: list[str] = []

    def new(self, id: str) -> Tally:
        return Tally(id)

    def from_fields(self, id: str, fields: Mapping[str, str], now: float) -> Tally | None:
        return Tally(id, int(fields["sum"])) if "sum" in fields else None

    def to_fields(self, machine: Tally) -> dict[str, str]:
        return {"sum": str(machine.sum)}

    def takes_over(self, event: Any) -> bool:
        return not isinstance(event, Look)

    def handle(self, machine: Tally, event: Any, now: float) -> list[Any]:
        return machine.handle(event, now)

    def carry_out(self, machine: Tally, effect: Any) -> None:
        raise AssertionError("a tally has no effects of its own")

    def changed(self, machine: Tally) -> None:
        self.changed_ids.append(machine.id)

    def unstored(self, result: Any) -> Any:
        return COME_AGAIN

    def convert(self, machine: Any, event: Any, now: float) -> list[Any]:
        return []

    def refusal(self, event: Any) -> Any:
        return f"{type(event).__name__}: it is no tally"


@dataclass
class Raise:
    """Raises the flag, which is stored; answered with True."""

    token: Hashable


@dataclass
class Lower:
    """Lowers the flag, as `Raise` raises it; answered with False."""

    token: Hashable


@dataclass
class Flag:
    """The machine of the second kind. It is idle while it is down. It serves Look, as a tally does."""

    id: str
    up: bool = False
    term: str = "0"
    held_at: float = -math.inf
    deadline: float | None = None

    def handle(self, event: Any, now: float) -> list[Any]:
        if isinstance(event, Look):
            return [Reply(event.token, self.up)]
        self.up = isinstance(event, Raise)
        return [Persist(), Reply(event.token, self.up)]

    @property
    def is_idle(self) -> bool:
        return not self.up

    def retire(self) -> bool:
        return self.is_idle


class FlagKind:
    """What is particular to a flag."""

    name = "flag"
    machine: type[Flag] = Flag
    events: UnionType = Raise | Lower | Look
    gives_way = True
    outlives = True

    def __init__(self) -> None:
        self.changed_ids: list[str] = []

    def new(self, id: str) -> Flag:
        return Flag(id)

    def from_fields(self, id: str, fields: Mapping[str, str], now: float) -> Flag | None:
        return Flag(id, fields["up"] == "yes")

    def to_fields(self, machine: Flag) -> dict[str, str]:
        return {"up": "yes" if machine.up else "no"}

    def takes_over(self, event: Any) -> bool:
        return not isinstance(event, Look)

    def handle(self, machine: Flag, event: Any, now: float) -> list[Any]:
        return machine.handle(event, now)

    def carry_out(self, machine: Flag, effect: Any) -> None:
        raise AssertionError("a flag has no effects of its own")

    def changed(self, machine: Flag) -> None:
        self.changed_ids.append(machine.id)

    def unstored(self, result: Any) -> Any:
        return COME_AGAIN

    def convert(self, machine: Any, event: Any, now: float) -> list[Any]:
        """A flag is raised on a tally of 100: it takes the tally's place."""
        if isinstance(machine, Tally) and machine.sum == 100 and isinstance(event, Raise):
            heir = Flag(machine.id)
            return [Heir(heir), *heir.handle(event, now)]
        return []

    def refusal(self, event: Any) -> Any:
        return f"{type(event).__name__}: it is no flag"


class Broker(SilentBroker):
    """A broker that coordinates tallies and flags."""

    def __init__(self, url: str, keyspace: str, node: int) -> None:
        super().__init__(url, keyspace, node)
        self.namespace, self.kind, self.flags = TallyNamespace(keyspace), TallyKind(), FlagKind()
        kinds = Kinds[Any](self.kind, self.flags)
        self.tallies = Machines(self.namespace, kinds, node, self.log, self.cluster)
        self.followed: bytes | None = None
        self.cluster.listen(self.tallies.relinquish, self.follow)

    def stop(self) -> None:
        self.tallies.stop()

    async def add(self, id: str, number: int = 1) -> Any:
        return await self.tallies.submit(id, lambda token: Add(token, number))

    async def look(self, id: str) -> Any:
        return await self.tallies.submit(id, Look)

    async def stored(self, id: str) -> dict[str, str]:
        return await self.log.driver.ask(self.namespace.load(id))

    async def hset(self, id: str, *words: str) -> None:
        key = self.namespace.key(id)
        await self.log.driver.ask(call(key, "HSET", key, *words))

    async def delete(self, id: str) -> None:
        key = self.namespace.key(id)
        await self.log.driver.ask(call(key, "DEL", key))

    async def follow(self) -> None:
        changed, self.followed = await self.log.driver.ask(self.namespace.changes(self.followed))
        await self.tallies.observe(changed)


Work = Callable[[Broker, Broker, str], Coroutine[Any, Any, None]]


@pytest.fixture
def brokers(broker: KetchServer) -> Callable[[Work], None]:
    """Runs work with a broker that knows only itself, one that knows both, and a tally that both would coordinate."""
    url, keyspace = broker.redis_url, f"machines-{uuid.uuid4()}"

    async def run(work: Work) -> None:
        async with AsyncExitStack() as stack:
            stale, fresh = Broker(url, keyspace, 1), Broker(url, keyspace, 2)
            for one in (stale, fresh):
                await stack.enter_async_context(one.running())
            names = (f"tally {n}" for n in range(1000))
            await work(stale, fresh, next(name for name in names if fresh.cluster.coordinates("tally", name)))

    return lambda work: asyncio.run(run(work))


def test_what_is_answered_is_stored(brokers: Callable[[Work], None]) -> None:
    async def work(stale: Broker, fresh: Broker, name: str) -> None:
        for expected in (1, 2):
            assert await stale.add(name) == expected
            stored = await stale.stored(name)
            assert (stored["sum"], stored["broker"]) == (str(expected), "1")
        assert await fresh.add(name) == 3, "the next coordinator goes on where it stood"
        assert (await fresh.stored(name))["broker"] == "2"

    brokers(work)


def test_saves_that_wait_are_one(brokers: Callable[[Work], None]) -> None:
    async def work(stale: Broker, fresh: Broker, name: str) -> None:
        assert await asyncio.gather(*(stale.add(name) for _ in range(50))) == list(range(1, 51))
        assert (await stale.stored(name))["sum"] == "50"
        assert stale.namespace.saves <= 2, "the first one, and one for all that came while it was on its way"

    brokers(work)


def test_redis_refuses_to_store_it(brokers: Callable[[Work], None]) -> None:
    """Each save in a row that Redis refuses is answered later than the one before."""

    async def work(stale: Broker, fresh: Broker, name: str) -> None:
        key, aside = stale.namespace.key(name), stale.namespace.key("aside")
        assert await stale.add(name) == 1
        await stale.log.driver.ask(call(key, "RENAME", key, aside))
        await stale.log.driver.ask(call(key, "SET", key, "no hash"))
        assert await stale.add(name) == COME_AGAIN
        await stale.log.driver.ask(call(key, "RENAME", aside, key))
        assert await stale.add(name) == 3, "a tally outlives a failure"

    brokers(work)
    waits = [pause(refused) for refused in range(2000)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0.1, 3.0)


def test_a_former_coordinator_stores_nothing(brokers: Callable[[Work], None]) -> None:
    async def work(stale: Broker, fresh: Broker, name: str) -> None:
        assert await stale.add(name) == 1
        assert await fresh.add(name) == 2
        with pytest.raises(NotCoordinator, match="has moved"):
            await stale.add(name, 10)
        assert (await fresh.stored(name))["sum"] == "2"
        assert await stale.add(name, 10) == 12, "it is loaded again, and taken over"
        with pytest.raises(NotCoordinator, match="has moved"):
            await fresh.add(name)

    brokers(work)


def test_a_machine_that_was_loaded_for_a_request_is_not_looked_at_again(brokers: Callable[[Work], None]) -> None:
    async def work(stale: Broker, fresh: Broker, name: str) -> None:
        await stale.add(name)
        await stale.add(name, -1)  # idle: no longer in memory
        assert (await fresh.tallies.get(name)).held_at == -math.inf
        received = time.monotonic()
        loaded = await stale.tallies.get(name)
        await fresh.add(name)
        assert await stale.tallies.hold(loaded, lease=True, received=received) == loaded.term
        for later in ({"received": time.monotonic()}, {"received": received, "above": int(loaded.term)}, {}):
            with pytest.raises(Overtaken):
                await stale.tallies.hold(loaded, lease=True, **later)

    brokers(work)


def test_what_is_not_stored_is_not_answered(brokers: Callable[[Work], None]) -> None:
    async def work(stale: Broker, fresh: Broker, name: str) -> None:
        await stale.add(name)
        key = stale.namespace.key(name)
        await stale.log.driver.ask(call(key, "SET", key, "no hash"))
        assert await stale.add(name) == COME_AGAIN

    brokers(work)


def test_to_look_at_it_does_not_take_it_over(brokers: Callable[[Work], None]) -> None:
    async def work(stale: Broker, fresh: Broker, name: str) -> None:
        assert await stale.add(name) == 1
        assert await fresh.look(name) == 1
        assert (await fresh.tallies.get(name)).sum == 1
        assert await stale.add(name) == 2
        assert await fresh.look(name) == 2

    brokers(work)


def test_other_brokers_are_told(brokers: Callable[[Work], None]) -> None:
    async def work(stale: Broker, fresh: Broker, name: str) -> None:
        await fresh.add(name)
        stale.cluster.update([Announced(Node(2, "h", 1), "s", 1, 0)], 1.0)
        await stale.follow()
        assert stale.kind.changed_ids == [name]
        await stale.follow()
        assert stale.kind.changed_ids == [name]
        with pytest.raises(NotCoordinator, match=f"{name} is broker 2's"):
            await stale.add(name)

    brokers(work)


def test_clients_that_wait_are_sent_on(brokers: Callable[[Work], None]) -> None:
    async def work(stale: Broker, fresh: Broker, name: str) -> None:
        waiting = asyncio.ensure_future(stale.tallies.submit(name, lambda token: Wait(token, 600.0)))
        while not (await stale.tallies.get(name)).waiting:
            await asyncio.sleep(0)
        stale.cluster.update([Announced(Node(2, "h", 1), "s", 1, 0)], 1.0)
        with pytest.raises(NotCoordinator, match="has moved"):
            await waiting
        waiting = asyncio.ensure_future(fresh.tallies.submit(name, lambda token: Wait(token, 600.0)))
        while not (await fresh.tallies.get(name)).waiting:
            await asyncio.sleep(0)
        fresh.tallies.stop()
        with pytest.raises(StorageUnavailable, match="stopping"):
            await waiting

    brokers(work)


def test_time(brokers: Callable[[Work], None]) -> None:
    async def work(stale: Broker, fresh: Broker, name: str) -> None:
        assert await stale.tallies.submit(name, lambda token: Wait(token, 0.01)) == TIME_IS_UP
        assert not (await stale.tallies.get(name)).waiting

    brokers(work)


def test_an_idle_one_may_be_deleted(brokers: Callable[[Work], None]) -> None:
    async def work(stale: Broker, fresh: Broker, name: str) -> None:
        during: list[Any] = []

        async def remove(term: str) -> None:
            during.append(await stale.add(name))
            await stale.delete(name)

        await stale.add(name)
        assert not await stale.tallies.retire(name, remove)
        await stale.add(name, -1)
        assert await stale.tallies.retire(name, remove)
        assert during == [COME_AGAIN]
        assert await stale.stored(name) == {}
        assert await stale.add(name) == 1

    brokers(work)


def test_what_is_damaged_starts_anew(brokers: Callable[[Work], None]) -> None:
    async def work(stale: Broker, fresh: Broker, name: str) -> None:
        await stale.hset(name, "sum", "many")
        assert await stale.add(name) == 1

    brokers(work)


# -- two kinds in one namespace


def test_the_first_event_gives_an_id_its_kind(brokers: Callable[[Work], None]) -> None:
    async def work(stale: Broker, fresh: Broker, name: str) -> None:
        assert await stale.tallies.submit(name, Raise) is True
        stored = await stale.stored(name)
        assert (stored["type"], stored["up"]) == ("flag", "yes")
        assert await fresh.look(name) is True, (
            "another broker knows it by what is stored, and both kinds have this event"
        )
        assert await stale.add(f"{name}-tally") == 1
        assert "type" not in await stale.stored(f"{name}-tally"), "as it was stored before there was a second kind"

    brokers(work)


def test_an_event_of_another_kind_is_refused_while_clients_rely_on_the_machine(brokers: Callable[[Work], None]) -> None:
    async def work(stale: Broker, fresh: Broker, name: str) -> None:
        await stale.tallies.submit(name, Raise)
        for broker in (stale, fresh):  # the one has it in memory, the other has to load it
            assert await broker.add(name) == "Add: it is no tally"
        assert (await fresh.stored(name))["up"] == "yes"
        await stale.add(f"{name}-tally")
        assert await stale.tallies.submit(f"{name}-tally", Raise) == "Raise: it is no flag"
        assert await stale.add(f"{name}-tally") == 2

    brokers(work)


def test_an_idle_machine_gives_way_to_one_of_another_kind(brokers: Callable[[Work], None]) -> None:
    async def work(stale: Broker, fresh: Broker, name: str) -> None:
        await stale.add(name)
        await stale.add(name, -1)
        assert await stale.tallies.submit(name, Raise) is True
        stored = await stale.stored(name)
        assert ("sum" in stored, stored["up"]) == (False, "yes")
        await stale.tallies.submit(name, Lower)
        assert await fresh.add(name, 5) == 5, "at another broker, in a term of its own"
        assert "type" not in await fresh.stored(name)

    brokers(work)


def test_a_machine_that_is_being_deleted_gives_way_to_none(brokers: Callable[[Work], None]) -> None:
    async def work(stale: Broker, fresh: Broker, name: str) -> None:
        async def remove(term: str) -> None:
            with pytest.raises(NotCoordinator, match="is being deleted"):
                await stale.tallies.submit(name, Raise)
            await stale.delete(name)

        await stale.add(name)
        await stale.add(name, -1)
        assert await stale.tallies.retire(name, remove)
        assert await stale.tallies.submit(name, Raise) is True

    brokers(work)


def test_what_is_stored_of_an_unknown_kind_stays(brokers: Callable[[Work], None]) -> None:
    async def work(stale: Broker, fresh: Broker, name: str) -> None:
        await fresh.tallies.submit(name, Raise)
        await stale.hset(name, "type", "banner")
        with pytest.raises(UnknownKind, match="stored as banner"):
            await stale.add(name)
        assert (await stale.stored(name))["up"] == "yes"
        known = next(f"{n}" for n in range(1000) if fresh.cluster.coordinates("tally", f"{n}"))
        await fresh.add(known)
        stale.cluster.update([Announced(Node(2, "h", 1), "s", 1, 0)], 1.0)
        await stale.tallies.observe([name, known])
        assert set(stale.kind.changed_ids) == {known}, "the other one is passed over"

    brokers(work)


def test_a_machine_takes_the_place_of_another_with_what_waits_for_it(brokers: Callable[[Work], None]) -> None:
    """Saves of the old machine that are on their way are stored and answered; then the new one is."""

    async def work(stale: Broker, fresh: Broker, name: str) -> None:
        await fresh.add(name, 97)
        answers = await asyncio.gather(
            stale.add(name, 1), stale.add(name, 2), stale.tallies.submit(name, Raise), stale.tallies.submit(name, Look)
        )
        assert answers == [98, 100, True, True], "the first save takes a new term, which the new machine goes on in"
        stored = await stale.stored(name)
        assert (stored["type"], stored["up"]) == ("flag", "yes")
        assert "sum" not in stored

    brokers(work)
