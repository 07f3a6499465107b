"""Topic and broker configs as DescribeConfigs and CreateTopics show them."""

from __future__ import annotations

from collections.abc import Iterable

import ketch
from ketch.config import Settings
from ketch.store.topics import Topic
from ketch.store.url import RedisAddress
from ketch.topicconfig import CONFIGS, TopicConfig
from ketch.wire.responses import Body

# DescribeConfigsResponse.ConfigSource and ConfigType
_TOPIC, _STATIC_BROKER, _DEFAULT = 1, 4, 5
_TYPES = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}

# The broker's settings that Kafka knows by a name of its own.
_BROKER = {
    "node.id": "node_id",
    "auto.create.topics.enable": "auto_create_topics",
    "num.partitions": "default_partitions",
    "message.max.bytes": "message_max_bytes",
    "socket.request.max.bytes": "socket_request_max_bytes",
    "max.connections": "max_connections",
    "connections.max.idle.ms": "connections_max_idle_ms",
    "fetch.max.bytes": "fetch_max_bytes",
    "log.retention.ms": "retention_ms",
    "log.retention.bytes": "retention_bytes",
    "log.retention.check.interval.ms": "retention_check_interval_ms",
    "compression.type": "default_compression_type",
    "producer.id.expiration.ms": "producer_id_expiration_ms",
    "max.incremental.fetch.session.cache.slots": "max_incremental_fetch_session_cache_slots",
}

_LISTENERS = {
    "listeners": ("host", "port"),
    "advertised.listeners": ("host", "port", "advertised_host", "advertised_port"),
}


def topic_configs(topic: Topic, settings: Settings, names: Iterable[str] | None = None) -> list[Body]:
    """The configs of a topic, sorted by name; `names` None stands for all, an unknown name is left out."""
    chosen = CONFIGS if names is None else [name for name in dict.fromkeys(names) if name in CONFIGS]
    return [_topic_config(CONFIGS[name], topic, settings) for name in sorted(chosen)]


def _topic_config(config: TopicConfig, topic: Topic, settings: Settings) -> Body:
    value, default = topic.configs[config.name], str(config.default(settings))
    broker = [(config.synonym, default, _DEFAULT)] if config.synonym else []
    own = [(config.name, value, _TOPIC)] if value != default else []
    return {
        "name": config.name,
        "value": value,
        "read_only": config.fixed,
        "config_source": _TOPIC if own else _DEFAULT,
        "is_sensitive": False,
        "synonyms": [{"name": name, "value": held, "source": source} for name, held, source in [*own, *broker]],
        "config_type": _TYPES[config.type],
        "documentation": config.documentation,
    }


def broker_configs(
    settings: Settings, port: int, redis: RedisAddress, names: Iterable[str] | None = None
) -> list[Body]:
    """The configs of this broker by Kafka's names, and those that only Ketch has (`ketch.*`).

    Args:
        port: the one it listens on.
        redis: where its log is; clients are told the address without user and password.
    """
    every = {name: _broker_config(name, field, settings) for name, field in _BROKER.items()}
    every |= {name: _listeners(name, fields, settings, port) for name, fields in _LISTENERS.items()}
    every |= {entry[0]: _body(*entry) for entry in _own(settings, redis)}
    chosen = every if names is None else {name for name in names if name in every}
    return [every[name] for name in sorted(chosen)]


def _broker_config(name: str, field: str, settings: Settings) -> Body:
    value = getattr(settings, field)
    info = type(settings).model_fields[field]
    source = _DEFAULT if value == info.default else _STATIC_BROKER
    kind = "boolean" if isinstance(value, bool) else "long" if isinstance(value, int) else "string"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return _body(name, text, source, kind, info.description)


def _listeners(name: str, fields: tuple[str, ...], settings: Settings, port: int) -> Body:
    """Several settings are one config to Kafka."""
    host, port = settings.advertised(port) if name.startswith("advertised") else (settings.host, port)
    infos = {field: type(settings).model_fields[field] for field in fields}
    default = all(getattr(settings, field) == info.default for field, info in infos.items())
    documentation = " ".join(info.description or "" for info in infos.values())
    address = f"[{host}]" if ":" in host else host
    text = f"PLAINTEXT://{address}:{port}"
    return _body(name, text, _DEFAULT if default else _STATIC_BROKER, "list", documentation)


def _own(settings: Settings, redis: RedisAddress) -> list[tuple[str, str, int, str, str]]:
    """Facts that `ketch status`, `ketch groups` and `ketch topics` ask a broker for: see `ketch.cli.ask`."""
    return [
        ("ketch.keyspace", settings.keyspace, _STATIC_BROKER, "string", "First part of every key in Redis."),
        ("ketch.redis", redis.describe(), _STATIC_BROKER, "string", "URL of the Redis, without user and password."),
        ("ketch.version", ketch.__version__, _STATIC_BROKER, "string", "Version of the broker."),
    ]


def _body(name: str, value: str, source: int, kind: str, documentation: str | None) -> Body:
    return {
        "name": name,
        "value": value,
        "read_only": True,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": [{"name": name, "value": value, "source": source}],
        "config_type": _TYPES[kind],
        "documentation": documentation,
    }
