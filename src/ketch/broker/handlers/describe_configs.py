"""DescribeConfigs (32), versions 1 to 4: the configs of topics (resource type 2), of this broker (4), and those
that were changed for all brokers (4, with an empty name), subscriptions of client metrics (16), and groups (32).

Deviation: resources beyond 5,000 in a request get INVALID_REQUEST (42): the answer is some hundred times the request.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker import configs
from ketch.broker.api import Answer, Request, printable
from ketch.broker.resources import DENIED_TEXTS, ConfigType
from ketch.broker.topics import denied, find_topic
from ketch.errors import KetchError
from ketch.wire.responses import Body

_RESOURCES_MAX = 5_000  # in one request: four bytes ask for some kilobytes
_AT_ONCE = 100  # resources that are described in one go, some 30 ms


async def handle(request: Request) -> Answer:
    asked, results = request.body.resources, list[Body]()
    for first in range(0, min(len(asked), _RESOURCES_MAX), _AT_ONCE):
        some = asked[first : min(first + _AT_ONCE, _RESOURCES_MAX)]
        names = [each.resource_name for each in some if each.resource_type == ConfigType.TOPIC]
        await request.broker.log.topics.prefetch(names)
        results += [await _describe(request, resource) for resource in some]
        await asyncio.sleep(0)  # other clients are served in between
    results += [_result(rest, ErrorCode.invalid_request, "Too many resources.") for rest in asked[_RESOURCES_MAX:]]
    return {"results": results}


async def _describe(request: Request, asked: Any) -> Body:
    if code := configs.denial(request, asked):
        return _result(asked, request.refuse(asked.resource_name, denied(code), code), DENIED_TEXTS[code])
    names = asked.configuration_keys or None  # an empty list means all, as null does
    if asked.resource_type == ConfigType.TOPIC:
        return await _topic(request, asked, names)
    if asked.resource_type == ConfigType.BROKER:
        return _broker(request, asked, names)
    if asked.resource_type == ConfigType.CLIENT_METRICS:
        if not asked.resource_name:
            return _result(asked, ErrorCode.invalid_request, "Client metrics subscription name must not be empty")
        entries = configs.subscription_configs(request.broker.telemetry, asked.resource_name, names)
        return _result(asked, ErrorCode.none, "", _trimmed(request, entries))
    if asked.resource_type == ConfigType.GROUP:
        if not asked.resource_name:
            return _result(asked, ErrorCode.invalid_request, "Group name must not be empty")
        entries = configs.group_configs(request.broker.groups.configs, asked.resource_name, names)
        return _result(asked, ErrorCode.none, "", _trimmed(request, entries))
    return _result(asked, ErrorCode.invalid_request, f"Unexpected resource type {asked.resource_type}.")


async def _topic(request: Request, asked: Any, names: tuple[str, ...] | None) -> Body:
    try:
        topic = await find_topic(request, asked.resource_name, legal=True)
    except KetchError as error:
        return _result(asked, request.refuse(asked.resource_name, error), str(error))
    entries = configs.topic_configs(topic, request.broker, names)
    return _result(asked, ErrorCode.none, "", _trimmed(request, entries))


def _broker(request: Request, asked: Any, names: tuple[str, ...] | None) -> Body:
    broker = request.broker
    node = str(broker.settings.node_id)
    if asked.resource_name not in (node, ""):
        message = f"Unexpected broker id, expected {node} or empty string, but received {asked.resource_name}"
        return _result(asked, ErrorCode.invalid_request, message)
    of_node = bool(asked.resource_name)
    entries = configs.broker_configs(broker, names) if of_node else configs.cluster_configs(broker.dynamic, names)
    return _result(asked, ErrorCode.none, "", _trimmed(request, entries))


def _trimmed(request: Request, entries: list[Body]) -> list[Body]:
    """Without what was not asked for."""
    absent: Body = {} if request.body.include_synonyms else {"synonyms": ()}
    if not getattr(request.body, "include_documentation", False):
        absent = {**absent, "documentation": None}
    return [{**entry, **absent} for entry in entries]


def _result(asked: Any, error: ErrorCode, message: str, entries: list[Body] | None = None) -> Body:
    return {
        "error_code": error,
        "error_message": printable(message),
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
        "configs": entries or [],
    }
