"""OffsetFetch (9), versions 1 to 9: committed offsets, -1 where there is none; several groups from 8 on (KIP-709).

Null topics (version 2 on) stand for every partition the group has committed for. With
`requireStable` (version 7 on, KIP-447) a partition gets UNSTABLE_OFFSET_COMMIT (88) while an open transaction has an
offset for it, so that the client waits.

A member of a consumer group (KIP-848) names itself and its epoch from version 9 on, and is told where that is not its
own. One that names no member is an administrator's client.

While Redis is gone the answer is NOT_COORDINATOR. Kafka's GroupCoordinatorService.handleOffsetFetchException chooses
this code because Java consumers before 3.9 retry no other one here. Version 1 has no error code for the whole answer,
so each partition carries it (OffsetFetchResponse.groupError): an empty list would say that nothing is committed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.topics import denied
from ketch.broker.touches import LISTS_TOPIC
from ketch.coordinator.consumer.group import ConsumerGroup, epoch_error
from ketch.errors import KetchError
from ketch.security.acls import ResourceType
from ketch.store.coordination.commits import Committed
from ketch.store.keys import TopicPartition
from ketch.wire.responses import Body

_NOTHING = Committed(-1)
_GROUP_ERROR_SINCE = 2


async def handle(request: Request) -> Answer:
    body = request.body
    stable = getattr(body, "require_stable", False)
    if request.version < 8:
        return await _group(request, body.group_id, body.topics, stable)
    return {"groups": [await _group_of_member(request, group, stable) for group in body.groups]}


async def _group_of_member(request: Request, asked: Any, stable: bool) -> Body:
    error = await _member_error(request, asked)
    if error:
        return _unavailable(request, asked.group_id, asked.topics, error)
    return await _group(request, asked.group_id, asked.topics, stable)


async def _member_error(request: Request, asked: Any) -> ErrorCode:
    """What is wrong with the member and epoch that a request names (ConsumerGroup.validateOffsetFetch)."""
    member, epoch = getattr(asked, "member_id", None), getattr(asked, "member_epoch", -1)
    if member is None and epoch < 0:
        return ErrorCode.none
    try:
        group = await request.broker.groups.get(asked.group_id)
    except KetchError as error:
        return request.refuse(f"group {asked.group_id}", error, ErrorCode.not_coordinator)
    if not isinstance(group, ConsumerGroup) or not group.epoch:
        return ErrorCode.none
    return epoch_error(group, member or "", epoch)


async def _group(request: Request, group: str, topics: Iterable[Any] | None, stable: bool) -> Body:
    if code := request.denial(ResourceType.GROUP, group):
        return _unavailable(request, group, topics, request.refuse(f"group {group}", denied(code), code))
    try:
        pending = await request.broker.groups.apply_pending(group)
        asked = await _asked(request, group, topics)
        found = await request.broker.log.commits.of(group, asked)
        for each in pending:  # not applied yet, where another broker is to do it
            found |= each.offsets if each.committed else {}
    except KetchError as error:
        code = request.refuse(f"group {group}", error, ErrorCode.not_coordinator)
        return _unavailable(request, group, topics, code)
    unstable = {partition for each in pending if not each.committed for partition in each.offsets} if stable else set()
    if topics is None:
        asked = [each for each in found if not request.denial_by(LISTS_TOPIC, each[0])]
        return _body(group, _topics(asked, found, unstable=unstable))
    return _body(group, [*_topics(asked, found, unstable=unstable), *_denied(request, topics)])


async def _asked(request: Request, group: str, topics: Iterable[Any] | None) -> list[TopicPartition]:
    """The partitions that are asked for, without those of topics that the client may not describe."""
    if topics is None:
        await request.broker.adoption.look()
        return await request.broker.log.commits.partitions(group)
    allowed = [topic for topic in topics if not request.denial(ResourceType.TOPIC, topic.name)]
    return [(topic.name, index) for topic in allowed for index in topic.partition_indexes]


def _denied(request: Request, topics: Iterable[Any]) -> Iterator[Body]:
    """Those topics that the client may not describe."""
    for topic in topics:
        if code := request.denial(ResourceType.TOPIC, topic.name):
            yield from _topics([(topic.name, index) for index in topic.partition_indexes], {}, code)


def _body(group: str, topics: list[Body]) -> Body:
    return {"group_id": group, "error_code": ErrorCode.none, "topics": topics}


def _unavailable(request: Request, group: str, topics: Iterable[Any] | None, error: ErrorCode) -> Body:
    parts: list[Body] = []
    if request.version < _GROUP_ERROR_SINCE:
        parts = _topics([(topic.name, index) for topic in topics or () for index in topic.partition_indexes], {}, error)
    return {"group_id": group, "topics": parts, "error_code": error}


def _topics(
    asked: list[TopicPartition],
    found: dict[TopicPartition, Committed],
    error: ErrorCode = ErrorCode.none,
    unstable: Container[TopicPartition] = (),
) -> list[Body]:
    topics: dict[str, list[Body]] = {}
    for topic, index in asked:
        waits = (topic, index) in unstable
        commit = _NOTHING if waits else found.get((topic, index), _NOTHING)
        topics.setdefault(topic, []).append(
            {
                "partition_index": index,
                "committed_offset": commit.offset,
                "committed_leader_epoch": commit.leader_epoch,
                "metadata": commit.metadata,
                "error_code": ErrorCode.unstable_offset_commit if waits else error,
            }
        )
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
