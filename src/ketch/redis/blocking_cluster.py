"""The blocking driver of a Redis Cluster: a connection to each node that is asked, opened when it is first needed.

It owns those connections and the topology that they are chosen by. What a node answers that has not the slot of a key
is read by `redis.topology`; one server's connection is `redis.blocking_node`.

How commands reach their nodes, and in which order:

- A command goes to the master that has the slot of its key, one without a key to any master. Those of a round are sent
  to all nodes before the first reply is waited for, and questions that were begun follow each other in the same way.
- A node that has not the slot refuses the command and executes nothing. Those behind it were sent already. So all that
  is in flight is taken first. Then what was refused is sent again in waves: of each slot one command at a time, so each
  of them waits for the one before. Nothing else is sent meanwhile.
- In the meantime a later command of the slot may have been executed: one for a key that had not been moved yet, say.
  Then the order is broken and cannot be mended. The driver ends as with a lost connection (StorageUnavailable), because
  callers must find out then what was stored.
- A slot that is being moved would do that to every round of several keys. So its commands are sent in waves at once as
  soon as this process knows of the move.
- What no node can execute now (TRYAGAIN, CLUSTERDOWN, LOADING) is sent again for as long as a reply may take.
- A lost connection ends the driver, because what was sent to the node is in doubt. The next driver asks all nodes that
  this process has known where the slots are, not those of the URL alone.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ketch.errors import ConfigError, RedisError, StorageUnavailable
from ketch.redis.blocking_node import Asked, Connection
from ketch.redis.question import Command, Question
from ketch.redis.resp import first_error
from ketch.redis.server import Server
from ketch.redis.slots import slot
from ketch.redis.topology import AGAIN, ASKING, Place, Redirect, Topology, amiss, check_whole, redirect, topology
from ketch.redis.url import spelled
from ketch.wire.pieces import BytesLike

T = TypeVar("T")

_PAUSE = 0.01, 0.25  # s before what was refused is sent once more, and at most; it doubles
_MOVING_S = 60.0  # for how long a slot counts as being moved after a node said so


@dataclass(slots=True, eq=False)
class _Sent:
    """A command and what has become of it.

    Attributes:
        slot: of its key; None without a key.
        place: the node that it was sent to; None where no node has the slot.
        asking: behind an ASKING.
        reply: empty until it was taken.
        refused: why it has to be sent again, and in Redis's words `said`.
    """

    command: Command
    slot: int | None
    place: Place | None
    asking: bool = False
    reply: bytes = b""
    refused: Redirect | None = None
    said: bytes = b""

    @property
    def pieces(self) -> tuple[BytesLike, ...]:
        return (ASKING, *self.command.pieces) if self.asking else self.command.pieces

    @property
    def moves(self) -> bool:
        """Whether it was refused because its slot is being moved."""
        return self.refused is not None and (self.refused.kind == "ask" or self.said.startswith(b"-TRYAGAIN"))

    def take(self, connection: Connection) -> None:
        """Reads the replies, which are the next ones of the connection that it was sent over."""
        before = self.command.replies - 1 + self.asking
        replies = connection.reply(before) if before else b""
        self.reply = connection.reply()
        if self.slot is None or not self.reply.startswith(b"-"):
            return
        self.said = _telling(replies, self.reply)
        self.refused = AGAIN if amiss(self.said) else redirect(self.said)
        if self.refused is not None and self.refused.place is not None and not self.refused.place[0]:
            assert self.place is not None
            self.refused = self.refused._replace(place=(self.place[0], self.refused.place[1]))

    def again(self, place: Place | None) -> None:
        """Is to be sent to this node; None where there is none."""
        self.asking = self.refused is not None and self.refused.kind == "ask"
        self.place, self.reply = place, b""
        self.refused = AGAIN if place is None else None


@dataclass(slots=True, eq=False)
class _Node:
    """A connection to a node, and the commands whose replies were not taken from it yet."""

    connection: Connection
    waiting: deque[_Sent] = field(default_factory=deque)


class _Memory:
    """What this process knows of a cluster, for the drivers to come. Threads share it.

    Attributes:
        places: the nodes, those first that are to be asked first.
    """

    def __init__(self, seeds: tuple[Place, ...]) -> None:
        self._seeds = seeds
        self.places = list(seeds)
        self._moving: dict[int, float] = {}  # slots, and until when they count as being moved

    def learn(self, found: Topology) -> None:
        """These nodes there are, and no others."""
        nodes = dict.fromkeys((*found.masters, *(each for others in found.replicas.values() for each in others)))
        known = [each for each in self.places if each in nodes or each in self._seeds]
        self.places = [*dict.fromkeys((*known, *nodes))]

    def prefer(self, place: Place) -> None:
        """The node comes first from now on."""
        self.places = [place, *(each for each in self.places if each != place)]

    def doubt(self, place: Place) -> None:
        """The node comes last from now on."""
        self.places = [*(each for each in self.places if each != place), place]

    def note(self, refused: _Sent) -> None:
        """Learns from a refusal, of its slot and its node."""
        told = refused.refused
        if told is None or refused.place is None or refused.slot is None:
            return
        if refused.moves:
            self._moving[refused.slot] = time.monotonic() + _MOVING_S
        elif told.kind == "moved" and told.place is not None:
            self._moving.pop(refused.slot, None)
            self.prefer(told.place)
        else:
            self.doubt(refused.place)

    def moving(self, sent: Iterable[_Sent]) -> bool:
        """Whether a command's slot is being moved."""
        if not self._moving:
            return False
        now = time.monotonic()
        self._moving = {slot: until for slot, until in [*self._moving.items()] if until > now}
        return any(each.slot in self._moving for each in sent)


_memories: dict[tuple[Place, ...], _Memory] = {}


class ClusterConnection:
    """A `BlockingDriver` of a Redis Cluster.

    Raises:
        StorageUnavailable: from every method, when a node is gone or does not answer in time, or when no node serves
            the slot of a key for as long. The driver is of no use then.
        ConfigError: from the constructor, for a URL that is none, or which names a server that is in no cluster.

    Args:
        name: as CLIENT LIST shows it.
    """

    def __init__(self, server: Server, name: str = "ketch-spark") -> None:
        self._server, self._name = server, name
        self._address = server.address()
        self._memory = _memories.setdefault(self._address.seeds, _Memory(self._address.seeds))
        self._nodes: dict[Place, _Node] = {}
        self._rounds: dict[Asked[Any], list[_Sent]] = {}  # that were not waited for yet, in the order of sending
        self._ended: StorageUnavailable | None = None
        try:
            self._topology = self._look()
        except BaseException:
            self.close()
            raise

    def ask(self, question: Question[T]) -> T:
        """The answer to a question, see `redis.question`; raises whatever it raises, too."""
        return self.begin(question).answer()

    def ask_each(self, question: Callable[[], Question[T]]) -> list[T]:
        """See `BlockingDriver.ask_each`: of every master."""
        self._check()
        try:
            self._settle()
            self._topology = self._look()
            return [self._node(place).connection.ask(question()) for place in self._topology.masters]
        except StorageUnavailable as error:
            self._end(error)
            raise

    def begin(self, question: Question[T]) -> Asked[T]:
        """See `BlockingDriver.begin`. It waits after all for a slot that is being moved."""
        return Asked(self, question)

    def expect(self, asked: Asked[Any], commands: Sequence[Command]) -> None:
        """See `blocking_node.Carrier`."""
        self._check()
        sent = [self._addressed(command) for command in commands]
        try:
            if self._memory.moving(sent):
                self._settle()
                self._in_waves(sent)
            else:
                self._send(sent)
        except StorageUnavailable as error:
            self._end(error)
            raise
        self._rounds[asked] = sent

    def wait(self, asked: Asked[Any]) -> None:
        """See `blocking_node.Carrier`."""
        if asked.replies is not None:
            return
        sent = self._rounds[asked]
        try:
            self._receive(sent)
            if any(each.refused is not None for each in sent):
                self._settle()
        except StorageUnavailable as error:
            self._end(error)
        else:
            del self._rounds[asked]
            asked.replies = [each.reply for each in sent]

    def close(self) -> None:
        for node in self._nodes.values():
            node.connection.close()

    def _check(self) -> None:
        if self._ended is not None:
            raise StorageUnavailable(str(self._ended))

    def _end(self, error: StorageUnavailable) -> None:
        """The driver is lost, and with it what is in flight."""
        self._ended = error
        self.close()
        rounds, self._rounds = self._rounds, {}
        for asked, sent in rounds.items():
            done = all(each.reply and each.refused is None for each in sent)
            asked.replies = [each.reply for each in sent] if done else error

    # -- the way to a node

    def _addressed(self, command: Command) -> _Sent:
        if command.key is None:
            return _Sent(command, None, self._topology.masters[0])
        number = slot(command.key)
        place = self._topology.of(number)
        return _Sent(command, number, place, refused=AGAIN if place is None else None)

    def _node(self, place: Place) -> _Node:
        node = self._nodes.get(place)
        if node is None:
            try:
                node = _Node(Connection(self._server, self._name, self._address.at(*place)))
            except StorageUnavailable:
                self._memory.doubt(place)
                raise
            self._nodes[place] = node
        return node

    def _send(self, sent: Iterable[_Sent]) -> None:
        by_place: dict[Place, list[_Sent]] = {}
        for each in sent:
            if each.place is not None:
                by_place.setdefault(each.place, []).append(each)
        for place, group in by_place.items():
            node = self._node(place)
            node.connection.send(*(piece for each in group for piece in each.pieces))
            node.waiting.extend(group)

    def _receive(self, sent: Iterable[_Sent]) -> None:
        """Takes replies until these commands have theirs."""
        for each in sent:
            while each.place is not None and not each.reply:
                node = self._nodes[each.place]
                node.waiting.popleft().take(node.connection)

    def _look(self) -> Topology:
        """The cluster as the first node says that answers. Nothing may be in flight."""
        failures: list[str] = []
        for place in tuple(self._memory.places):
            try:
                found = self._node(place).connection.ask(topology(place[0]))
            except StorageUnavailable as error:
                if node := self._nodes.pop(place, None):
                    node.connection.close()
                failures.append(str(error).rstrip("."))
            except RedisError as error:
                where = self._address.at(*place).describe()
                if place in self._address.seeds:
                    raise ConfigError(f"Redis at {where} does not say of which cluster it is: {error}.") from None
                failures.append(f"Redis at {where} says: {error}")
            else:
                if found.masters:
                    self._memory.learn(found)
                    return found
                failures.append(f"{spelled(*place)} knows no node that has slots")
            self._memory.doubt(place)
        raise StorageUnavailable(f"No node of {self._address.describe()} can be asked: {'; '.join(failures)}.")

    # -- what was refused

    def _settle(self) -> None:
        """Has everything answered that is in flight.

        Raises:
            StorageUnavailable: of a slot's commands, a later one was executed and an earlier one was not.
        """
        sent = [each for round_ in self._rounds.values() for each in round_]
        self._receive(sent)
        refused = [each for each in sent if each.refused is not None]
        for each in refused:
            self._memory.note(each)
        late: set[int | None] = set()
        for each in sent:
            if each.refused is not None:
                late.add(each.slot)
            elif each.slot in late:
                raise StorageUnavailable(f"Slot {each.slot} of the Redis Cluster was moved during a change of it.")
        self._readdress(refused)
        self._in_waves(refused)

    def _readdress(self, refused: Sequence[_Sent]) -> None:
        """Decides where what was refused goes next."""
        told = [each.refused for each in refused if each.refused is not None]
        if any(each.kind != "ask" for each in told):
            self._topology = self._look()
        for each, to in zip(refused, told, strict=True):
            each.again(to.place or (None if each.slot is None else self._topology.of(each.slot)))

    def _in_waves(self, sent: Sequence[_Sent]) -> None:
        """Sends commands, of each slot one after the other, until all were executed.

        Raises:
            StorageUnavailable: none was executed for as long as a reply may take.
        """
        queues: dict[int | None, deque[_Sent]] = {}
        for each in sent:
            queues.setdefault(each.slot, deque()).append(each)
        last, pause = time.monotonic(), _PAUSE[0]
        while queues:
            refused = self._wave(list(queues.values()))
            if len(refused) < len(queues):
                last, pause = time.monotonic(), _PAUSE[0]
            if refused:
                if time.monotonic() > last + self._server.timeout:
                    raise StorageUnavailable(self._why_not(refused[0]))
                time.sleep(pause)
                pause = min(2 * pause, _PAUSE[1])
                self._readdress(refused)
            queues = {number: queue for number, queue in queues.items() if queue}

    def _wave(self, queues: Sequence[deque[_Sent]]) -> list[_Sent]:
        """Sends the first command of each queue, and takes away those that were executed; the others."""
        wave = [queue[0] for queue in queues]
        self._send(wave)
        self._receive(wave)
        for queue, each in zip(queues, wave, strict=True):
            self._memory.note(each)
            if each.refused is None:
                queue.popleft()
                if queue and not each.asking and not queue[0].asking:
                    queue[0].again(each.place)  # the slot is that node's, as has just been seen
        return [each for each in wave if each.refused is not None]

    def _why_not(self, refused: _Sent) -> str:
        """A sentence: why a command is not executed."""
        where = self._address.describe()
        try:
            check_whole(self._topology, where)
        except RedisError as error:
            return f"{str(error)[:1].upper()}{str(error)[1:]}."
        said = refused.said.decode(errors="replace").strip().removeprefix("-")
        said = f"it is being moved ({said})" if refused.moves else said
        return f"The cluster at {where} does not serve slot {refused.slot}: {said}."


def _telling(before: bytes, last: bytes) -> bytes:
    """Of the replies to one command, or to all from MULTI to EXEC, the one that says what has become of it.

    It is the last one; but where EXEC answers with EXECABORT, it is the first error before.
    """
    if not last.startswith(b"-EXECABORT"):
        return last
    return first_error(before).rstrip() or last
