"""What a shard knows of its cluster, and how the cluster is changed: questions to one shard. No I/O.

`redis.topology` is the clients' view of a cluster: who has which slot. This is the operator's view: which nodes know
each other, under which ports, and what becomes of slots that move.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ketch.errors import RedisError
from ketch.redis.question import Question, call, calls, command

_HOST = "127.0.0.1"
_OVER = frozenset({b"success", b"failed", b"cancelled"})  # states of a migration that is not under way any more


@dataclass(frozen=True, slots=True)
class Seen:
    """A node as another node, or it itself, describes it.

    Attributes:
        port, bus: its ports for clients and for the cluster's other nodes; 0 where they are not known.
        acquainted: its id is its own, not a provisional one of a handshake that has not ended.
        linked: there is a connection to it, and it has answered all that it was sent over that.
        slots: those that it owns.
    """

    id: str
    port: int
    bus: int
    myself: bool
    acquainted: bool
    linked: bool
    slots: frozenset[int]


@dataclass(frozen=True, slots=True)
class View:
    """What one shard knows of all nodes, itself among them.

    Attributes:
        ok: it takes writes (cluster_state).
    """

    ok: bool
    nodes: tuple[Seen, ...]

    @property
    def own(self) -> Seen:
        """The shard itself."""
        return next(node for node in self.nodes if node.myself)


def view() -> Question[View]:
    """What the shard knows now."""
    info: bytes = yield from call(None, "CLUSTER", "INFO")
    text: bytes = yield from call(None, "CLUSTER", "NODES")
    return View(b"cluster_state:ok" in info.split(), parse_nodes(text.decode()))


def parse_nodes(text: str) -> tuple[Seen, ...]:
    """The nodes that CLUSTER NODES lists."""
    return tuple(_node(line.split()) for line in text.splitlines() if line)


def _node(words: Sequence[str]) -> Seen:
    """One line: id, host:port@bus with names behind commas, flags, master, three numbers, link, slots."""
    _, _, ports = words[1].partition(",")[0].rpartition(":")
    port, _, bus = ports.partition("@")
    flags = words[2].split(",")
    return Seen(
        id=words[0],
        port=int(port),
        bus=int(bus or 0),
        myself="myself" in flags,
        acquainted="handshake" not in flags,
        linked=words[7] == "connected" and words[4] == "0" and words[5] != "0",
        slots=frozenset(slot for word in words[8:] if not word.startswith("[") for slot in _range(word)),
    )


def _range(word: str) -> range:
    first, _, last = word.partition("-")
    return range(int(first), int(last or first) + 1)


def meet(ports: Iterable[tuple[int, int]]) -> Question[None]:
    """Makes the shard acquainted with nodes of this machine, by their two ports.

    A node that it knows under other ports is found under these from then on: nodes are known by their ids.
    """
    yield from calls([command(None, "CLUSTER", "MEET", _HOST, port, bus) for port, bus in ports])


def forget(node_id: str) -> Question[None]:
    """Removes a node that is gone and owns no slots."""
    yield from call(None, "CLUSTER", "FORGET", node_id)


def take(ranges: Iterable[tuple[int, int]]) -> Question[None]:
    """The shard owns these slots from now on, which no node has."""
    yield from call(None, "CLUSTER", "ADDSLOTSRANGE", *(slot for each in ranges for slot in each))


def give(ranges: Iterable[tuple[int, int]], node_id: str) -> Question[None]:
    """Begins to move slots with their keys to another node. The shard serves them until all is there.

    Raises:
        RedisError: another move of these slots is not over, or a node does not own what it should.
    """
    slots = [slot for each in ranges for slot in each]
    yield from call(None, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", *slots, "NODE", node_id)


def giving() -> Question[bool]:
    """Whether slots are on their way from the shard, or to it."""
    return any(job[b"state"] not in _OVER for job in (yield from _migrations()))


def check_given(ranges: Sequence[tuple[int, int]], node_id: str) -> Question[None]:
    """Raises RedisError, with the reason, where the other node does not own all of these slots.

    What counts is who owns them. The list of migrations tells only the second in which one began, and of two that began
    in the same one it does not say for certain which was the last.
    """
    owned = {slot for node in (yield from view()).nodes if node.id == node_id for slot in node.slots}
    if all(slot in owned for first, last in ranges for slot in range(first, last + 1)):
        return
    moved = b" ".join(b"%d-%d" % each for each in ranges), node_id.encode()
    jobs = [job for job in (yield from _migrations()) if (job[b"slot_ranges"], job[b"target_node"]) == moved]
    said = [f"{_text(job[b'message']) or 'no reason is given'} ({_text(job[b'state'])})" for job in jobs]
    raise RedisError(said[0] if said else "the slots were not moved")


def _migrations() -> Question[list[dict[bytes, bytes]]]:
    """The moves from the shard and to it, the latest one first."""
    rows: list[list[bytes]] = yield from call(None, "CLUSTER", "GETSLOTMIGRATIONS")
    return [dict(zip(row[::2], row[1::2], strict=True)) for row in rows]


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
