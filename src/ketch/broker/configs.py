"""Topic and broker configs as DescribeConfigs and CreateTopics show them, and who may see or alter them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

import ketch
from ketch.broker import telemetry
from ketch.broker.api import Request
from ketch.broker.coordination import group_configs as group_table
from ketch.broker.coordination.group_configs import GroupConfigs
from ketch.broker.dynamic import DEFAULT, OF_ALL_BROKERS, STATIC, DynamicConfigs, Level
from ketch.broker.resources import ConfigType
from ketch.broker.services import Configured
from ketch.broker.telemetry import Telemetry
from ketch.configs.broker_table import BROKER_CONFIGS, of_listener
from ketch.configs.key import ConfigKey
from ketch.configs.listeners import on_ports
from ketch.configs.settings import SIMPLE_FORM, Settings
from ketch.configs.topic_table import CONFIGS
from ketch.redis.url import RedisAddress
from ketch.security.acls import CLUSTER_NAME, ResourceType
from ketch.store.cluster.configs import ALL_BROKERS
from ketch.store.topics.topic import Topic
from ketch.wire.responses import Body

# DescribeConfigsResponse.ConfigSource and ConfigType
_TOPIC, _CLIENT_METRICS, _GROUP = 1, 7, 8
_TYPES = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7, "password": 9}

_LISTENERS = {
    "listeners": ("listeners", "host", "port"),
    "advertised.listeners": (*SIMPLE_FORM, "listeners", "advertised_listeners"),
}


def denial(request: Request, asked: Any) -> ErrorCode:
    """The code for a resource of a request about configs, `none` where the client may do it."""
    if asked.resource_type == ConfigType.TOPIC:
        return request.denial(ResourceType.TOPIC, asked.resource_name)
    if asked.resource_type == ConfigType.GROUP:
        return request.denial(ResourceType.GROUP, asked.resource_name)
    known = asked.resource_type in set(ConfigType)
    return request.denial(ResourceType.CLUSTER, CLUSTER_NAME) if known else ErrorCode.none


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
    every |= {name: _listeners(name, fields, broker) for name, fields in _LISTENERS.items()}
    every |= {body["name"]: body for body in _of_listeners(settings)}
    every |= {entry[0]: _body(*entry) for entry in _own(settings, broker.redis, broker.http)}
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
    shown = {
        **_body(name, value, source, config.key.type, _documentation(config.key), not config.dynamic),
        "synonyms": synonyms,
    }
    return _hidden(shown) if config.key.type == "password" else shown


def _hidden(shown: Body) -> Body:
    """The config without its value, as Kafka shows one of type PASSWORD."""
    synonyms = [{**synonym, "value": None} for synonym in shown["synonyms"]]
    return {**shown, "value": None, "synonyms": synonyms, "is_sensitive": True}


def _of_listeners(settings: Settings) -> Iterator[Body]:
    """What the tables [listener.NAME] set."""
    for listener, table in settings.listener.items():
        for setting, value in table.items():
            key = of_listener(listener, setting, value).key
            shown = _body(key.name, key.constant, STATIC, key.type, key.documentation)
            yield _hidden(shown) if key.type == "password" else shown


def _listeners(name: str, fields: tuple[str, ...], broker: Configured) -> Body:
    """Several settings are one config to Kafka."""
    settings, ports = broker.settings, broker.ports.numbers
    told = settings.announced(ports) if name.startswith("advertised") else on_ports(settings.endpoints, ports)
    infos = {field: type(settings).model_fields[field] for field in fields}
    default = all(getattr(settings, field) == info.default for field, info in infos.items())
    documentation = " ".join(info.description or "" for info in infos.values())
    return _body(name, ",".join(map(str, told)), DEFAULT if default else STATIC, "list", documentation)


def _own(settings: Settings, redis: RedisAddress, http: str | None) -> list[tuple[str, str | None, int, str, str]]:
    """Facts that commands ask a broker for, see `ketch.cli.broker_redis` and `ketch.cli.byte_rates`; and where Kafka's
    tools look for the disk and the rack."""
    address = redis.describe()
    return [
        ("ketch.http", http, STATIC if http else DEFAULT, "string", "URL of the port of /metrics and /healthz."),
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
