"""ShareGroupHeartbeat (76), version 1: a member of a share group joins, stays or leaves (KIP-932).

The coordinator assigns; the answer says which partitions the member may read, and which epoch it is in. The client
makes its member id. A group of another kind gets GROUP_ID_NOT_FOUND (69), an empty one, too: an id is a share group's
from its first member until it is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.heartbeats import answer
from ketch.coordinator.consumer.events import JOIN_EPOCH, LEAVE_EPOCH, BeatResult
from ketch.coordinator.share.events import ShareBeat, ShareDepart
from ketch.errors import KetchError


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not be a member of the group, or not describe a topic that it names."""
    return answer(BeatResult(code, None))


async def handle(request: Request) -> Answer:
    wrong = next(_wrong(request.body), None)
    if wrong is not None:
        return answer(BeatResult(ErrorCode.invalid_request, wrong))
    try:
        return answer(await (_depart(request) if request.body.member_epoch == LEAVE_EPOCH else _beat(request)))
    except KetchError as error:
        return answer(BeatResult(request.refuse(f"group {request.body.group_id}", error), str(error)))


def _wrong(body: Any) -> Iterator[str]:
    """What no request may say, in the order of GroupCoordinatorService."""
    if not body.member_id.strip():
        yield "MemberId can't be empty."
    if not body.group_id.strip():
        yield "GroupId can't be empty."
    if body.rack_id is not None and not body.rack_id.strip():
        yield "RackId can't be empty."
    if body.member_epoch == JOIN_EPOCH and not body.subscribed_topic_names:
        yield "SubscribedTopicNames must be set in first request."
    elif body.member_epoch < LEAVE_EPOCH:
        yield "MemberEpoch is invalid."


async def _beat(request: Request) -> Any:
    body, topics = request.body, await request.broker.topic_images.current()
    names = body.subscribed_topic_names
    return await request.broker.groups.submit(
        body.group_id,
        lambda token: ShareBeat(
            token,
            body.member_id,
            body.member_epoch,
            request.header.client_id or "",
            request.caller.host,
            topics,
            body.rack_id,
            None if names is None else frozenset(names),
        ),
    )


async def _depart(request: Request) -> Any:
    body = request.body
    return await request.broker.groups.submit(body.group_id, lambda token: ShareDepart(token, body.member_id))
