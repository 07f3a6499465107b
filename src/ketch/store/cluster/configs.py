"""Questions about broker configs that were changed at run time: the hash `{ks}:broker-configs`.

A field is a config's name, for all brokers, or `<node id>:<name>`, for one of them. What the hash does not have is what
each broker was started with.
"""

from __future__ import annotations

from collections.abc import Mapping

from ketch.redis.question import Command, Question, ask, call
from ketch.redis.resp import pack
from ketch.store.keys import Keyspace

_MULTI, _EXEC = pack("MULTI"), pack("EXEC")

ALL_BROKERS = ""


def read(keys: Keyspace) -> Question[dict[str, dict[str, str]]]:
    """Values by name, by node id; `ALL_BROKERS` for all."""
    words = yield from call(keys.broker_configs, "HGETALL", keys.broker_configs)
    texts = [word.decode(errors="replace") for word in words]
    found: dict[str, dict[str, str]] = {}
    for field, value in zip(texts[::2], texts[1::2], strict=True):
        node, _, name = field.rpartition(":")
        found.setdefault(node, {})[name] = value
    return found


def change(keys: Keyspace, node: str, values: Mapping[str, str | None]) -> Question[None]:
    """Sets values, or takes them away where they are None: all or none."""
    commands = []
    for name, value in values.items():
        field = f"{node}:{name}" if node else name
        key = keys.broker_configs
        commands.append(pack("HDEL", key, field) if value is None else pack("HSET", key, field, value))
    payload = b"".join((_MULTI, *commands, _EXEC))
    yield from ask(Command(keys.broker_configs, payload, len(commands) + 2))
