"""IncrementalAlterConfigs (44), versions 0 and 1: configs of topics, one by one (KIP-339).

Deviations: a broker has no config that can be changed while it runs, so every change of one is refused; so is an empty
value. As in Kafka all that is asked of a resource is done, or nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request, printable
from ketch.broker.errors import Refused
from ketch.broker.handlers.create_topics import check_name
from ketch.errors import InvalidConfig, KetchError, UnknownTopicOrPartition
from ketch.store.topics import Topic
from ketch.topicconfig import CONFIGS, validate
from ketch.wire.responses import Body

log = logging.getLogger(__name__)

_TOPIC, _BROKER = 2, 4  # ConfigResource.Type


class Operation(IntEnum):
    """AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


Change = tuple[str, int, str | None]  # config, operation, value
Changes = Callable[[Any], list[Change]]  # what a resource of a request asks for


async def handle(request: Request) -> Answer:
    return await answer(request, lambda asked: [(c.name, c.config_operation, c.value) for c in asked.configs])


async def answer(request: Request, changes: Changes) -> Answer:
    """The response to a request to alter configs, whichever changes its resources stand for."""
    asked = request.body.resources
    times = Counter((each.resource_type, each.resource_name) for each in asked)
    return {
        "throttle_time": 0,
        "responses": [
            await _alter(request, each, changes, times[each.resource_type, each.resource_name] > 1) for each in asked
        ],
    }


async def _alter(request: Request, asked: Any, changes: Changes, twice: bool) -> Body:
    name = asked.resource_name
    code, message = ErrorCode.none, None
    try:
        if twice:
            raise Refused(ErrorCode.invalid_request, "Each resource must appear at most once.")
        _check_form(asked)
        topic = await _topic(request, asked)
        altered = _altered(topic, changes(asked), request.broker.log.defaults)
        if altered and not request.body.validate_only:
            await request.broker.log.topics.alter(topic, altered)
            shown = ", ".join(f"{key}={'default' if value is None else value}" for key, value in altered.items())
            log.info("%s: altered topic %s: %s", request.client, name, shown)
    except KetchError as error:
        code, message = request.refuse(name, error), printable(str(error))
    return {"error_code": code, "error_message": message, "resource_type": asked.resource_type, "resource_name": name}


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
    if asked.resource_type == _BROKER:
        names = ", ".join(config.name for config in asked.configs)
        raise Refused(ErrorCode.invalid_request, f"Cannot update these configs dynamically: Set({names})")
    if asked.resource_type != _TOPIC:
        raise Refused(ErrorCode.invalid_request, f"Unknown resource type {asked.resource_type}")
    if not name:
        raise Refused(ErrorCode.invalid_request, "Default topic resources are not allowed.")
    check_name(name)
    topics = request.broker.log.topics
    topics.forget(name)  # another broker may have changed it
    topic = await topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
    return topic


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
    if operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise Refused(ErrorCode.invalid_request, f"Unknown operation {operation} for {name}")
    if CONFIGS[name].type != "list":
        raise InvalidConfig(f"Can't {Operation(operation).name} to key {name} because its type is not LIST.")
    held, given = topic.configs[name].split(","), (value or "").split(",")
    if operation == Operation.APPEND:
        return ",".join(dict.fromkeys([*held, *given]))
    return ",".join(each for each in held if each not in given)
