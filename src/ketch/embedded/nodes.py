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
_OVER = frozenset({"success", "failed", "cancelled"})  # states of a migration that is not under way any more


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
    return any(state not in _OVER for state, _ in (yield from _migrations()))


def check_given() -> Question[None]:
    """Raises RedisError, with the reason, where what was moved last has not arrived."""
    migrations = yield from _migrations()
    if migrations and migrations[-1][0] != "success":
        raise RedisError(migrations[-1][1] or f"the slots were not moved ({migrations[-1][0]})")


def _migrations() -> Question[list[tuple[str, str]]]:
    """State and message of the moves, the latest one last."""
    rows: list[list[bytes | int]] = yield from call(None, "CLUSTER", "GETSLOTMIGRATIONS")
    jobs = [dict(zip(row[::2], row[1::2], strict=True)) for row in rows]
    jobs.sort(key=lambda job: int(job[b"create_time"]))
    return [(_text(job[b"state"]), _text(job.get(b"message", b""))) for job in jobs]


def _text(value: bytes | int) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
