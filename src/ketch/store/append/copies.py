"""Questions about copies of what was written: which replicas follow a node, and how far they have come.

WAIT (Redis 3.0) answers once enough replicas have what the connection that asks has written, and with it everything
that the node took before. So one write behind many appends, whoever sent these, vouches for all of them.
"""

from __future__ import annotations

from ketch.redis.question import Command, Question, call
from ketch.redis.resp import pack
from ketch.store.keys import Keyspace

_KEPT_MS = 60_000  # the written key goes by itself; no node needs it


def wait(keys: Keyspace, stream: bytes, replicas: int, timeout_ms: int) -> Command:
    """How many replicas have what the stream's node has taken until now; its reply is an integer.

    Args:
        replicas: that are waited for.
        timeout_ms: at most; 0 would be for ever.
    """
    key = keys.copies(stream)
    return Command(stream, (pack("SET", key, "", "PX", _KEPT_MS), pack("WAIT", replicas, timeout_ms)), 2)


def replicas(stream: bytes) -> Question[int]:
    """How many replicas follow the stream's node now."""
    text: bytes = yield from call(stream, "INFO", "replication")
    return sum(line.startswith(b"slave") and b"state=online" in line for line in text.splitlines())
