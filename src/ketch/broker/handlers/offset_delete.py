"""OffsetDelete (47), version 0 (KIP-496): forgets commits of topics that no member of the group is subscribed to."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.assignments import subscribed_topics
from ketch.errors import KetchError
from ketch.wire.messages import Body


async def handle(request: Request) -> Answer:
    body = request.body
    try:
        if not await request.broker.groups.exists(body.group_id):
            return _answer(ErrorCode.group_id_not_found)
        group = await request.broker.groups.get(body.group_id)
        subscribed = subscribed_topics(group)
        if group.members and group.protocol_type != "consumer":
            return _answer(ErrorCode.non_empty_group)
        return _answer(
            ErrorCode.none, [await _topic(request, topic, topic.name in subscribed) for topic in body.topics]
        )
    except KetchError as error:
        request.note(f"OffsetDelete of {body.group_id}: {error}")
        return _answer(ErrorCode.coordinator_not_available)


async def _topic(request: Request, topic: object, subscribed: bool) -> Body:
    name: str = topic.name  # type: ignore[attr-defined]
    indexes = [part.partition_index for part in topic.partitions]  # type: ignore[attr-defined]
    error = ErrorCode.group_subscribed_to_topic if subscribed else ErrorCode.none
    if not subscribed:
        await request.broker.groups.store.uncommit(request.body.group_id, [(name, index) for index in indexes])
    return {"name": name, "partitions": [{"partition_index": index, "error_code": error} for index in indexes]}


def _answer(error: ErrorCode, topics: list[Body] | tuple[()] = ()) -> Body:
    return {"error_code": error, "throttle_time": 0, "topics": topics}
