"""ConsumerGroupHeartbeat (68), versions 0 and 1: a member of a consumer group joins, stays or leaves (KIP-848).

The coordinator assigns; the answer says which partitions the member may read, and which epoch it is in. From version 1
on the client makes its member id, and may subscribe by a regular expression of RE2.

Of the topics that match a regular expression the group reads those that the client may describe whose heartbeat made
the coordinator look: one that brought a new expression, or the first one after a topic had come, or after ten minutes.

An empty group of the classic protocol becomes a consumer group. One with members does, too, where
`group.consumer.migration.policy` allows it (`coordinator.migration`); else the answer is GROUP_ID_NOT_FOUND (69).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.heartbeats import answer
from ketch.broker.touches import LISTS_TOPIC
from ketch.coordinator.consumer.events import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    Beat,
    BeatResult,
    Depart,
)
from ketch.coordinator.consumer.topics import Partitions
from ketch.errors import KetchError

_ID_OF_CLIENT_SINCE = 1


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not be a member of the group, or not describe a topic that it names."""
    return answer(BeatResult(code, None))


async def handle(request: Request) -> Answer:
    body = request.body
    wrong = next(_wrong(request), None)
    if wrong is not None:
        return answer(BeatResult(ErrorCode.invalid_request, wrong))
    try:
        result: BeatResult = await (_beat(request) if body.member_epoch >= JOIN_EPOCH else _depart(request))
    except KetchError as error:
        result = BeatResult(request.refuse(f"group {body.group_id}", error), str(error))
    if result.error is ErrorCode.none and body.member_epoch >= JOIN_EPOCH and result.member_id:
        request.broker.assignments.speaks(request.reader, body.group_id, result.member_id)
    return answer(result)


def _wrong(request: Request) -> Iterator[str]:
    """What no request may say, in the order of GroupCoordinatorService."""
    body, epoch = request.body, request.body.member_epoch
    named = request.version >= _ID_OF_CLIENT_SINCE or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    if named and not body.member_id.strip():
        yield "MemberId can't be empty."
    if not body.group_id.strip():
        yield "GroupId can't be empty."
    if body.instance_id is not None and not body.instance_id.strip():
        yield "InstanceId can't be empty."
    if body.rack_id is not None and not body.rack_id.strip():
        yield "RackId can't be empty."
    if epoch == JOIN_EPOCH:
        yield from _wrong_of_newcomer(body)
    elif epoch == LEAVE_STATIC_EPOCH and body.instance_id is None:
        yield "InstanceId can't be null."
    elif epoch < LEAVE_STATIC_EPOCH:
        yield "MemberEpoch is invalid."


def _wrong_of_newcomer(body: Any) -> Iterator[str]:
    if _rebalance_timeout(body) is None:
        yield "RebalanceTimeoutMs must be provided in first request."
    if body.topic_partitions is None or body.topic_partitions:
        yield "TopicPartitions must be empty when (re-)joining."
    if body.subscribed_topic_names is None and getattr(body, "subscribed_topic_regex", None) is None:
        yield "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."


def _rebalance_timeout(body: Any) -> float | None:
    seconds: float = body.rebalance_timeout.total_seconds()
    return None if seconds < 0 else seconds


async def _beat(request: Request) -> Any:
    body, topics = request.body, await request.broker.topic_images.current()
    names, member_id = body.subscribed_topic_names, body.member_id or str(uuid.uuid4())
    return await request.broker.groups.submit(
        body.group_id,
        lambda token: Beat(
            token,
            member_id,
            body.member_epoch,
            request.header.client_id or "",
            request.caller.host,
            topics,
            body.instance_id,
            body.rack_id,
            _rebalance_timeout(body),
            None if names is None else frozenset(names),
            getattr(body, "subscribed_topic_regex", None),
            body.server_assignor,
            _owned(body.topic_partitions),
            lambda name: bool(request.denial_by(LISTS_TOPIC, name)),
        ),
    )


def _owned(topics: Any) -> Partitions | None:
    if topics is None:
        return None
    return frozenset((str(topic.topic_id), index) for topic in topics for index in topic.partitions)


async def _depart(request: Request) -> Any:
    body = request.body
    return await request.broker.groups.submit(
        body.group_id, lambda token: Depart(token, body.member_id, body.instance_id, body.member_epoch)
    )
