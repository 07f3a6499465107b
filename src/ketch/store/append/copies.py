"""Questions about copies of what was written: which replicas follow a node, and how far they have come.

WAIT (Redis 3.0) answers once enough replicas have what the connection that asks has written, and with it everything
that the node took before. So one write behind many appends, whoever sent these, vouches for all of them. WAITAOF (Redis
7.2, Valkey) does the same for disks: it answers once the write is synced to the append-only files of the node and of
enough replicas.

It vouches for what this node has taken, and a node that took over from another may lack what that one had answered. So
each answer has the replication id: a master makes a new one whenever it becomes one, and when it starts.

WAIT itself is refused by no master, and without a write of its connection it succeeds at once. So the write is a
transaction that also says which node has taken it: where the write is refused (the slot has moved, Redis is full), or
was taken by another node than the WAIT, the answer vouches for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ketch.redis.question import Command, Question, call, calls, command
from ketch.redis.resp import checked, pack
from ketch.store.keys import Keyspace

_KEPT_MS = 60_000  # the written key goes by itself; no node needs it
_SILENT_S = 10  # a replica says once a second how far it is; Redis's min-replicas-max-lag is so long by default
_INFO = ("INFO", "replication")


class Follower(NamedTuple):
    """A replica, as its master lists it.

    Attributes:
        host, port: by which the master knows it (`replica-announce-ip`, `replica-announce-port`).
        in_sync: it has had a whole copy of the master, follows it, and has said so within the last `_SILENT_S`.
        offset: how much of the replication stream it has said that it has, bytes.
    """

    host: str
    port: int
    in_sync: bool
    offset: int = 0


class Replication(NamedTuple):
    """Of the node that a key lies on.

    Attributes:
        id: its replication id, which no other master has and none had before.
        followers: its replicas.
    """

    id: bytes
    followers: tuple[Follower, ...]

    @property
    def in_sync(self) -> int:
        """How many replicas are."""
        return sum(follower.in_sync for follower in self.followers)


class Made(NamedTuple):
    """Copies of what a node has taken.

    Attributes:
        id: the node's replication id.
        copies: how many nodes have it, the node itself counted where it has.
    """

    id: bytes
    copies: int


def replication(key: bytes | None) -> Question[Replication]:
    """Who follows the key's node now; without a key, the node that is asked."""
    info = yield from call(key, *_INFO)
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return Replication(_id(info), tuple(followers({name: about for name, _, about in lines})))


def made(keys: Keyspace, key: bytes, copies: int, timeout_ms: int, on_disk: bool) -> Question[Made]:
    """How many copies there are of what the key's node has taken until now.

    The id is empty where the write and the WAIT were taken by two nodes, since the slot has moved in between.

    Args:
        copies: that are waited for, the node's own counted.
        timeout_ms: at most; 0 would be for ever.
        on_disk: only those count that are synced to an append-only file.

    Raises:
        RedisError: the node refuses the write or the WAIT.
    """
    write = (pack("MULTI"), pack("SET", keys.copies(key), "", "PX", _KEPT_MS), pack(*_INFO), pack("EXEC"))
    wait = ("WAITAOF", 1) if on_disk else ("WAIT",)
    (done, wrote), count, waited = yield from calls(
        [Command(key, write, len(write)), command(key, *wait, copies - 1, timeout_ms), command(key, *_INFO)]
    )
    checked(done)
    id_ = _id(wrote)
    return Made(id_ if id_ == _id(waited) else b"", sum(count) if on_disk else 1 + count)


def disks_can_be_waited_for(key: bytes) -> Question[None]:
    """Raises RedisError where the key's node has no WAITAOF, or no append-only file."""
    yield from call(key, "WAITAOF", 1, 0, 1)


def _id(info: bytes) -> bytes:
    return next((line.partition(b":")[2] for line in info.splitlines() if line.startswith(b"master_replid:")), b"")


def followers(info: Mapping[str, str]) -> Iterator[Follower]:
    """The replicas in a node's INFO, of fields like `slave0:ip=10.0.0.7,port=6379,state=online,offset=42,lag=0`."""
    for name, about in info.items():
        if name.startswith("slave") and name[5:].isdigit():
            said = dict(each.partition("=")[::2] for each in about.split(","))
            in_sync = said.get("state") == "online" and int(said.get("lag", 0)) <= _SILENT_S
            offset = int(said.get("offset", 0))
            yield Follower(said.get("ip", ""), int(said.get("port", 0)), in_sync, offset)
