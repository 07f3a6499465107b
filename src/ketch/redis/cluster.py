"""The asyncio driver of questions for a Redis Cluster: a `Link` to every master, and each command to the one that has
the slot of its key.

It owns the links, what is known of the cluster's topology (`redis.topology`), and the commands that wait for a slot
that moves. It may look at no more of a command than its key, see the rule of a round in `redis.question`.

Theory of operation.

- Where a command goes is looked up in the topology when it is sent. Commands of one slot go to one node, over one
  connection, so they are executed in the order in which they were sent.
- A node that no longer has the slot of a command executes nothing and refuses it. The first refusal begins a detour
  (`_Detour`): commands of the slot that are sent from then on wait. A PING is sent to the node. When it is answered, so
  is all that was sent to the node before: each command was executed, or refused as well. The refused commands are sent
  first then, and after them those that waited, one at a time: behind an ASKING to the node that was named (ASK), or,
  after a pause, to the node that the topology names by then (TRYAGAIN). MOVED ends the detour: all commands that are
  left go to the slot's new node.
- Answers are handed on in the order of the commands of a slot, so one that comes after a refused command waits for it.
  A push may have overtaken it then, so `on_down` is called behind it.
- A command that nobody has executed within the timeout fails with StorageUnavailable. It was not executed.
- A node that is lost fails what was sent to it with StorageUnavailable, in doubt, as `Link` does.
- The topology is asked of a few nodes every second, and more often while something is amiss: a node is lost, or does
  not answer. What counts is the highest epoch among the answers that come soon (`redis.lookout`), since a node that was
  cut off knows an older topology. A node that has no slot any more is left: what it has not answered fails.
- When a node is lost, or slots have gone to another one, `on_down` is called: pushes may have been lost with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from ketch.errors import KetchError, RedisError, StorageUnavailable
from ketch.redis.driver import Node, Reply
from ketch.redis.link import Link
from ketch.redis.lookout import Lookout, newest
from ketch.redis.pipe import ask_once, drop, resolve, run
from ketch.redis.question import Command, Question, command
from ketch.redis.slots import slot
from ketch.redis.topology import (
    AGAIN,
    ASKING,
    Place,
    Redirect,
    Topology,
    amiss,
    check_whole,
    hosts,
    redirect,
    topology,
)
from ketch.redis.unusable import LOST
from ketch.redis.url import RedisAddress

T = TypeVar("T")

log = logging.getLogger(__name__)

_REFRESH_S = 1.0  # between two looks at the topology
_HURRY_S = 0.1  # the same, while a node is lost or a slot was found elsewhere
_PAUSE_S = 0.05  # before a slot that is being moved, or that no node serves, is tried again
_LOOK_S = 1.0  # to wait for the topology
_ASKED = 3  # nodes: of these one is likely to know the newest, and each node is asked by many brokers
_ERROR = ord("-")
_PING = command(None, "PING")


@dataclass(slots=True, eq=False)
class _Sent:
    """A command on its way.

    Attributes:
        until: seconds of the monotonic clock, when it is given up; 0.0 where no node has refused it yet.
        why: the last refusal; None where no node has refused it yet.
        reply: its answer, while it waits for the answers to commands before it.
    """

    command: Command
    take: Callable[[Reply], None]
    until: float = 0.0
    why: Redirect | None = None
    reply: Reply | None = None


@dataclass(slots=True, eq=False)
class _Detour:
    """The commands of a slot that a node has refused.

    Attributes:
        node: that node.
        answered: the first command that it refused, and all that it answered after that.
        later: commands that were sent since.
    """

    node: Link
    answered: deque[_Sent] = field(default_factory=deque)
    later: deque[_Sent] = field(default_factory=deque)


class Changes:
    """Logs each change of a cluster once, however many links of a program see it."""

    def __init__(self) -> None:
        self._newest: Topology | None = None

    def seen(self, found: Topology) -> None:
        """A link has found this topology. It is no change any more where another link has found a newer one."""
        known = self._newest
        if known is not None and found.epoch < known.epoch:
            return
        self._newest = found
        if known is not None and not found.same(known):
            log.info("Redis Cluster has changed: %s", hosts(found.masters))


class ClusterLink:
    """One named way to a cluster, a connection to each master: an `OwnedDriver`.

    Args:
        name, on_up, on_down, on_push: see `driver.Connect`.
        address: with the seeds, the nodes that are asked first.
        timeout: s that connecting, each reply, and a slot that nobody serves may take.
        changes: that of all links of a program to this cluster.

    Attributes:
        detours: those under way, by slot; empty while every command goes straight to its node.
    """

    def __init__(
        self,
        name: str,
        address: RedisAddress,
        timeout: float,
        on_up: Callable[[Node], Awaitable[None]] | None = None,
        on_down: Callable[[], None] | None = None,
        on_push: Callable[[Any], None] | None = None,
        changes: Changes | None = None,
    ) -> None:
        self._name, self._address, self._timeout = name, address, timeout
        self._on_up, self._on_down, self._on_push = on_up, on_down, on_push
        self._changes = changes or Changes()
        self._topology: Topology | None = None
        self._nodes: dict[Place, Link] = {}
        self._by_slot: list[Link | None] = []  # the topology, as a send needs it
        self.detours: dict[int, _Detour] = {}
        self._amiss = asyncio.Event()
        self._lookout = Lookout(self._shown_by)
        self._tasks: set[asyncio.Task[None]] = set()

    # -- the callers' side

    @property
    def up(self) -> bool:
        """Whether every slot can be asked."""
        found = self._topology
        return found is not None and found.whole and all(self._nodes[place].up for place in found.masters)

    async def ask(self, question: Question[T]) -> T:
        """See `Driver.ask`."""
        return await run(question, self._replies)

    async def ask_each(self, question: Callable[[], Question[T]]) -> list[T]:
        """See `Driver.ask_each`. The nodes are the masters."""
        return await asyncio.gather(*(node.ask(question()) for node in self._masters()))

    async def ask_named(self, question: Callable[[], Question[T]]) -> dict[str, T | KetchError]:
        """See `Driver.ask_named`. The nodes are the masters."""
        found = await asyncio.gather(*(node.ask_named(question) for node in self._masters()))
        return {name: answer for each in found for name, answer in each.items()}

    def node(self, key: bytes) -> Hashable:
        """See `Driver.node`."""
        return self._node_of(slot(key)).place

    def send(self, command: Command) -> asyncio.Future[bytes]:
        """See `Driver.send`."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.post(command, partial(resolve, future))
        return future

    def post(self, command: Command, take: Callable[[Reply], None]) -> None:
        """See `Driver.post`."""
        key = command.key
        if key is None:
            self._any().post(command, take)
            return
        self._send(_Sent(command, take))

    def way(self, at: int) -> Link | None:
        """See `Link.way`. The node's answers go to `answered`, but for a success while there is no detour."""
        node = self._by_slot[at] if self._by_slot and at not in self.detours else None
        return None if node is None else node.way(at)

    def answered(self, at: int, node: Link, command: Command, take: Callable[[Reply], None], reply: Reply) -> None:
        """A node has answered a command that was sent over a `way`; `take` gets the answer after any detour."""
        self._answered(at, node, _Sent(command, take), reply)

    def _send(self, sent: _Sent) -> None:
        assert sent.command.key is not None
        at = slot(sent.command.key)
        if at in self.detours:
            self.detours[at].later.append(sent)
        else:
            node = self._node_of(at)
            node.post(sent.command, partial(self._answered, at, node, sent))

    @property
    def behind(self) -> bool:
        return any(node.behind for node in self._masters() if node.up)

    async def drained(self) -> None:
        await asyncio.gather(*(node.drained() for node in self._masters() if node.up))

    async def _replies(self, commands: Sequence[Command]) -> list[bytes]:
        futures: list[asyncio.Future[bytes]] = []
        try:
            futures.extend(map(self.send, commands))
            return [await future for future in futures]
        except BaseException:
            drop(futures)
            raise

    # -- the nodes

    def _masters(self) -> list[Link]:
        if self._topology is None:
            raise StorageUnavailable(f"no connection to Redis at {self._address.describe()}")
        return [self._nodes[place] for place in self._topology.masters]

    def _any(self) -> Link:
        """Raises StorageUnavailable where no node is up."""
        nodes = self._masters()
        return next((node for node in nodes if node.up), nodes[0])

    def _node_of(self, at: int) -> Link:
        node = self._by_slot[at] if self._by_slot else None
        if node is None:
            self._amiss.set()
            raise StorageUnavailable(f"no node of the cluster at {self._address.describe()} has slot {at}")
        return node

    def _node_at(self, place: Place) -> Link:
        """The link to a node; one that was not known is connected to from now on."""
        node = self._nodes.get(place)
        if node is None:
            node = self._nodes[place] = self._link(place)
            node.begin()
        return node

    def _link(self, place: Place) -> Link:
        address = self._address.at(*place)
        return Link(self._name, address, self._timeout, self._on_up, self._lost, self._on_push)

    def _lost(self) -> None:
        """A node's connection went, or a slot is another node's: pushes may be missing, and the topology may be old."""
        self._amiss.set()
        if self._on_down is not None:
            self._on_down()

    # -- its life

    async def start(self) -> None:
        """See `OwnedDriver.start`: every master is connected to."""
        found = await self._first_look(self._address.seeds, 2 * self._timeout)
        nodes = [self._nodes.setdefault(place, self._link(place)) for place in found.masters]
        try:
            for node in nodes:
                await node.start()
        except StorageUnavailable:
            await self.stop()
            raise
        self._changes.seen(found)
        self._use(found)
        self._spawn(self._keep())

    async def stop(self) -> None:
        self._on_down = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._lookout.stop()
        nodes, self._nodes, self._topology, self._by_slot = list(self._nodes.values()), {}, None, []
        for node in nodes:
            await node.stop()
        for detour in self.detours.values():
            for each in (*detour.answered, *detour.later):
                each.take(StorageUnavailable(LOST))
        self.detours.clear()

    async def _first_look(self, places: Sequence[Place], limit: float) -> Topology:
        """The topology, as these nodes show it over connections opened for that: the newest of what they answer soon.

        Args:
            limit: s to wait for that.

        Raises:
            StorageUnavailable: there is none; the message says of the last node why. The cluster is not whole.
        """
        lookout = Lookout(self._shown_to_strangers)
        lookout.begin(places)
        try:
            answers = await lookout.soon(limit)
        finally:
            await lookout.stop()
        if found := newest(answers):
            return found
        error = next((str(answers[place]) for place in reversed(places) if place in answers), "")
        raise StorageUnavailable(error or f"Redis at {self._address.describe()}: no answer in time")

    async def _shown_to_strangers(self, place: Place) -> Topology:
        """The topology, over a connection opened for that. Raises RedisError where the cluster is not whole."""
        found = await ask_once(self._address.at(*place), self._timeout, topology(place[0]))
        check_whole(found, self._address.describe())
        return found

    async def _keep(self) -> None:
        """Looks at the topology for as long as the link lives."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REFRESH_S):
                    await self._amiss.wait()
            if self._amiss.is_set():
                await asyncio.sleep(_HURRY_S)
                self._amiss.clear()
            await self._look()
            if self._lookout.waits or not self.up:
                self._amiss.set()

    async def _look(self) -> None:
        """Asks some nodes for the topology."""
        nodes = [place for place, node in self._nodes.items() if node.up and not self._lookout.silent(place)]
        self._lookout.begin(_some(nodes))
        found = newest(await self._lookout.soon(_LOOK_S))
        if found is None:  # every master that was known is gone or hangs: a replica or a seed may know others
            replicas = [] if self._topology is None else list(chain(*self._topology.replicas.values()))
            with contextlib.suppress(StorageUnavailable):
                found = await self._first_look([*_some(replicas), *self._address.seeds], _LOOK_S)
        if found is not None:
            self._changes.seen(found)
            self._use(found)

    async def _shown_by(self, place: Place) -> Topology:
        try:
            node = self._nodes.get(place) or self._any()  # the node may have been left meanwhile
            return await node.ask(topology(node.place[0]))
        except (StorageUnavailable, RedisError) as error:
            log.debug("%s connection: %s does not show its cluster: %s", self._name, hosts([place]), error)
            raise

    def _use(self, found: Topology) -> None:
        """Follows a topology that is not older than what is known."""
        known = self._topology
        if known is not None and (found.epoch < known.epoch or found.same(known)):
            return
        self._topology = found
        links = [self._node_at(place) for place in found.masters]
        self._by_slot = [None if index is None else links[index] for index in found.indices()]
        for place in [place for place in self._nodes if place not in found.masters]:
            node = self._nodes.pop(place)
            node.leave()  # before `on_down`: after it nothing may be learnt from a node whose pushes are lost
            self._spawn(node.stop())
        if known is not None:
            self._lost()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- slots that move

    def _answered(self, at: int, node: Link, sent: _Sent, reply: Reply) -> None:
        """A node has answered a command, or was lost."""
        if isinstance(reply, bytes) and reply[0] == _ERROR:
            sent.why = redirect(reply)
            if sent.why is not None:
                self._detour(at, node).answered.append(sent)
                return
            if amiss(reply):
                self._amiss.set()
        detour = self.detours.get(at)
        if detour is None:
            sent.take(reply)
        else:
            sent.reply = reply
            detour.answered.append(sent)

    def _detour(self, at: int, node: Link) -> _Detour:
        detour = self.detours.get(at)
        if detour is None:
            detour = self.detours[at] = _Detour(node)
            self._spawn(self._follow(at, detour))
        return detour

    async def _follow(self, at: int, detour: _Detour) -> None:
        """Sends the commands of a slot where they belong, once the node has answered all it was sent."""
        with contextlib.suppress(StorageUnavailable):  # it is lost: all have their answers
            await detour.node.send(_PING)
        queue = detour.later = deque([*detour.answered, *detour.later])
        overtaken = any(sent.reply is not None for sent in detour.answered)
        detour.answered.clear()
        while queue:
            sent = queue[0]
            if sent.why is not None and sent.why.kind == "moved":
                await self._moved(at, self._place(detour, sent.why))
                break
            if await self._try(at, detour, sent):
                queue.popleft()
        del self.detours[at]
        for sent in queue:
            self._send_on(sent)
        if overtaken:
            self._lost()

    def _send_on(self, sent: _Sent) -> None:
        if sent.reply is not None:
            sent.take(sent.reply)
            return
        try:
            self._send(sent)
        except StorageUnavailable as error:
            sent.take(error)

    async def _try(self, at: int, detour: _Detour, sent: _Sent) -> bool:
        """Whether the command has its answer now."""
        if sent.reply is not None:
            sent.take(sent.reply)
            return True
        sent.until = sent.until or time.monotonic() + self._timeout
        if time.monotonic() > sent.until:
            sent.take(StorageUnavailable(f"slot {at} of the cluster at {self._address.describe()} is not served"))
            return True
        if sent.why is not None and sent.why.kind == "again":
            self._amiss.set()
            await asyncio.sleep(_PAUSE_S)
        tried: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        try:
            if sent.why is not None and sent.why.kind == "ask":
                node, asked = self._node_at(self._place(detour, sent.why)), _asking(sent.command)
                await node.came_up(sent.until - time.monotonic())
            else:
                node, asked = self._node_of(at), sent.command
            node.post(asked, partial(_tried, sent, tried))
        except StorageUnavailable:  # nothing was sent
            sent.why = AGAIN
            return False
        return await tried

    def _place(self, detour: _Detour, why: Redirect) -> Place:
        assert why.place is not None
        host, port = why.place
        return host or detour.node.place[0], port

    async def _moved(self, at: int, place: Place) -> None:
        """The slot is that node's from now on."""
        if self._topology is not None and self._topology.of(at) != place:
            self._use(self._topology.moved(at, place))
            self._amiss.set()  # others may have moved with it
        with contextlib.suppress(StorageUnavailable):  # who sends to it will hear of that
            await self._node_at(place).came_up(self._timeout)


def _some(places: Sequence[Place]) -> list[Place]:
    return random.sample(places, min(_ASKED, len(places)))


def _tried(sent: _Sent, tried: asyncio.Future[bool], reply: Reply) -> None:
    """A node has answered a command that was sent to it alone."""
    sent.why = redirect(reply) if isinstance(reply, bytes) else None
    if sent.why is None:
        take, sent.take = sent.take, _answered_already
        take(reply)
    if not tried.done():
        tried.set_result(sent.why is None)


def _answered_already(reply: Reply) -> None:
    """Takes what is given at the end to all that waits."""


def _asking(refused: Command) -> Command:
    """The command for a node that does not have its slot yet."""
    return Command(refused.key, (ASKING, *refused.pieces), refused.replies + 1)
