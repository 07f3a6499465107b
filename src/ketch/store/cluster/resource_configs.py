"""Questions about configs of what has no hash of its own: one hash for all of a type, the resource's name -> JSON.

`{ks}:client-metrics` has subscriptions of client metrics (KIP-714), `{ks}:group-configs` consumer groups (KIP-848).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ketch.redis.question import Question, call
from ketch.store.topics.handwritten import complain

Configs = Mapping[str, str]


def read(key: bytes) -> Question[dict[str, dict[str, str]]]:
    """The configs of each resource, by its name."""
    words = yield from call(key, "HGETALL", key)
    found = {}
    for name, text in zip(words[::2], words[1::2], strict=True):
        try:
            found[name.decode()] = {str(config): str(value) for config, value in json.loads(text).items()}
        except (ValueError, AttributeError):
            complain(f"{key.decode()}: the configs of {name!r} cannot be read")
    return found


def write(key: bytes, name: str, configs: Configs) -> Question[None]:
    """Replaces the configs of a resource; without any it is gone."""
    if configs:
        yield from call(key, "HSET", key, name, json.dumps(dict(configs)))
    else:
        yield from call(key, "HDEL", key, name)
