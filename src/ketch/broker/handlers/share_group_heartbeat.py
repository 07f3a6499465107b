"""ShareGroupHeartbeat (76), version 1: a member of a share group joins, stays or leaves (KIP-932).

The coordinator assigns; the answer says which partitions the member may read, and which epoch it is in. The client
makes its member id. A group of another kind gets GROUP_ID_NOT_FOUND (69), an empty one, too: an id is a share group's
from its first member until it is deleted.

Who joins is answered a moment later, with what is assigned by then. Members often begin together; the first would have
fetched from partitions that the next ones get, and Java's client forgets such records, until their locks expire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.heartbeats import answer
from ketch.coordinator.consumer.events import JOIN_EPOCH, LEAVE_EPOCH, BeatResult
from ketch.coordinator.share.events import ShareBeat, ShareDepart
from ketch.errors import KetchError

_JOINING_S = 0.25


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not be a member of the group, or not describe a topic that it names."""
    return answer(BeatResult(code, None))


async def handle(request: Request) -> Answer:
    wrong = next(_wrong(request.body), None)
    if wrong is not None:
        return answer(BeatResult(ErrorCode.invalid_request, wrong))
    try:
        return answer(await _ANSWERS.get(request.body.member_epoch, _stay)(request))
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


async def _join(request: Request) -> BeatResult:
    joined = await _beat(request, JOIN_EPOCH)
    if joined.error:
        return joined
    await request.waiting(asyncio.sleep(_JOINING_S))
    return await _beat(request, joined.epoch)


async def _stay(request: Request) -> BeatResult:
    return await _beat(request, request.body.member_epoch)


async def _beat(request: Request, epoch: int) -> BeatResult:
    body, topics = request.body, await request.broker.topic_images.current()
    names = body.subscribed_topic_names
    result: BeatResult = await request.broker.groups.submit(
        body.group_id,
        lambda token: ShareBeat(
            token,
            body.member_id,
            epoch,
            request.header.client_id or "",
            request.caller.host,
            topics,
            body.rack_id,
            None if names is None else frozenset(names),
        ),
    )
    return result


async def _depart(request: Request) -> BeatResult:
    groups, member = request.broker.groups, request.body.member_id
    result: BeatResult = await groups.submit(request.body.group_id, lambda token: ShareDepart(token, member))
    return result


_ANSWERS = {JOIN_EPOCH: _join, LEAVE_EPOCH: _depart}
