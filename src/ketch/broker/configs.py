"""Topic and broker configs as DescribeConfigs and CreateTopics show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import ketch
from ketch.broker import telemetry
from ketch.broker.coordination import group_configs as group_table
from ketch.broker.coordination.group_configs import GroupConfigs
from ketch.broker.dynamic import DEFAULT, OF_ALL_BROKERS, STATIC, DynamicConfigs, Level
from ketch.broker.services import Configured
from ketch.broker.telemetry import Telemetry
from ketch.configs.broker_table import BROKER_CONFIGS
from ketch.configs.key import ConfigKey
from ketch.configs.settings import Settings
from ketch.configs.topic_table import CONFIGS
from ketch.redis.url import RedisAddress
from ketch.store.cluster.configs import ALL_BROKERS
from ketch.store.topics.topic import Topic
from ketch.wire.responses import Body

# DescribeConfigsResponse.ConfigSource and ConfigType
_TOPIC, _CLIENT_METRICS, _GROUP = 1, 7, 8
_TYPES = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}

_LISTENERS = {
    "listeners": ("host", "port"),
    "advertised.listeners": ("host", "port", "advertised_host", "advertised_port"),
}


def topic_configs(topic: Topic, broker: Configured, names: Iterable[str] | None = None) -> list[Body]:
    """The configs of a topic, sorted by name; `names` None stands for all, an unknown name is left out."""
    chosen = CONFIGS if names is None else [name for name in dict.fromkeys(names) if name in CONFIGS]
    defaults = broker.log.defaults
    return [_topic_config(CONFIGS[name], topic.configs[name], defaults[name], broker) for name in sorted(chosen)]


def _topic_config(config: ConfigKey, value: str, default: str, broker: Configured) -> Body:
    if config.synonym:
        levels = [(config.synonym, *level) for level in broker.dynamic.levels(config.synonym)]
    else:
        levels = [(config.name, default, DEFAULT)]
    own = [(config.name, value, _TOPIC)] if value != default else []
    return {
        "name": config.name,
        "value": value,
        "read_only": config.fixed,
        "config_source": _TOPIC if own else levels[0][2],
        "is_sensitive": False,
        "synonyms": [
            {"name": name, "value": held, "source": source}
            for name, held, source in [*own, *levels]
            if held is not None
        ],
        "config_type": _TYPES[config.type],
        "documentation": _documentation(config),
    }


def _documentation(config: ConfigKey) -> str:
    return f"{config.documentation} No effect here: {config.idle}." if config.idle else config.documentation


def broker_configs(broker: Configured, names: Iterable[str] | None = None) -> list[Body]:
    """The configs of this broker by Kafka's names, and those that only Ketch has (`ketch.*`)."""
    settings = broker.settings
    every = {name: _broker_config(name, broker.dynamic.levels(name)) for name in BROKER_CONFIGS}
    every |= {name: _listeners(name, fields, settings, broker.port) for name, fields in _LISTENERS.items()}
    every |= {entry[0]: _body(*entry) for entry in _own(settings, broker.redis)}
    chosen = every if names is None else {name for name in names if name in every}
    return [every[name] for name in sorted(chosen)]


def cluster_configs(dynamic: DynamicConfigs, names: Iterable[str] | None = None) -> list[Body]:
    """What was changed at run time for all brokers."""
    changed: Mapping[str, str] = dynamic.stored(ALL_BROKERS)
    chosen = changed if names is None else {name for name in names if name in changed}
    return [_broker_config(name, [(changed[name], OF_ALL_BROKERS)]) for name in sorted(chosen)]


def subscription_configs(clients: Telemetry, name: str, names: Iterable[str] | None = None) -> list[Body]:
    """The configs of a subscription of client metrics."""
    held = clients.subscriptions.get(name, {})
    chosen = telemetry.CONFIGS if names is None else {each for each in names if each in telemetry.CONFIGS}
    shown = []
    for each in sorted(chosen):
        config = telemetry.CONFIGS[each]
        value, source = (held[each], _CLIENT_METRICS) if each in held else (config.constant, DEFAULT)
        shown.append(_body(each, value, source, config.type, config.documentation, read_only=False))
    return shown


def group_configs(groups: GroupConfigs, group: str, names: Iterable[str] | None = None) -> list[Body]:
    """The configs of a group."""
    held = groups.stored.get(group, {})
    table = group_table.CONFIGS
    shown = []
    for each in sorted(table if names is None else {name for name in names if name in table}):
        value, source = (held[each], _GROUP) if each in held else (groups.default(each), DEFAULT)
        shown.append(_body(each, value, source, table[each].type, table[each].documentation, read_only=False))
    return shown


def _broker_config(name: str, levels: list[Level]) -> Body:
    config = BROKER_CONFIGS[name]
    value, source = levels[0]
    synonyms = [{"name": name, "value": held, "source": which} for held, which in levels if held is not None]
    shown = _body(name, value, source, config.key.type, _documentation(config.key), not config.dynamic)
    return {**shown, "synonyms": synonyms}


def _listeners(name: str, fields: tuple[str, ...], settings: Settings, port: int) -> Body:
    """Several settings are one config to Kafka."""
    host, port = settings.advertised(port) if name.startswith("advertised") else (settings.host, port)
    infos = {field: type(settings).model_fields[field] for field in fields}
    default = all(getattr(settings, field) == info.default for field, info in infos.items())
    documentation = " ".join(info.description or "" for info in infos.values())
    address = f"[{host}]" if ":" in host else host
    url = f"{settings.endpoints[0].name}://{address}:{port}"
    return _body(name, url, DEFAULT if default else STATIC, "list", documentation)


def _own(settings: Settings, redis: RedisAddress) -> list[tuple[str, str | None, int, str, str]]:
    """Facts that `ketch status`, `ketch groups` and `ketch topics` ask a broker for, see `ketch.cli.broker_redis`; and
    where Kafka's tools look for the disk and the rack."""
    address = redis.describe()
    return [
        ("ketch.keyspace", settings.keyspace, STATIC, "string", "First part of every key in Redis."),
        ("ketch.redis", address, STATIC, "string", "URL of the Redis, without user and password."),
        ("ketch.version", ketch.__version__, STATIC, "string", "Version of the broker."),
        ("log.dirs", address, STATIC, "list", "Where the log is: the Redis, without user and password."),
        ("broker.rack", None, DEFAULT, "string", "Brokers have no racks: any of them serves every partition."),
    ]


def _body(name: str, value: str | None, source: int, kind: str, documentation: str, read_only: bool = True) -> Body:
    return {
        "name": name,
        "value": value,
        "read_only": read_only,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": [] if value is None else [{"name": name, "value": value, "source": source}],
        "config_type": _TYPES[kind],
        "documentation": documentation,
    }
