"""Questions about which metrics clients are to push (KIP-714): the hash `{ks}:client-metrics`, subscription -> JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ketch.redis.question import Question, call
from ketch.store.keys import Keyspace
from ketch.store.topics.handwritten import complain

Configs = Mapping[str, str]


def read(keys: Keyspace) -> Question[dict[str, dict[str, str]]]:
    """The configs of each subscription, by its name."""
    words = yield from call(keys.client_metrics, "HGETALL", keys.client_metrics)
    found = {}
    for name, text in zip(words[::2], words[1::2], strict=True):
        try:
            found[name.decode()] = {str(key): str(value) for key, value in json.loads(text).items()}
        except (ValueError, AttributeError):
            complain(f"client metrics: subscription {name!r} cannot be read")
    return found


def write(keys: Keyspace, name: str, configs: Configs) -> Question[None]:
    """Replaces the configs of a subscription; without any it is gone."""
    if configs:
        yield from call(keys.client_metrics, "HSET", keys.client_metrics, name, json.dumps(dict(configs)))
    else:
        yield from call(keys.client_metrics, "HDEL", keys.client_metrics, name)
