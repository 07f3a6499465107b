"""Questions about client quotas: the hash `{ks}:quotas`, entity and what is limited -> the limit.

A field is a path as Kafka's tools had it in ZooKeeper, names percent-encoded, and the config's name:
`users/alice/producer_byte_rate`, `users/alice/clients/app/request_percentage`, `clients/<default>/consumer_byte_rate`,
`ips/10.0.0.1/connection_creation_rate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote

from ketch.redis.question import Question, call
from ketch.security.quotas import CLIENT, IP, USER, Entity, InvalidQuota, check, entity
from ketch.store.keys import Keyspace
from ketch.store.topics.handwritten import complain

_DEFAULT = "<default>"
_ROOMS = {USER: "users", CLIENT: "clients", IP: "ips"}
_TYPES = {room: kind for kind, room in _ROOMS.items()}


def read(keys: Keyspace) -> Question[dict[Entity, dict[str, float]]]:
    """The limits of each entity. One that was written by hand and cannot be is passed over."""
    words = yield from call(keys.quotas, "HGETALL", keys.quotas)
    found: dict[Entity, dict[str, float]] = {}
    for field, value in zip(words[::2], words[1::2], strict=True):
        try:
            *path, key = field.decode().split("/")
            whom, rate = _entity(path), float(value)
            check(whom, key, rate)
            found.setdefault(whom, {})[key] = rate
        except (ValueError, InvalidQuota):
            complain(f"quotas: {field!r} = {value!r} cannot be; it is passed over")
    return found


def alter(keys: Keyspace, whom: Entity, changes: Mapping[str, float | None]) -> Question[None]:
    """Changes limits of an entity; None takes one away."""
    path = "/".join(f"{_ROOMS[kind]}/{_DEFAULT if name is None else quote(name, safe='')}" for kind, name in whom)
    given = [word for key, value in changes.items() if value is not None for word in (f"{path}/{key}", f"{value:.17g}")]
    gone = [f"{path}/{key}" for key, value in changes.items() if value is None]
    if given:
        yield from call(keys.quotas, "HSET", keys.quotas, *given)
    if gone:
        yield from call(keys.quotas, "HDEL", keys.quotas, *gone)


def _entity(path: list[str]) -> Entity:
    """Raises ValueError or InvalidQuota where it is none."""
    parts = zip(path[::2], path[1::2], strict=True)
    return entity({_TYPES.get(room, room): None if name == _DEFAULT else unquote(name) for room, name in parts})
