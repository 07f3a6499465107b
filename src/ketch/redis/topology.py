"""Which node of a Redis Cluster has which slot, and what a node answers that has not. No I/O.

A node that is asked for a key of another node's answers with an error and executes nothing (Redis Cluster
specification, "MOVED Redirection", "ASK Redirection"):

- `MOVED slot host:port`: the slot is that node's.
- `ASK slot host:port`: the slot is being moved there, and this key has moved or does not exist. That node takes the
  command behind an ASKING.
- `TRYAGAIN`: the slot is being moved, and of the command's keys some have moved.

Any other error is the caller's, also those that say that no node can serve the slot now (`CLUSTERDOWN`, `LOADING`): of
commands that were sent together, one may get it and the next one be executed. From MULTI to EXEC the first error that a
command gets stands for all: none was executed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ketch.errors import RedisError
from ketch.redis.question import Question, call
from ketch.redis.resp import pack
from ketch.redis.slots import SLOTS
from ketch.redis.url import spelled

Place = tuple[str, int]  # a node's host and port

_UNSERVED = 0xFFFF


class Redirect(NamedTuple):
    """What a node has answered that did not execute the command.

    Attributes:
        kind: "moved", "ask", or "again" where it may go better a little later.
        slot: the slot that it speaks of; -1 for "again".
        place: the node to go to; None for "again". An empty host stands for that of the node that has answered.
    """

    kind: Literal["moved", "ask", "again"]
    slot: int = -1
    place: Place | None = None


AGAIN = Redirect("again")
ASKING = pack("ASKING")  # goes before a command for a node that has not its slot yet


def redirect(reply: bytes) -> Redirect | None:
    """What a reply says of where its command belongs; None for any other reply, errors too."""
    if not reply.startswith(b"-"):
        return None
    if reply.startswith(b"-MOVED "):
        return _to("moved", reply)
    if reply.startswith(b"-ASK "):
        return _to("ask", reply)
    return AGAIN if reply.startswith(b"-TRYAGAIN") else None


def amiss(reply: bytes) -> bool:
    """Whether an error says that the cluster has lost a node."""
    return reply.startswith((b"-CLUSTERDOWN", b"-MASTERDOWN", b"-LOADING"))


def _to(kind: Literal["moved", "ask"], reply: bytes) -> Redirect:
    _, slot, place = reply.decode(errors="replace").split()[:3]
    host, _, port = place.rpartition(":")
    return Redirect(kind, int(slot), (host, int(port)))


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """The masters of a cluster, and whose each slot is.

    Attributes:
        masters: each once, in the order of their first slots.
        replicas: of each master.
        epoch: the highest configuration epoch of a node that has slots, as the node that was asked knows it. A node
            that takes slots over gets a higher one. (The cluster's current epoch is higher already while nodes vote.)
    """

    masters: tuple[Place, ...]
    replicas: dict[Place, tuple[Place, ...]]
    epoch: int
    _by_slot: array[int]

    def of(self, slot: int) -> Place | None:
        """The node that has the slot; None where no node has it."""
        index = self._by_slot[slot]
        return None if index == _UNSERVED else self.masters[index]

    def moved(self, slot: int, place: Place) -> Topology:
        """The same, but for one slot."""
        masters = self.masters if place in self.masters else (*self.masters, place)
        by_slot = self._by_slot[:]
        by_slot[slot] = masters.index(place)
        return Topology(masters, self.replicas, self.epoch, by_slot)

    def indices(self) -> list[int | None]:
        """Of each slot's node in `masters`; None where no node has the slot."""
        return [None if index == _UNSERVED else index for index in self._by_slot]

    @property
    def whole(self) -> bool:
        """Whether every slot has a node."""
        return _UNSERVED not in self._by_slot

    def same(self, other: Topology) -> bool:
        """Whether every slot is the same node's."""
        return self.masters == other.masters and self._by_slot == other._by_slot


def topology(asked: str) -> Question[Topology]:
    """The cluster as the node that is asked knows it.

    CLUSTER SLOTS rather than CLUSTER SHARDS, which Redis 6.2 has not.

    Args:
        asked: the host of the node that is asked: a node that does not know its own address leaves it empty.

    Raises:
        RedisError: the node is none of a cluster.
    """
    nodes: bytes = yield from call(None, "CLUSTER", "NODES")  # before the slots: an epoch may be too old, not too new
    rows: list[Any] = yield from call(None, "CLUSTER", "SLOTS")
    return parse_slots(rows, _epoch(nodes), asked)


def _epoch(nodes: bytes) -> int:
    """The highest epoch of a node that has slots.

    Each line of CLUSTER NODES is a node: its seventh word is the epoch, and from the ninth on there are its slots, in
    brackets those that are being moved.
    """
    lines = [line.split() for line in nodes.splitlines()]
    return max((int(line[6]) for line in lines if any(not word.startswith(b"[") for word in line[8:])), default=0)


def parse_slots(rows: Sequence[Any], epoch: int, asked: str) -> Topology:
    """The topology that CLUSTER SLOTS shows: rows of first slot, last slot, master, replicas."""
    masters: list[Place] = []
    replicas: dict[Place, tuple[Place, ...]] = {}
    by_slot = array("H", [_UNSERVED]) * SLOTS
    for first, last, master, *others in sorted(rows, key=lambda row: int(row[0])):
        place = _place(master, asked)
        if place not in replicas:
            masters.append(place)
            replicas[place] = tuple(_place(each, asked) for each in others)
        index = masters.index(place)
        by_slot[first : last + 1] = array("H", [index]) * (last + 1 - first)
    return Topology(tuple(masters), replicas, epoch, by_slot)


def _place(node: Sequence[Any], asked: str) -> Place:
    host = node[0].decode() if node[0] else ""
    return (asked if host in ("", "?") else host), int(node[1])


def check_whole(found: Topology, where: str) -> None:
    """Raises RedisError where some slots have no node."""
    missing = sum(found.of(slot) is None for slot in range(SLOTS))
    if missing:
        raise RedisError(f"the cluster at {where} is not whole: {missing} of {SLOTS} slots have no node")


def hosts(places: Iterable[Place]) -> str:
    """Nodes as people read them: "a:7000, b:7000"."""
    return ", ".join(spelled(*place) for place in places)
