"""Questions about client quotas: the hash `{ks}:quotas`, entity and what is limited -> the limit.

A field is a path as Kafka's tools had it in ZooKeeper, names percent-encoded, and the config's name:
`users/alice/producer_byte_rate`, `users/alice/clients/app/request_percentage`, `clients/<default>/consumer_byte_rate`,
`ips/10.0.0.1/connection_creation_rate`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
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
            (whom, key), rate = _parsed(field), float(value)
            check(whom, key, rate)
            found.setdefault(whom, {})[key] = rate
        except (ValueError, InvalidQuota):
            complain(f"quotas: {field!r} = {value!r} cannot be; it is passed over")
    return found


def alter(keys: Keyspace, whom: Entity, changes: Mapping[str, float | None]) -> Question[None]:
    """Changes limits of an entity; None takes one away. A field that means the same in other letters goes."""
    path = "/".join(f"{_ROOMS[kind]}/{_DEFAULT if name is None else quote(name, safe='')}" for kind, name in whom)
    given = {f"{path}/{key}".encode(): f"{value:.17g}" for key, value in changes.items() if value is not None}
    fields = yield from call(keys.quotas, "HKEYS", keys.quotas)
    gone = [field for field in fields if field not in given and _is_of(field, whom, changes)]
    if given:
        yield from call(keys.quotas, "HSET", keys.quotas, *(word for pair in given.items() for word in pair))
    if gone:
        yield from call(keys.quotas, "HDEL", keys.quotas, *gone)


def _is_of(field: bytes, whom: Entity, changed: Container[str]) -> bool:
    """Whether a field is one of the changed limits of an entity."""
    try:
        found, key = _parsed(field)
    except (ValueError, InvalidQuota):
        return False
    return found == whom and key in changed


def _parsed(field: bytes) -> tuple[Entity, str]:
    """Whose limit a field is, and of what; raises ValueError or InvalidQuota where it is nobody's."""
    *path, key = field.decode().split("/")
    parts = zip(path[::2], path[1::2], strict=True)
    return entity({_TYPES.get(room, room): None if name == _DEFAULT else unquote(name) for room, name in parts}), key
