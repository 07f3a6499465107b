"""OffsetCommit (8), versions 2 to 9: where a group goes on reading.

The offset is stored as `{ks}:commit:{stream}:{group}`; everything below it counts as acknowledged in the native group
of the stream (commits are cumulative). A consumer that assigned itself commits with generation -1 to a group without
members; as in Kafka such a group may have the empty name.

`retention_time_ms` (versions 2 to 4), unless it is -1, says how long the commit is kept; it takes the place of
`offsets_retention_minutes`. KIP-211 took it out of version 5.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.errors import code_of
from ketch.clock import now_ms
from ketch.coordinator.classic.events import Commit
from ketch.errors import KetchError, UnknownTopicOrPartition
from ketch.store.coordination.commits import Committed
from ketch.store.keys import TopicPartition
from ketch.wire.responses import Body

_MS = timedelta(milliseconds=1)
_NOT_GIVEN = -_MS


async def handle(request: Request) -> Answer:
    parts = {(topic.name, part.partition_index): part for topic in request.body.topics for part in topic.partitions}
    errors = {partition: await partition_error(request, *partition) for partition in parts}
    exist = [partition for partition in parts if not errors[partition]]
    errors |= {partition: metadata_error(request, parts[partition]) for partition in exist}
    now = now_ms()
    commits = {partition: _committed(request, part, now) for partition, part in parts.items() if not errors[partition]}
    # What does not exist is said first; then comes the group, then what the commit carries.
    if exist and (group_error := await _commit(request, commits)):
        errors |= dict.fromkeys(exist, group_error)
    return _answer(request, errors)


async def _commit(request: Request, commits: dict[TopicPartition, Committed]) -> ErrorCode:
    """Stores the commits unless the group refuses."""
    body, broker = request.body, request.broker

    def event(token: object) -> Commit:
        instance = getattr(body, "group_instance_id", None)
        return Commit(token, body.member_id, instance, body.generation_id_or_member_epoch)

    try:
        error = await broker.groups.commit(body.group_id, event, request.received, commits)
    except KetchError as failure:
        return request.refuse(f"group {body.group_id}", failure)
    if error is ErrorCode.unknown_member_id and not await request.broker.groups.exists(body.group_id):
        return ErrorCode.group_id_not_found if request.version >= 9 else ErrorCode.illegal_generation
    return error


def metadata_error(request: Request, part: Any) -> ErrorCode:
    """Whether the metadata of an offset is too large."""
    size = len((part.committed_metadata or "").encode("utf-16-le")) // 2  # Kafka counts Java's characters
    too_large = size > request.broker.settings.offset_metadata_max_bytes
    return ErrorCode.offset_metadata_too_large if too_large else ErrorCode.none


async def partition_error(request: Request, topic: str, index: int) -> ErrorCode:
    """Whether there is such a partition."""
    try:
        request.broker.log.partition(await request.broker.log.topic(topic), index)
    except UnknownTopicOrPartition as error:
        return code_of(error)
    except KetchError as error:
        # Redis is gone. Of what the topic's own errors would be, KAFKA_STORAGE_ERROR is final to a client that commits.
        return request.refuse(f"group {request.body.group_id}", error)
    return ErrorCode.none


def _committed(request: Request, part: Any, now: int) -> Committed:
    epoch = getattr(part, "committed_leader_epoch", -1)
    retention = getattr(request.body, "retention_time", _NOT_GIVEN) // _MS
    expires = -1 if retention == -1 else max(0, now + retention)
    return Committed(part.committed_offset, epoch, part.committed_metadata or "", now, expires)


def _answer(request: Request, errors: dict[TopicPartition, ErrorCode]) -> Body:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": part.partition_index, "error_code": errors[topic.name, part.partition_index]}
                    for part in topic.partitions
                ],
            }
            for topic in request.body.topics
            if topic.partitions
        ],
    }
