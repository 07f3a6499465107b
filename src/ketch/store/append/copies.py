"""Questions about copies of what was written: which replicas follow a node, and how far they have come.

WAIT (Redis 3.0) answers once enough replicas have what the connection that asks has written, and with it everything
that the node took before. So one write behind many appends, whoever sent these, vouches for all of them.

It vouches for what this node has taken, and a node that took over from another may lack what that one had answered. So
each answer has the replication id: a master makes a new one whenever it becomes one, and when it starts.
"""

from __future__ import annotations

from typing import NamedTuple

from ketch.redis.question import Command, Question, call
from ketch.redis.resp import checked, pack, parse
from ketch.store.keys import Keyspace

_KEPT_MS = 60_000  # the written key goes by itself; no node needs it


class Replication(NamedTuple):
    """Of the node that a stream lies on.

    Attributes:
        id: its replication id, which no other master has and none had before.
        replicas: how many follow it.
    """

    id: bytes
    replicas: int


def replication(stream: bytes) -> Question[Replication]:
    """Who follows the stream's node now."""
    return _replication((yield from call(stream, "INFO", "replication")))


def made(keys: Keyspace, stream: bytes, replicas: int, timeout_ms: int) -> Question[Replication]:
    """How many replicas have what the stream's node has taken until now, in place of how many follow it.

    Args:
        replicas: that are waited for.
        timeout_ms: at most; 0 would be for ever.
    """
    write = pack("SET", keys.copies(stream), "", "PX", _KEPT_MS)
    wait, info = yield (
        Command(stream, (write, pack("WAIT", replicas, timeout_ms)), 2),
        Command(stream, pack("INFO", "replication")),
    )
    return Replication(_replication(checked(parse(info))).id, checked(parse(wait)))


def _replication(info: bytes) -> Replication:
    lines = info.splitlines()
    id_ = next((line.partition(b":")[2] for line in lines if line.startswith(b"master_replid:")), b"")
    return Replication(id_, sum(line.startswith(b"slave") and b"state=online" in line for line in lines))
