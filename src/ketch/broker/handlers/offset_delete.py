"""OffsetDelete (47), version 0 (KIP-496): forgets commits of topics that no member of the group is subscribed to."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.coordination.assignments import subscribed_topics
from ketch.broker.errors import Refused, code_of
from ketch.broker.topics import find_partition
from ketch.coordinator.classic.group import Group
from ketch.coordinator.consumer.group import ConsumerGroup
from ketch.coordinator.share.group import ShareGroup
from ketch.errors import KetchError, UnknownTopicOrPartition
from ketch.wire.responses import Body


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not delete of the group."""
    return _answer(code)


async def handle(request: Request) -> Answer:
    body, lease = request.body, request.broker.cluster.leased_at(request.received)
    if not body.group_id:
        return _answer(ErrorCode.invalid_group_id)
    try:
        request.broker.groups.require(body.group_id)
        if not await request.broker.groups.exists(body.group_id):
            return _answer(ErrorCode.group_id_not_found)
        group = await request.broker.groups.get(body.group_id)
        if isinstance(group, ShareGroup):
            return _answer(ErrorCode.group_id_not_found)
        if group.members and group.protocol_type != "consumer":
            return _answer(ErrorCode.non_empty_group)
        subscribed = subscribed_topics(group)
        await request.broker.groups.hold(group, lease)
        return _answer(ErrorCode.none, [await _topic(request, group, topic, subscribed) for topic in body.topics])
    except KetchError as error:
        return _answer(request.refuse(f"group {body.group_id}", error))


async def _topic(request: Request, group: Group | ConsumerGroup, topic: Any, subscribed: set[str] | None) -> Body:
    """
    Args:
        subscribed: None where some member's subscription cannot be read: it may be to anything.
    """
    partitions = []
    for part in topic.partitions:
        error = ErrorCode.none
        try:
            await find_partition(request, topic.name, part.partition_index)
            if subscribed is None or topic.name in subscribed:
                error = ErrorCode.group_subscribed_to_topic
            else:
                await request.broker.log.commits.remove(group.id, [(topic.name, part.partition_index)], group.term)
        except (Refused, UnknownTopicOrPartition) as missing:
            error = code_of(missing)
        partitions.append({"partition_index": part.partition_index, "error_code": error})
    return {"name": topic.name, "partitions": partitions}


def _answer(error: ErrorCode, topics: list[Body] | tuple[()] = ()) -> Body:
    return {"error_code": error, "topics": topics}
