"""DescribeShareGroupOffsets (90), version 0: where share groups stand on partitions (KIP-932).

A start offset of -1 is that of a partition from which the group was given nothing yet, or that there is not. The leader
epoch is always 0. As in Kafka nothing says whether there is such a group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.resources import DENIED_TEXTS
from ketch.broker.topics import ZERO_ID, denied
from ketch.broker.touches import LISTS_TOPIC
from ketch.coordinator.share.group import ShareGroup
from ketch.errors import KetchError
from ketch.security.acls import ResourceType
from ketch.wire.responses import Body

_NOWHERE = -1


async def handle(request: Request) -> Answer:
    return {"groups": await asyncio.gather(*(_group(request, asked) for asked in request.body.groups))}


async def _group(request: Request, asked: Any) -> Body:
    name = asked.group_id
    if code := request.denial(ResourceType.GROUP, name):
        return _body(name, (), request.refuse(f"group {name}", denied(code), code))
    try:
        if asked.topics is None:
            return _body(name, await _all(request, name))
        return _body(name, [await _named(request, name, topic) for topic in asked.topics])
    except KetchError as error:
        return _body(name, (), request.refuse(f"group {name}", error), str(error))


async def _all(request: Request, name: str) -> list[Body]:
    """The topics that the group has begun to read, of those that the client may describe."""
    request.broker.groups.require(name)
    group = await request.broker.groups.get(name)
    begun = group.begun if isinstance(group, ShareGroup) else {}
    shown = [topic for topic in sorted(begun) if not request.denial_by(LISTS_TOPIC, topic)]
    found = await asyncio.gather(*(_topic(request, name, each, range(begun[each].partitions)) for each in shown))
    return [topic for each, topic in zip(shown, found, strict=True) if str(topic["topic_id"]) == begun[each].id]


async def _named(request: Request, name: str, asked: Any) -> Body:
    if code := request.denial(ResourceType.TOPIC, asked.topic_name):
        code = request.refuse(asked.topic_name, denied(code), code)
        partitions = [_partition(index, _NOWHERE, code) for index in asked.partitions]
        return {"topic_name": asked.topic_name, "topic_id": ZERO_ID, "partitions": partitions}
    return await _topic(request, name, asked.topic_name, asked.partitions)


async def _topic(request: Request, name: str, topic_name: str, indexes: Iterable[int]) -> Body:
    topic = await request.broker.log.topics.get(topic_name)
    starts: dict[int, int | None] = {}
    if topic is not None:
        there = [index for index in indexes if 0 <= index < topic.partitions]
        shares = [request.broker.log.partition(topic, index).shares for index in there]
        starts = dict(zip(there, await asyncio.gather(*(each.start(name) for each in shares)), strict=True))
    return {
        "topic_name": topic_name,
        "topic_id": ZERO_ID if topic is None else topic.id,
        "partitions": [_partition(index, starts.get(index)) for index in indexes],
    }


def _partition(index: int, start: int | None, error: ErrorCode = ErrorCode.none) -> Body:
    return {
        "partition_index": index,
        "start_offset": _NOWHERE if start is None else start,
        "leader_epoch": 0,
        "error_code": error,
        "error_message": DENIED_TEXTS[error] if error else None,
    }


def _body(name: str, topics: Iterable[Body], error: ErrorCode = ErrorCode.none, message: str | None = None) -> Body:
    return {"group_id": name, "topics": list(topics), "error_code": error, "error_message": message}
