"""ListConfigResources (74), versions 0 and 1: what DescribeConfigs can be asked for: topics (2), the live brokers
(4), subscriptions of client metrics (16), and groups with configs (32).

Version 0 is about client metrics (KIP-1000), version 1 about the types asked for, or all of them (KIP-1142). There are
no loggers (8); any other type gets UNSUPPORTED_VERSION (35).
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.resources import ConfigType
from ketch.errors import KetchError
from ketch.wire.responses import Body

_TYPES = set[int](ConfigType)


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not describe the configs of the cluster."""
    return _answer(code, [])


async def handle(request: Request) -> Answer:
    types = {int(ConfigType.CLIENT_METRICS)} if request.version == 0 else set(request.body.resource_types) or _TYPES
    if not types <= _TYPES:
        return _answer(ErrorCode.unsupported_version, [])
    try:
        return _answer(ErrorCode.none, await _resources(request, types))
    except KetchError as error:
        return _answer(request.refuse("", error), [])


async def _resources(request: Request, types: set[int]) -> list[Body]:
    found: list[Body] = []
    if ConfigType.TOPIC in types:
        topics = await request.broker.log.topics.all()
        found += [{"resource_name": topic.name, "resource_type": ConfigType.TOPIC} for topic in topics]
    if ConfigType.BROKER in types:
        nodes = request.broker.cluster.nodes
        found += [{"resource_name": str(node.id), "resource_type": ConfigType.BROKER} for node in nodes]
    if ConfigType.CLIENT_METRICS in types:
        await request.broker.telemetry.refresh()
        names = sorted(request.broker.telemetry.subscriptions)
        found += [{"resource_name": name, "resource_type": ConfigType.CLIENT_METRICS} for name in names]
    if ConfigType.GROUP in types:
        await request.broker.groups.configs.refresh()
        groups = sorted(request.broker.groups.configs.stored)
        found += [{"resource_name": name, "resource_type": ConfigType.GROUP} for name in groups]
    return found


def _answer(error: ErrorCode, resources: list[Body]) -> Answer:
    return {"error_code": error, "config_resources": resources}
