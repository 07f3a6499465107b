"""IncrementalAlterConfigs (44), versions 0 and 1: configs of topics, brokers, client metrics and groups, one by one
(KIP-339, KIP-226, KIP-714, KIP-848).

As in Kafka all that is asked of a resource is done, or nothing. A broker's configs are this one's, or with an empty
name those of all brokers.

Deviations: a change of an unknown broker config is refused like one of a config that is read-only. Kafka keeps unknown
ones for plugins, of which there are none here. An empty value of a topic config is refused, but of a list that may be
empty.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker import configs, telemetry
from ketch.broker.api import Answer, Request, printable
from ketch.broker.coordination import group_configs
from ketch.broker.dynamic import check_value
from ketch.broker.errors import Refused
from ketch.broker.resources import ConfigType
from ketch.broker.topics import denied, find_topic_now
from ketch.configs.broker_table import BROKER_CONFIGS
from ketch.configs.topic_checks import validate
from ketch.configs.topic_table import CONFIGS
from ketch.errors import InvalidConfig, KetchError
from ketch.store.topics.topic import Topic
from ketch.tasks import taking_turns
from ketch.wire.responses import Body

log = logging.getLogger(__name__)

_AT_ONCE = 500  # resources that are looked at in one go, some 10 ms


class Operation(IntEnum):
    """AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


Change = tuple[str, int, str | None]  # config, operation, value
Changes = Callable[[Request, Any], list[Change]]  # what a resource of a request asks for


async def handle(request: Request) -> Answer:
    return await answer(request, lambda _, asked: [(c.name, c.config_operation, c.value) for c in asked.configs])


async def answer(request: Request, changes: Changes) -> Answer:
    """The response to a request to alter configs, whichever changes its resources stand for."""
    asked = request.body.resources
    times = Counter((each.resource_type, each.resource_name) for each in asked)
    return {
        "responses": [
            await _alter(request, each, changes, times[each.resource_type, each.resource_name] > 1)
            async for each in taking_turns(asked, _AT_ONCE)
        ],
    }


async def _alter(request: Request, asked: Any, changes: Changes, twice: bool) -> Body:
    name = asked.resource_name
    code, message = ErrorCode.none, None
    try:
        if twice:
            raise Refused(ErrorCode.invalid_request, "Each resource must appear at most once.")
        if denial := configs.denial(request, asked):
            raise denied(denial)
        _check_form(asked)
        if asked.resource_type == ConfigType.BROKER:
            await _alter_broker(request, name, changes(request, asked))
        elif asked.resource_type == ConfigType.CLIENT_METRICS:
            await _alter_subscription(request, name, changes(request, asked))
        elif asked.resource_type == ConfigType.GROUP:
            await _alter_group(request, name, changes(request, asked))
        else:
            await _alter_topic(request, asked, changes)
    except KetchError as error:
        code, message = request.refuse(name, error), printable(str(error))
    return {"error_code": code, "error_message": message, "resource_type": asked.resource_type, "resource_name": name}


async def _alter_topic(request: Request, asked: Any, changes: Changes) -> None:
    topic = await _topic(request, asked)
    altered = _altered(topic, changes(request, asked), request.broker.log.defaults)
    if altered and not request.body.validate_only:
        await request.broker.log.topics.alter(topic, altered)
        log.info("%s: altered topic %s: %s", request.client, topic.name, _shown(altered))


async def _alter_broker(request: Request, name: str, changes: list[Change]) -> None:
    _check_node(request, name)
    dynamic = request.broker.dynamic
    await dynamic.refresh()  # another broker may have changed what is appended to
    held = {config: dynamic.levels(config)[0][0] or "" for config, _, _ in changes if config in BROKER_CONFIGS}
    try:
        values = {
            config: None if value is None else check_value(config, value)
            for config, operation, given in changes
            if (value := _broker_value(config, operation, given, held)) is not None or config in BROKER_CONFIGS
        }
        dynamic.check(name, values)
    except InvalidConfig as error:  # KafkaConfig's errors are of this code, unlike LogConfig's
        raise Refused(ErrorCode.invalid_request, str(error)) from None
    if values and not request.body.validate_only:
        await dynamic.alter(name, values)
        of = f"broker {name}" if name else "all brokers"
        log.info("%s: altered %s: %s", request.client, of, _shown(values))


def _check_node(request: Request, name: str) -> None:
    node = str(request.broker.settings.node_id)
    if name and not re.fullmatch(r"[+-]?[0-9]+", name):
        raise Refused(ErrorCode.invalid_request, f"Node id must be an integer, but it is: {name}")
    if name not in ("", node):
        raise Refused(ErrorCode.invalid_request, f"Unexpected broker id, expected {node}, but received {name}")


def _broker_value(name: str, operation: int, value: str | None, held: Mapping[str, str]) -> str | None:
    if name not in BROKER_CONFIGS:
        return value if operation != Operation.DELETE else None
    if operation in (Operation.APPEND, Operation.SUBTRACT) and BROKER_CONFIGS[name].key.type != "list":
        word = Operation(operation).name.lower()
        raise Refused(ErrorCode.invalid_config, f"Config value {word} is not allowed for config key: {name}")
    return _result_of(name, operation, value, held[name])


async def _alter_subscription(request: Request, name: str, changes: list[Change]) -> None:
    """A subscription of client metrics (KIP-714)."""
    if not name:
        raise Refused(ErrorCode.invalid_request, "Subscription name can't be empty")
    await request.broker.telemetry.refresh()  # another broker may have changed it
    configs = dict(request.broker.telemetry.subscriptions.get(name, {}))
    for config, operation, given in changes:
        if config not in telemetry.CONFIGS:
            raise Refused(ErrorCode.invalid_request, f"Unknown client metrics configuration: {config}")
        value = _result_of(config, operation, given, configs.pop(config, ""))
        try:
            configs |= {} if value is None else {config: telemetry.check(config, value)}
        except telemetry.IntervalOutOfRange as error:
            raise Refused(ErrorCode.invalid_request, str(error)) from None
    if changes and not request.body.validate_only:
        await request.broker.telemetry.alter(name, configs)
        log.info("%s: altered client metrics %s: %s", request.client, name, _shown(configs) or "none")


async def _alter_group(request: Request, name: str, changes: list[Change]) -> None:
    if not name:
        raise Refused(ErrorCode.invalid_request, "Default group resources are not allowed.")
    groups = request.broker.groups.configs
    await groups.refresh()  # another broker may have changed it
    values = dict(groups.stored.get(name, {}))
    for config, operation, given in changes:
        if operation in (Operation.APPEND, Operation.SUBTRACT) and config in group_configs.CONFIGS:
            word = Operation(operation).name
            raise InvalidConfig(f"Can't {word} to key {config} because its type is not LIST.")
        value = _result_of(config, operation, given, values.pop(config, ""))
        values |= {} if value is None else {config: value}
    values = groups.check(values)
    if changes and not request.body.validate_only:
        await groups.alter(name, values)
        log.info("%s: altered group %s: %s", request.client, name, _shown(values) or "none")


def _shown(altered: Mapping[str, str | None]) -> str:
    return ", ".join(f"{key}={'default' if value is None else value}" for key, value in altered.items())


def _check_form(asked: Any) -> None:
    """What Kafka refuses before it looks at the resource."""
    if len({config.name for config in asked.configs}) < len(asked.configs):
        raise Refused(ErrorCode.invalid_request, "Error due to duplicate config keys")
    nulls = [
        c.name
        for c in asked.configs
        if c.value is None and getattr(c, "config_operation", Operation.SET) != Operation.DELETE
    ]
    if nulls:
        raise Refused(ErrorCode.invalid_request, f"Null value not supported for : {', '.join(nulls)}")


async def _topic(request: Request, asked: Any) -> Topic:
    name = asked.resource_name
    if asked.resource_type != ConfigType.TOPIC:
        raise Refused(ErrorCode.invalid_request, f"Unknown resource type {asked.resource_type}")
    if not name:
        raise Refused(ErrorCode.invalid_request, "Default topic resources are not allowed.")
    return await find_topic_now(request, name, legal=True, unknown=f"The topic '{name}' does not exist.")


def _altered(topic: Topic, changes: list[Change], default: Mapping[str, str]) -> dict[str, str | None]:
    """The changes as values, None for the broker's default.

    Raises:
        InvalidConfig: a config, an operation or a value that cannot be.
    """
    values = {name: _value(topic, name, operation, value) for name, operation, value in changes}
    wanted = {
        name: default[name] if value is None else value
        for name, value in values.items()
        if name in CONFIGS or value is not None  # one that was never set may be deleted
    }
    checked = validate(wanted, topic.configs)
    for name in [name for name in checked if CONFIGS[name].fixed]:
        if checked.pop(name) != topic.configs[name]:
            raise InvalidConfig(f"{name} is chosen when a topic is created; it is {topic.configs[name]} for this one.")
    return {name: None if values[name] is None else value for name, value in checked.items()}


def _value(topic: Topic, name: str, operation: int, value: str | None) -> str | None:
    if operation == Operation.DELETE:
        return None
    if operation == Operation.SET or name not in CONFIGS:  # which `validate` refuses
        return value
    if operation in (Operation.APPEND, Operation.SUBTRACT) and CONFIGS[name].type != "list":
        raise InvalidConfig(f"Can't {Operation(operation).name} to key {name} because its type is not LIST.")
    return _result_of(name, operation, value, topic.configs[name])


def _result_of(name: str, operation: int, value: str | None, present: str) -> str | None:
    """What a config is after an operation; None for its default."""
    if operation == Operation.DELETE:
        return None
    if operation == Operation.SET:
        return value
    if operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise Refused(ErrorCode.invalid_request, f"Unknown operation {operation} for {name}")
    held, given = present.split(",") if present else [], (value or "").split(",")
    if operation == Operation.APPEND:
        return ",".join(dict.fromkeys([*held, *given]))
    return ",".join(each for each in held if each not in given)
