"""The shell around machines without I/O (`coordinator.machine`): each coordinator of this broker has one.

A machine is loaded from Redis when a client first names it, stored before the replies that follow from the change go
out, woken when it is due, and dropped when it is idle. The cluster says which broker coordinates what. A broker that
looks at another one's machine does not take it over: the clients send their heartbeats there, so they would expire
here. Only an event of one of its clients takes it over. Each write is fenced, see `store.coordination.terms`: a machine
that another broker has written since it was loaded here is dropped.

It owns the machines in memory, their timers and the replies that are waited for. It knows nothing of groups or
transactions. How Redis keeps the machines is in the `Namespace` that it is given; what is particular to a kind of them
is in the kinds (`broker.coordination.kinds.kind`). A coordinator (`broker.coordination.groups`,
`broker.coordination.transactions`) uses its public methods alone, has it know what other brokers change (`observe`,
`forget`), and has the cluster call `relinquish`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

from ketch.broker.coordination.cluster import Cluster
from ketch.broker.coordination.kinds.kind import Kinds, UnknownKind
from ketch.complaints import Complaints
from ketch.coordinator.machine import Heir, Machine, Persist, Reply, Tick
from ketch.errors import KetchError, NotCoordinator, RedisError, StorageUnavailable, WritesRefused
from ketch.log.log import Log
from ketch.redis.question import Question
from ketch.store.coordination.terms import Overtaken
from ketch.store.scripts import Holder
from ketch.tasks import lasting

log = logging.getLogger(__name__)

M = TypeVar("M", bound=Machine)
T = TypeVar("T")
Token = asyncio.Future[Any]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 3.0  # far below the session timeout of any client


class Namespace(Protocol):
    """How Redis keeps the machines of one namespace of ids, of whatever kind.

    Each is a hash, with `term`, `session` and `broker` beside the machine's fields (hold_state.lua, save_state.lua).

    Attributes:
        name: as "group": for log lines, and so that the cluster shares out each namespace by itself.
        shared: other brokers write a machine in the ordinary course, too (`Machines.visit`).
    """

    name: str
    shared: bool

    def copied(self, id: str, new: bool) -> Sequence[bytes]:
        """The keys that have copies before a client relies on a machine (`log.copies`); none: it relies on no copy.

        Args:
            new: nothing was stored of it.
        """

    def load(self, id: str) -> Question[dict[str, str]]:
        """The hash; empty where there is none."""

    def hold(self, id: str, holder: Holder, above: int) -> Question[str]:
        """The term to write in, higher than `above`; raises Overtaken."""

    def save(self, id: str, holder: Holder, fields: Mapping[str, str]) -> Question[str]:
        """As `hold`, and replaces the machine's fields."""

    def journal(self, id: str) -> Question[None]:
        """Tells other brokers that the machine has changed: where it is `shared`, the one that coordinates it."""


@dataclass(slots=True, eq=False)
class _Save(Generic[M]):
    """One save of a machine.

    Attributes:
        fields: None where they are made as late as it begins.
        rests: for each Persist that it is for, the effects that come after it.
        count: how many these were when it began.
    """

    machine: M
    fields: dict[str, str] | None
    rests: list[list[Any]]
    count: int = 1


class Machines(Generic[M]):
    """The machines of one namespace that this broker coordinates.

    Args:
        node: this broker's node id.
        log_: names the connection and this broker process, and knows of copies.
    """

    def __init__(self, namespace: Namespace, kinds: Kinds[M], node: int, log_: Log, cluster: Cluster) -> None:
        self._namespace, self._kinds, self._node, self._cluster = namespace, kinds, node, cluster
        self._link, self._session, self._log = log_.driver, log_.session, log_
        self._machines: dict[str, M] = {}
        self._loading: dict[tuple[str, bool], asyncio.Task[M]] = {}
        self._timers: dict[str, tuple[float, asyncio.TimerHandle]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._saving: Counter[str] = Counter()
        self._next: dict[str, _Save[M]] = {}  # saves that wait for their turn
        self._writing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # a machine is stored in order
        self._handed_over: dict[str, M] = {}  # machines that have an heir, while saves of theirs are on their way
        self._retiring: set[str] = set()
        self._waiting: dict[Token, str] = {}
        self._complaints = Complaints()
        self._refused = 0  # saves that Redis has refused in a row

    # -- asking a machine

    async def submit(self, id: str, make: Callable[[Token], Any]) -> Any:
        """Feeds an event to a machine and waits for its reply.

        Args:
            make: the event from its token.

        Raises:
            NotCoordinator: it is another broker's.
            StorageUnavailable: the machine can't be loaded now.
            UnknownKind: a newer version stored it.
        """
        return (await self.submit_to(id, make))[0]

    async def submit_to(self, id: str, make: Callable[[Token], Any]) -> tuple[Any, M]:
        """As `submit`: the reply, and the machine that gave it."""
        self.require(id)
        reply: Token = asyncio.get_running_loop().create_future()
        event = make(reply)
        asking = self._kinds.asking(event)
        take = asking.takes_over(event)
        loaded = await self._get(id, take)
        # It may have been dropped since it was loaded. Then it comes back: storing it shows whether it still holds.
        held = self._machines.get(id, loaded)
        machine = self._kinds.meet(held, event)
        if machine is None:
            effects = asking.convert(held, event, time.monotonic())
            if not effects:
                return asking.refusal(event), held
            machine = self._machines[id] = held
            self._carry_out_all(machine, effects)
        elif machine is not held and id in self._retiring:
            raise NotCoordinator(f"{self._namespace.name} {id} is being deleted")
        elif take or machine.is_idle or id in self._machines:
            self._machines[id] = machine
            self._feed(machine, event)
        else:  # another broker's, and the event comes from none of its clients
            self._carry_out(machine, self._kinds.of(machine).handle(machine, event, time.monotonic()))
        self._waiting[reply] = id
        try:
            return await reply, machine
        finally:
            del self._waiting[reply]

    def tell(self, id: str, event: Any) -> None:
        """Feeds an event that has no reply to a machine, if that is in memory; it has to be of the machine's kind."""
        machine = self._machines.get(id)
        if machine is not None:
            self._feed(machine, event)

    async def visit(self, id: str, make: Callable[[Token], Any], lease: bool) -> Any:
        """As `submit`, for a machine that another broker coordinates: it is loaded, stored and not kept.

        Its effects may be Persist and Reply only.

        Args:
            lease: `Cluster.leased_at` of the time when the request was received.

        Raises:
            Overtaken: another broker has written it meanwhile.
            StorageUnavailable: Redis is gone.
        """
        machine = await self.read(id)
        effects = machine.handle(make(asyncio.get_running_loop().create_future()), time.monotonic())
        if any(isinstance(effect, Persist) for effect in effects):
            await self._store(machine, self._kinds.to_fields(machine), lease)
            await self._link.ask(self._namespace.journal(id))
        else:
            await self._copied(machine, _nothing)  # what the reply says was stored by a save that may lack them still
        return next(effect.result for effect in effects if isinstance(effect, Reply))

    def require(self, id: str) -> None:
        """Raises NotCoordinator unless this broker coordinates the machine."""
        if not self.coordinates(id):
            owner = self._cluster.coordinator(self._namespace.name, id)
            raise NotCoordinator(f"{self._namespace.name} {id} is broker {owner.id}'s")

    def coordinates(self, id: str) -> bool:
        """Whether this broker coordinates the machine."""
        return self._cluster.coordinates(self._namespace.name, id)

    # -- machines in memory and in Redis

    @property
    def in_memory(self) -> Mapping[str, M]:
        """Those that clients rely on, or that are being stored."""
        return self._machines

    async def get(self, id: str) -> M:
        """The machine as it stands, loaded if need be; one of which nothing is stored is a new one."""
        return await self._get(id, take=False)

    async def take_over(self, id: str) -> M:
        """As `get`, where this broker is to coordinate the machine without an event of its clients."""
        return await self._get(id, take=True)

    async def read(self, id: str) -> M:
        """The machine as it is stored now. It is not kept, and what is in memory is not looked at."""
        return (await self._read(id))[0]

    async def written(self, id: str) -> None:
        """Waits for the machine's saves that are on their way."""
        if self._saving[id]:
            async with self._writing[id]:
                pass

    def forget(self, id: str) -> bool:
        """Drops a machine from memory; False while it is being stored. Nobody may wait for its reply."""
        if self._saving[id]:
            return False
        self._release(id)
        return True

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
        machine, stored, broker = await self._read(id)
        if not stored:
            return machine  # it is kept once something happens to it
        await self._copied(machine, _nothing)  # the save that stored it may have failed for lack of them
        if broker != str(self._node) and not take and not machine.is_idle:
            return machine
        machine = self._machines.setdefault(id, machine)
        self._kinds.of(machine).changed(machine)
        self._after(machine)
        return machine

    async def _read(self, id: str) -> tuple[M, bool, str]:
        """The machine, whether anything of it is stored, and by which node."""
        asked = time.monotonic()
        fields = await self._link.ask(self._namespace.load(id))
        stored = self._stored(id, fields)
        machine = self._kinds.new(id) if stored is None else stored
        machine.term = fields.get("term", machine.term)
        if fields.get("session") == self._session and machine.term.isdecimal():
            machine.held_at = asked
        return machine, stored is not None, fields.get("broker", str(self._node))

    def _stored(self, id: str, fields: Mapping[str, str]) -> M | None:
        try:
            return self._kinds.from_fields(id, fields, time.monotonic())
        except (ValueError, KeyError, TypeError) as error:
            name = self._namespace.name
            log.error("%s %s: what is stored of it is damaged (%r); it starts empty", name, id, error)
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
        return await self._in_term(machine, lambda holder: self._namespace.hold(machine.id, holder, above), lease)

    async def _in_term(self, machine: M, write: Callable[[Holder], Question[str]], lease: bool) -> str:
        loaded = machine.term
        try:
            machine.term = await self._link.ask(write(Holder(self._session, self._node, loaded, lease)))
        except Overtaken as newer:
            # Where this broker has taken a new term since `loaded`, the machine in memory is the one that is stored.
            if machine.term == loaded and self._machines.get(machine.id) is machine:
                log.log(logging.DEBUG if self._namespace.shared else logging.WARNING, "%s: it is loaded again", newer)
                self._drop(machine.id)
            raise
        if self._handed_over.get(machine.id) is machine and machine.id in self._machines:
            self._machines[machine.id].term = machine.term  # the heir's save comes next
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
            if not self.coordinates(id):
                self._drop(id)

    def _drop(self, id: str) -> None:
        """Takes a machine from memory; clients that wait look for its coordinator again."""
        for reply, waited_for in self._waiting.items():
            if waited_for == id and not reply.done():
                reply.set_exception(NotCoordinator(f"{self._namespace.name} {id} has moved to another broker"))
        self._release(id)

    def _release(self, id: str) -> None:
        self._machines.pop(id, None)
        if id in self._timers:
            self._timers.pop(id)[1].cancel()

    async def observe(self, ids: Iterable[str]) -> None:
        """Looks at machines that other brokers have changed."""
        for id in ids:
            if not self.coordinates(id):
                with contextlib.suppress(UnknownKind):  # none that this broker could know anything of
                    machine = await self._load(id, take=False)
                    self._kinds.of(machine).changed(machine)

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

    def _feed(self, machine: M, event: Any) -> None:
        """Has a machine that is in memory handle the event."""
        self._carry_out_all(machine, self._kinds.of(machine).handle(machine, event, time.monotonic()))

    def _carry_out_all(self, machine: M, effects: list[Any]) -> None:
        """Carries out what an event has led to, and looks what is due next."""
        self._carry_out(machine, effects)
        self._after(self._machines.get(machine.id, machine))

    def _carry_out(self, machine: M, effects: list[Any]) -> None:
        kind = self._kinds.of(machine)
        for n, effect in enumerate(effects):
            match effect:
                case Reply(token, result):
                    _answer(token, result)
                case Persist():
                    kind.changed(machine)
                    self._saving[machine.id] += 1  # from now on: who loads it before it is stored has an older one
                    self._save_soon(machine, effects[n + 1 :])
                    return
                case Heir(heir):
                    self._hand_over(machine, cast(M, heir))
                    self._carry_out(cast(M, heir), effects[n + 1 :])
                    return
                case _:
                    kind.carry_out(machine, effect)

    def _hand_over(self, machine: M, heir: M) -> None:
        """Puts another machine in this one's place. Saves that are on their way come before the heir's."""
        heir.term, heir.held_at = machine.term, machine.held_at
        if self._machines.get(machine.id) is machine:
            self._machines[machine.id] = heir
        if self._saving[machine.id]:
            self._handed_over[machine.id] = machine

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _save_soon(self, machine: M, rest: list[Any]) -> None:
        """Has the machine stored, and the rest carried out then. A save that waits for its turn takes the newest state.

        Where a hundred members of a group change at once, the group is so stored a few times, and not a hundred.
        """
        # Where not every state may be stored, the fields are made now: the machine may change before its turn comes.
        fields = None if self._stores_any_state(machine) else self._kinds.to_fields(machine)
        waits = self._next.get(machine.id)
        if waits is not None and waits.machine is machine and not self._namespace.shared:
            waits.fields = fields
            waits.rests.append(rest)
            return
        save = self._next[machine.id] = _Save(machine, fields, [rest])
        self._spawn(self._persist(save))

    def _stores_any_state(self, machine: M) -> bool:
        """Whether each of its states may be stored, whichever was stored last: then the save makes its fields."""
        return not self._namespace.shared and not self._kinds.of(machine).outlives

    async def _persist(self, save: _Save[M]) -> None:
        """Stores the machine, then carries out the rest. If it cannot be stored, clients are told to come again."""
        machine = save.machine
        try:
            await self._save(save)
            self._refused = 0
            # Where it is shared, this broker is the one that the journal is for.
            if not self._namespace.shared and not self._cluster.alone:
                await self._link.ask(self._namespace.journal(machine.id))
        except KetchError as error:
            text = f"{self._namespace.name} {machine.id}: cannot be stored: {error}"
            overtaken = self._namespace.shared and isinstance(error, Overtaken)
            if overtaken:
                log.debug(text)
            elif line := self._complaints.line(text, time.monotonic()):  # members come again at once
                log.warning(line)
            if isinstance(error, RedisError | WritesRefused):  # where clients came again at once, each time all would
                await asyncio.sleep(pause(self._refused))
                self._refused += 1
            save.rests = [self._after_failure(machine, [effect for rest in save.rests for effect in rest])]
        finally:
            self._saving[machine.id] -= save.count
            if not self._saving[machine.id]:  # nothing is kept of it but the machine, if that is still here
                del self._saving[machine.id]
                self._writing.pop(machine.id, None)
                self._handed_over.pop(machine.id, None)
        for rest in save.rests:
            self._carry_out(machine, rest)
        self._after(machine)

    async def _save(self, save: _Save[M]) -> None:
        machine = save.machine
        async with self._writing[machine.id]:
            if self._next.get(machine.id) is save:
                del self._next[machine.id]
            save.count = len(save.rests)
            if self._is_dropped(machine):
                raise NotCoordinator(f"{self._namespace.name} {machine.id} is loaded again")
            fields = self._kinds.to_fields(machine) if save.fields is None else save.fields
            await self._store(machine, fields, self._cluster.lease)

    def _is_dropped(self, machine: M) -> bool:
        """Whether an earlier save of it has failed, so that what is stored counts: it would overwrite that unseen.

        Where the namespace is shared, each save takes a new term, which shows that.
        """
        if self._namespace.shared or self._kinds.of(machine).outlives:
            return False
        return all(each.get(machine.id) is not machine for each in (self._machines, self._handed_over))

    async def _store(self, machine: M, fields: Mapping[str, str], lease: bool) -> None:
        def save() -> Awaitable[str]:
            return self._in_term(machine, lambda holder: self._namespace.save(machine.id, holder, fields), lease)

        await self._copied(machine, save)

    async def _copied(self, machine: M, write: Callable[[], Awaitable[T]]) -> T:
        """Writes, and waits until what is stored of the machine, by this write or an earlier one, has its copies."""
        keys = self._namespace.copied(machine.id, new=machine.term == "0")
        return await (self._log.copied(self._link, keys, write) if keys else write())

    def _after_failure(self, machine: M, rest: list[Any]) -> list[Any]:
        """What is carried out in place of `rest`, which was to follow once the machine was stored."""
        kind = self._kinds.of(machine)
        told = [Reply(each.token, kind.unstored(each.result)) if isinstance(each, Reply) else each for each in rest]
        if kind.outlives:
            return told
        replies = [effect for effect in told if isinstance(effect, Reply)]
        if not self._namespace.shared:
            for reply in replies:  # before those who wait are sent on
                _answer(reply.token, reply.result)
        if self._machines.get(machine.id) is machine:
            self._drop(machine.id)  # nobody knows whether it is stored: only Redis does
        return replies

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
        if self._machines.get(machine.id) is machine and machine.id not in self._retiring:
            del self._machines[machine.id]

    def _tick(self, id: str) -> None:
        del self._timers[id]
        self.tell(id, Tick())  # perhaps not the machine that the timer was set for


def pause(refused: int) -> float:
    """How long clients wait to be told that a machine could not be stored, in seconds.

    Args:
        refused: how many saves before it Redis has refused in a row.
    """
    return min(_FIRST_PAUSE_S * 2.0 ** min(refused, 10), _LONGEST_PAUSE_S)


async def _nothing() -> None:
    """Writes nothing."""


def _answer(token: Any, result: Any) -> None:
    if not token.done():  # its connection may be gone
        token.set_result(result)
