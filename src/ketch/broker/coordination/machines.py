"""The shell around machines without I/O (`coordinator.machine`): each coordinator of this broker is made of it.

A machine is loaded from Redis when a client first names it, stored before the replies that follow from the change go
out, woken when it is due, and dropped when it is idle. The cluster says which broker coordinates what. A broker that
looks at another one's machine does not take it over: the clients send their heartbeats there, so they would expire
here. Only an event of one of its clients takes it over. Each write is fenced, see `store.coordination.terms`: a machine
that another broker has written since it was loaded here is dropped.

It owns the machines in memory, their timers and the replies that are waited for. What is particular to groups, or to
another kind of machine, is in the `Kind` that it is given.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from ketch.broker.coordination.cluster import Cluster
from ketch.coordinator.machine import Machine, Persist, Reply, Tick
from ketch.errors import KetchError, NotCoordinator, StorageUnavailable
from ketch.log.log import Log
from ketch.redis.question import Question
from ketch.store.coordination.terms import Overtaken
from ketch.store.scripts import Holder
from ketch.tasks import lasting

log = logging.getLogger(__name__)

M = TypeVar("M", bound=Machine)
Token = asyncio.Future[Any]


class Kind(Protocol[M]):
    """One kind of machine: how Redis keeps it, and what is its own. It asks Redis by questions and does no I/O itself.

    Attributes:
        name: of the kind, as "group": for log lines, and so that the cluster shares out each kind by itself.
        shared: other brokers write a machine in the ordinary course, too. One that could not be stored is dropped from
            memory, and what was to follow from its change is not carried out; else it lives on and clients come again.
    """

    name: str
    shared: bool

    # -- in Redis: a hash, with `term` and `broker` beside the machine's fields (hold_state.lua, save_state.lua)

    def load(self, id: str) -> Question[dict[str, str]]:
        """The hash; empty where there is none."""

    def hold(self, id: str, holder: Holder, above: int) -> Question[str]:
        """The term to write in, higher than `above`; raises Overtaken."""

    def save(self, id: str, holder: Holder, fields: Mapping[str, str]) -> Question[str]:
        """As `hold`, and replaces the machine's fields."""

    def journal(self, id: str) -> Question[None]:
        """Tells other brokers that the machine has changed."""

    def changes(self, since: bytes | None) -> Question[tuple[list[str], bytes]]:
        """The machines that have changed since, all of them for None; and what to give as `since` the next time."""

    # -- machines

    def new(self, id: str) -> M:
        """A machine of which nothing is stored."""

    def from_fields(self, id: str, fields: Mapping[str, str], now: float) -> M | None:
        """The machine as it was stored; None where it never was.

        Raises:
            ValueError, KeyError, TypeError: the fields are not what `to_fields` makes.
        """

    def to_fields(self, machine: M) -> dict[str, str]:
        """What is stored of the machine."""

    # -- events and effects

    def takes_over(self, event: Any) -> bool:
        """Whether the event comes from a client that relies on the machine, which then is coordinated here."""

    def handle(self, machine: M, event: Any, now: float) -> list[Any]:
        """Has the machine handle the event; metrics and log lines are made here."""

    def carry_out(self, machine: M, effect: Any) -> None:
        """Carries out an effect other than Reply and Persist."""

    def changed(self, machine: M) -> None:
        """The machine was loaded, or is about to be stored."""

    def unstored(self, result: Any) -> Any:
        """What a client is told in place of `result` where the machine could not be stored."""


class Machines(Generic[M]):
    """The machines of one kind that this broker coordinates.

    Args:
        node: this broker's node id.
        log_: names the connection and this broker process.
    """

    def __init__(self, kind: Kind[M], node: int, log_: Log, cluster: Cluster) -> None:
        self._kind, self._node, self._cluster = kind, node, cluster
        self._link, self._session = log_.driver, log_.session
        self._machines: dict[str, M] = {}
        self._loading: dict[tuple[str, bool], asyncio.Task[M]] = {}
        self._timers: dict[str, tuple[float, asyncio.TimerHandle]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._saving: Counter[str] = Counter()
        self._writing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # a machine is stored in order
        self._retiring: set[str] = set()
        self._waiting: dict[Token, str] = {}
        self._followed: bytes | None = None  # up to where this broker knows other brokers' changes
        cluster.listen(self.relinquish, self.follow)

    # -- asking a machine

    async def submit(self, id: str, make: Callable[[Token], Any]) -> Any:
        """Feeds an event to a machine and waits for its reply.

        Args:
            make: the event from its token.

        Raises:
            NotCoordinator: it is another broker's.
            StorageUnavailable: the machine can't be loaded now.
        """
        return (await self._submit(id, make))[0]

    async def _submit(self, id: str, make: Callable[[Token], Any]) -> tuple[Any, M]:
        """The reply, and the machine that gave it."""
        self.require(id)
        reply: Token = asyncio.get_running_loop().create_future()
        event = make(reply)
        take = self._kind.takes_over(event)
        machine = await self._get(id, take)
        if take or machine.is_idle or id in self._machines:
            # It may have been dropped since it was loaded. Then it comes back: storing it shows whether it still holds.
            machine = self._handle(machine, event)
        else:  # another broker's, and the event comes from none of its clients
            self._carry_out(machine, self._kind.handle(machine, event, time.monotonic()))
        self._waiting[reply] = id
        try:
            return await reply, machine
        finally:
            del self._waiting[reply]

    def require(self, id: str) -> None:
        """Raises NotCoordinator unless this broker coordinates the machine."""
        if not self._coordinates(id):
            owner = self._cluster.coordinator(self._kind.name, id)
            raise NotCoordinator(f"{self._kind.name} {id} is broker {owner.id}'s")

    def _coordinates(self, id: str) -> bool:
        return self._cluster.coordinates(self._kind.name, id)

    async def get(self, id: str) -> M:
        """The machine as it stands, loaded if need be; one of which nothing is stored is a new one."""
        return await self._get(id, take=False)

    async def _get(self, id: str, take: bool) -> M:
        machine = self._machines.get(id)
        if machine is not None:
            return machine
        task = self._loading.get((id, take))
        if task is None:
            task = self._loading[id, take] = lasting(self._loaded(id, take))
        return await asyncio.shield(task)

    async def _loaded(self, id: str, take: bool) -> M:
        try:
            return await self._load(id, take)
        finally:  # not a callback of the task: it would run a turn later, when the machine may have been dropped
            self._loading.pop((id, take), None)

    async def _load(self, id: str, take: bool) -> M:
        asked = time.monotonic()
        fields = await self._link.ask(self._kind.load(id))
        stored = self._stored(id, fields)
        machine = self._kind.new(id) if stored is None else stored
        machine.term = fields.get("term", machine.term)
        if fields.get("session") == self._session and machine.term.isdecimal():
            machine.held_at = asked
        if stored is None:
            return machine  # it is kept once something happens to it
        others = fields.get("broker", str(self._node)) != str(self._node)
        if others and not take and not machine.is_idle:
            return machine
        machine = self._machines.setdefault(id, machine)
        self._kind.changed(machine)
        self._after(machine)
        return machine

    def _stored(self, id: str, fields: Mapping[str, str]) -> M | None:
        try:
            return self._kind.from_fields(id, fields, time.monotonic())
        except (ValueError, KeyError, TypeError) as error:
            log.error("%s %s: what is stored of it is damaged (%r); it starts empty", self._kind.name, id, error)
            return None

    # -- terms

    async def hold(self, machine: M, lease: bool, above: int = 0, received: float = math.inf) -> str:
        """The term in which may be written what belongs to the machine; see `store.coordination.terms`.

        Args:
            lease: `Cluster.leased_at` of the time when the request was received.
            received: that time, where a machine loaded after it need not be read again; inf where it must.

        Raises:
            Overtaken: the machine has been written since it was loaded; if it was in memory, it no longer is.
            StorageUnavailable: Redis is gone.
        """
        if machine.held_at >= received and int(machine.term) > above:
            return machine.term
        return await self._in_term(machine, lambda holder: self._kind.hold(machine.id, holder, above), lease)

    async def _in_term(self, machine: M, write: Callable[[Holder], Question[str]], lease: bool) -> str:
        loaded = machine.term
        try:
            machine.term = await self._link.ask(write(Holder(self._session, self._node, loaded, lease)))
        except Overtaken as newer:
            # Where this broker has taken a new term since `loaded`, the machine in memory is the one that is stored.
            if machine.term == loaded and self._machines.get(machine.id) is machine:
                log.log(logging.DEBUG if self._kind.shared else logging.WARNING, "%s: it is loaded again", newer)
                self._drop(machine.id)
            raise
        return machine.term

    async def retire(self, id: str, remove: Callable[[str], Awaitable[None]]) -> bool:
        """Takes a machine out of service while `remove` deletes what is stored; False where clients rely on it.

        Args:
            remove: is given the term to write in.

        Raises:
            Overtaken: another broker has written it meanwhile.
            StorageUnavailable: Redis is gone; the machine is there still, as far as it was not removed.
        """
        lease = self._cluster.lease
        found = await self.get(id)
        machine = self._machines.setdefault(id, found)
        if not machine.retire():
            return False
        self._retiring.add(id)  # a client that comes now is told to come again
        try:
            await remove(await self.hold(machine, lease))
        finally:
            self._retiring.discard(id)
            self._machines.pop(id, None)
        return True

    # -- other brokers

    def relinquish(self) -> None:
        """Brokers have come or gone: drops the machines that are another's now; clients that wait are sent there."""
        for id in {*self._waiting.values(), *self._machines}:
            if not self._coordinates(id):
                self._drop(id)

    def _drop(self, id: str) -> None:
        """Takes a machine from memory; clients that wait look for its coordinator again."""
        for reply, waited_for in self._waiting.items():
            if waited_for == id and not reply.done():
                reply.set_exception(NotCoordinator(f"{self._kind.name} {id} has moved to another broker"))
        self._release(id)

    def _release(self, id: str) -> None:
        self._machines.pop(id, None)
        if id in self._timers:
            self._timers.pop(id)[1].cancel()

    async def follow(self) -> None:
        """Looks at the machines that other brokers have changed."""
        changed, end = await self._link.ask(self._kind.changes(self._followed))
        for id in changed:
            if not self._coordinates(id):
                self._kind.changed(await self._load(id, take=False))
        self._followed = end

    def stop(self) -> None:
        """Answers clients that wait, so that they look for the next coordinator; timers end."""
        for reply in self._waiting:
            if not reply.done():
                reply.set_exception(StorageUnavailable("the broker is stopping"))
        for _, timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()

    # -- events and effects

    def _handle(self, machine: M, event: Any) -> M:
        """Feeds the event to the machine as it is in memory, which it puts there if need be; returns that."""
        machine = self._machines.setdefault(machine.id, machine)
        self._carry_out(machine, self._kind.handle(machine, event, time.monotonic()))
        self._after(machine)
        return machine

    def _carry_out(self, machine: M, effects: list[Any]) -> None:
        for n, effect in enumerate(effects):
            match effect:
                case Reply(token, result):
                    _answer(token, result)
                case Persist():
                    self._kind.changed(machine)
                    self._saving[machine.id] += 1  # from now on: who loads it before it is stored has an older one
                    # As it is now: it may change meanwhile.
                    self._spawn(self._persist(machine, self._kind.to_fields(machine), effects[n + 1 :]))
                    return
                case _:
                    self._kind.carry_out(machine, effect)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _persist(self, machine: M, fields: dict[str, str], rest: list[Any]) -> None:
        """Stores the machine, then carries out the rest. If it cannot be stored, clients are told to come again."""
        try:
            await self._save(machine, fields)
            if not self._cluster.alone:
                await self._link.ask(self._kind.journal(machine.id))
        except KetchError as error:
            overtaken = self._kind.shared and isinstance(error, Overtaken)
            level = logging.DEBUG if overtaken else logging.WARNING
            log.log(level, "%s %s: cannot be stored: %s", self._kind.name, machine.id, error)
            rest = self._after_failure(machine, rest)
        finally:
            self._saving[machine.id] -= 1
        self._carry_out(machine, rest)
        self._after(machine)

    async def _save(self, machine: M, fields: dict[str, str]) -> None:
        async with self._writing[machine.id]:
            lease = self._cluster.lease
            await self._in_term(machine, lambda holder: self._kind.save(machine.id, holder, fields), lease)

    def _after_failure(self, machine: M, rest: list[Any]) -> list[Any]:
        """What is carried out in place of `rest`, which was to follow once the machine was stored."""
        if not self._kind.shared:
            return [self._unstored(effect) for effect in rest]
        if self._machines.get(machine.id) is machine:
            self._drop(machine.id)  # nobody knows whether it is stored: only Redis does
        return [self._unstored(effect) for effect in rest if isinstance(effect, Reply)]

    def _unstored(self, effect: Any) -> Any:
        return Reply(effect.token, self._kind.unstored(effect.result)) if isinstance(effect, Reply) else effect

    # -- timers

    def _after(self, machine: M) -> None:
        """Sets the timer for what is due next; a machine that is idle is dropped."""
        if machine.is_idle:
            if not self._saving[machine.id]:
                self._dismiss(machine)
            return
        due = machine.deadline
        if due is None:
            return
        known = self._timers.get(machine.id)
        if known is not None:
            if known[0] <= due:
                return  # it looks again then: a heartbeat costs no timer
            known[1].cancel()
        delay = max(0.0, due - time.monotonic())
        timer = asyncio.get_running_loop().call_later(delay, self._tick, machine.id)
        self._timers[machine.id] = (due, timer)

    def _dismiss(self, machine: M) -> None:
        del self._saving[machine.id]
        self._writing.pop(machine.id, None)
        if self._machines.get(machine.id) is machine and machine.id not in self._retiring:
            del self._machines[machine.id]

    def _tick(self, id: str) -> None:
        del self._timers[id]
        machine = self._machines.get(id)  # perhaps not the one that the timer was set for
        if machine is not None:
            self._handle(machine, Tick())


def _answer(token: Any, result: Any) -> None:
    if not token.done():  # its connection may be gone
        token.set_result(result)
