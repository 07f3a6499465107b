"""Questions about the brokers of one Redis: the hash `{ks}:brokers`, node id -> JSON of host, port, session, last seen.

Times are Redis's own, so that the brokers' clocks need not agree.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from ketch.redis.question import Question, ask, call
from ketch.store import scripts
from ketch.store.keys import Keyspace


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as clients are told of it."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Announced:
    """A broker's entry; `silent` is for how long it has not announced itself, in ms."""

    node: Node
    session: str
    seen: int
    silent: int


class NodeIdTaken(Exception):
    """Another broker, which is alive, has the node id."""

    def __init__(self, holder: Announced) -> None:
        self.holder = holder


def clear(keys: Keyspace) -> Question[None]:
    """Removes all entries: for a Redis that has only just been started."""
    yield from call(keys.brokers, "DEL", keys.brokers)


def announce(keys: Keyspace, node: Node, session: str, timeout_ms: int) -> Question[list[Announced]]:
    """Announces a broker; the entries of all brokers, this one included.

    Args:
        session: the broker process.
        timeout_ms: a node id is free once its broker has been silent for so long.

    Raises:
        NodeIdTaken: by a live broker at another address.
    """
    words = (node.id, node.host, node.port, session, timeout_ms)
    stored, now, found = yield from ask(scripts.announce_broker(keys.brokers, *words))
    if not stored:
        raise NodeIdTaken(_read(node.id, found, now))
    return [_read(int(found[n]), found[n + 1], now) for n in range(0, len(found), 2)]


def withdraw(keys: Keyspace, node_id: int, session: str) -> Question[None]:
    """Removes a broker's entry, unless another process has replaced it."""
    yield from ask(scripts.withdraw_broker(keys.brokers, node_id, session))


def _read(node_id: int, entry: bytes, now: int) -> Announced:
    fields = json.loads(entry)
    seen = int(fields["seen"])
    return Announced(Node(node_id, fields["host"], int(fields["port"])), fields["session"], seen, now - seen)
