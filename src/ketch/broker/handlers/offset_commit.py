"""OffsetCommit (8), versions 2 to 9: where a group goes on reading.

The offset is stored as `{ks}:commit:{stream}:{group}`; everything below it counts as acknowledged in the native group
of the stream (commits are cumulative). A consumer that assigned itself commits with generation -1 to a group without
members; as in Kafka such a group may have the empty name.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.errors import code_of, coordinator_error
from ketch.clock import now_ms
from ketch.coordinator.events import Commit
from ketch.errors import KetchError
from ketch.store.groups import Committed, TopicPartition
from ketch.wire.responses import Body


async def handle(request: Request) -> Answer:
    body = request.body
    named = [(topic.name, part) for topic in body.topics for part in topic.partitions]
    errors = {(topic, part.partition_index): await _place_error(request, topic, part) for topic, part in named}
    # What does not exist is said first; then comes the group, then what the commit carries.
    group_error = ErrorCode.none if all(errors.values()) else await _group_error(request)
    commits: dict[TopicPartition, Committed] = {}
    for topic, part in named:
        key = (topic, part.partition_index)
        errors[key] = errors[key] or group_error or _metadata_error(request, part)
        if not errors[key]:
            commits[key] = _committed(part)
    if not commits:
        return _answer(request, errors)
    try:
        await request.broker.commit(body.group_id, commits)
    except KetchError as failure:
        request.note(f"OffsetCommit of {body.group_id}: {failure}")
        errors |= dict.fromkeys(commits, coordinator_error(failure))
    return _answer(request, errors)


async def _group_error(request: Request) -> ErrorCode:
    body = request.body
    generation = body.generation_id_or_member_epoch
    try:
        error: ErrorCode = await request.broker.groups.submit(
            body.group_id,
            lambda token: Commit(token, body.member_id, getattr(body, "group_instance_id", None), generation),
        )
    except KetchError as failure:
        request.note(f"OffsetCommit of {body.group_id}: {failure}")
        return coordinator_error(failure)
    if error is ErrorCode.unknown_member_id and not await request.broker.groups.exists(body.group_id):
        return ErrorCode.group_id_not_found if request.version >= 9 else ErrorCode.illegal_generation
    return error


def _metadata_error(request: Request, part: Any) -> ErrorCode:
    size = len((part.committed_metadata or "").encode("utf-16-le")) // 2  # Kafka counts Java's characters
    too_large = size > request.broker.settings.offset_metadata_max_bytes
    return ErrorCode.offset_metadata_too_large if too_large else ErrorCode.none


async def _place_error(request: Request, topic: str, part: Any) -> ErrorCode:
    try:
        request.broker.log.partition(await request.broker.log.topic(topic), part.partition_index)
    except KetchError as error:
        return code_of(error)
    return ErrorCode.none


def _committed(part: Any) -> Committed:
    epoch = getattr(part, "committed_leader_epoch", -1)
    return Committed(part.committed_offset, epoch, part.committed_metadata or "", now_ms())


def _answer(request: Request, errors: dict[TopicPartition, ErrorCode]) -> Body:
    return {
        "throttle_time": 0,
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
