"""Questions about the brokers of one Redis: the hash `{ks}:brokers`, node id -> JSON of its listeners, session, last
seen.

`host` and `port` in an entry are those of the first listener; entries of older brokers have these alone. Times are
Redis's own, so that the brokers' clocks need not agree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ketch.configs.listeners import Listener, SecurityProtocol
from ketch.redis.question import Question, ask, call
from ketch.store import scripts
from ketch.store.keys import Keyspace


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as clients are told of it.

    Attributes:
        host, port: what clients connect to; among several listeners, of the first.
        listeners: the addresses for the clients of each; none stand for one of the name PLAINTEXT.
    """

    id: int
    host: str
    port: int
    listeners: tuple[Listener, ...] = ()

    @classmethod
    def of(cls, node_id: int, listeners: tuple[Listener, ...]) -> Self:
        return cls(node_id, listeners[0].host, listeners[0].port, listeners)

    def at(self, listener: str) -> Node | None:
        """The broker as clients of the listener of this name are told of it; None where it has no such listener."""
        if not self.listeners:
            return self if listener == SecurityProtocol.PLAINTEXT else None
        found = next((each for each in self.listeners if each.name == listener), None)
        return None if found is None else Node(self.id, found.host, found.port)


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
    listeners = [{"name": e.name, "protocol": e.protocol, "host": e.host, "port": e.port} for e in node.listeners]
    words = (node.id, node.host, node.port, session, timeout_ms, json.dumps(listeners))
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
    node = Node(node_id, fields["host"], int(fields["port"]), _listeners(fields))
    return Announced(node, fields["session"], seen, now - seen)


def _listeners(fields: Mapping[str, Any]) -> tuple[Listener, ...]:
    """The listeners of an entry. Where there are none it has an empty object: Lua's cjson writes an empty array so."""
    told = fields.get("listeners") or ()
    return tuple(Listener(e["name"], SecurityProtocol(e["protocol"]), e["host"], int(e["port"])) for e in told)
