"""DescribeTopicPartitions (75), version 0: topics by name, so many partitions at a time (KIP-966).

No topics stands for all. Topics come in the order of their names, from the cursor on; where the limit cuts the list
off, the answer's cursor says where to go on. As in Kafka a topic that does not exist is never created. Replicas are as
in Metadata.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.describing import authorized
from ketch.broker.handlers import metadata
from ketch.broker.touches import LISTS_TOPIC
from ketch.log.followers import NONE
from ketch.security.acls import ResourceType
from ketch.store.topics.topic import Topic
from ketch.wire.responses import Body

_PARTITIONS_MAX = 2_000  # Kafka's default of max.request.partition.size.limit


async def handle(request: Request) -> Answer:
    asked, cursor = request.body.topics, request.body.cursor
    names = sorted({topic.name for topic in asked})
    refusal = _refusal(names, cursor)
    if refusal:
        request.complain(f"DescribeTopicPartitions: {refusal}")
        return _answer([_error(name, ErrorCode.invalid_request) for name in names], None)
    if not names:  # without Redis this raises, see metadata
        topics = await request.broker.log.topics.all()
        names = [topic.name for topic in topics if not request.denial_by(LISTS_TOPIC, topic.name)]
    return await _page(request, [name for name in names if cursor is None or name >= cursor.topic_name])


def _refusal(names: list[str], cursor: Any) -> str | None:
    if cursor is None:
        return None
    if names and cursor.topic_name not in names:
        return f"the cursor's topic {cursor.topic_name} is not among those asked for"
    return f"cursor partition {cursor.partition_index}" if cursor.partition_index < 0 else None


async def _page(request: Request, names: list[str]) -> Answer:
    cursor = request.body.cursor
    left = max(1, min(_PARTITIONS_MAX, request.body.response_partition_limit))
    topics: list[Body] = []
    for name in names:
        start = cursor.partition_index if cursor and cursor.topic_name == name else 0
        if left == 0:
            return _answer(topics, {"topic_name": name, "partition_index": start})
        topic = await metadata.look_up(request, name)
        if not isinstance(topic, Topic):
            if request.body.topics or topic is not ErrorCode.unknown_topic_or_partition:  # else it was just deleted
                topics.append(_error(name, topic))
            continue
        end = min(topic.partitions, start + left)
        topics.append(await _describe(request, topic, range(start, end)))
        if end < topic.partitions:
            return _answer(topics, {"topic_name": name, "partition_index": end})
        left -= max(0, end - start)
    return _answer(topics, None)


async def _describe(request: Request, topic: Topic, indices: range) -> Body:
    cluster = request.broker.cluster
    leader, hidden = cluster.leader, cluster.out_of_reach(request.caller.listener)
    followers = await request.broker.log.followers.of(topic) or (NONE,) * topic.partitions
    elr: Body = {"eligible_leader_replicas": (), "last_known_elr": ()}  # Redis chooses the next master, not Kafka's way
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": False,
        "partitions": [
            {**metadata.partition(leader(topic.id, index), index, followers[index], hidden), **elr} for index in indices
        ],
        "topic_authorized_operations": authorized(request, ResourceType.TOPIC, topic.name),
    }


def _error(name: str, code: ErrorCode) -> Body:
    return {"error_code": code, "name": name, "topic_id": None, "is_internal": False, "partitions": ()}


def _answer(topics: list[Body], cursor: Body | None) -> Answer:
    return {"topics": topics, "next_cursor": cursor}
