"""Questions about copies of what was written: which replicas follow a node, and how far they have come.

WAIT (Redis 3.0) answers once enough replicas have what the connection that asks has written, and with it everything
that the node took before. So one write behind many appends, whoever sent these, vouches for all of them.

It vouches for what this node has taken, and a node that took over from another may lack what that one had answered. So
each answer has the replication id: a master makes a new one whenever it becomes one, and when it starts.

WAIT itself is refused by no node, and without a write of its connection it succeeds at once. So the write is a
transaction that also says which node has taken it: where the write is refused (the slot has moved, Redis is full), or
was taken by another node than the WAIT, the answer vouches for nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from ketch.redis.question import Command, Question, call, calls, command
from ketch.redis.resp import checked, pack
from ketch.store.keys import Keyspace

_KEPT_MS = 60_000  # the written key goes by itself; no node needs it
_INFO = ("INFO", "replication")


class Replication(NamedTuple):
    """Of the node that a key lies on.

    Attributes:
        id: its replication id, which no other master has and none had before.
        replicas: how many follow it.
    """

    id: bytes
    replicas: int


def replication(key: bytes) -> Question[Replication]:
    """Who follows the key's node now."""
    return _replication((yield from call(key, *_INFO)))


def made(keys: Keyspace, key: bytes, replicas: int, timeout_ms: int) -> Question[Replication]:
    """How many replicas have what the key's node has taken until now, in place of how many follow it.

    The id is empty where the write and the WAIT were taken by two nodes, since the slot has moved in between.

    Args:
        replicas: that are waited for.
        timeout_ms: at most; 0 would be for ever.

    Raises:
        RedisError: the node refuses the write or the WAIT.
    """
    write = (pack("MULTI"), pack("SET", keys.copies(key), "", "PX", _KEPT_MS), pack(*_INFO), pack("EXEC"))
    (done, wrote), count, waited = yield from calls(
        [Command(key, write, len(write)), command(key, "WAIT", replicas, timeout_ms), command(key, *_INFO)]
    )
    checked(done)
    id_ = _replication(wrote).id
    return Replication(id_ if id_ == _replication(waited).id else b"", count)


def _replication(info: bytes) -> Replication:
    lines = info.splitlines()
    id_ = next((line.partition(b":")[2] for line in lines if line.startswith(b"master_replid:")), b"")
    return Replication(id_, sum(line.startswith(b"slave") and b"state=online" in line for line in lines))
