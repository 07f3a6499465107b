"""JoinGroup (11), versions 0 to 9: becomes a member, or takes part in a rebalance; answered when it is complete.

The member id round trip is required from version 4 on (KIP-394), instances are static from 5 (KIP-345), a leader may be
told to skip the assignment from 9 (KIP-814).

A group that has become a consumer group (KIP-848) takes in classic members: it answers at once, and names no leader.
"""

from __future__ import annotations

import uuid

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.coordinator.classic.events import Join, JoinResult
from ketch.errors import KetchError
from ketch.wire.responses import Body


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not be a member of the group."""
    return _answer(request, JoinResult(code, request.body.member_id))


async def handle(request: Request) -> Answer:
    body = request.body
    if not body.group_id:
        return _answer(request, JoinResult(ErrorCode.invalid_group_id, body.member_id))
    session = body.session_timeout.total_seconds()
    rebalance = body.rebalance_timeout.total_seconds() if request.version >= 1 else session
    try:
        topics = await request.broker.topic_images.current()
        answered = request.broker.groups.submit(
            body.group_id,
            lambda token: Join(
                token,
                body.member_id,
                getattr(body, "group_instance_id", None),
                request.header.client_id or "",
                request.caller.host,
                session,
                rebalance,
                body.protocol_type,
                tuple((protocol.name, protocol.metadata) for protocol in body.protocols),
                id_required=request.version >= 4,
                skips_assignment=request.version >= 9,
                topics=topics,
                new_id=str(uuid.uuid4()),
            ),
        )
        result = await request.waiting(answered)  # for the other members
    except KetchError as error:
        result = JoinResult(request.refuse(f"group {body.group_id}", error), body.member_id)
    return _answer(request, result)


def _answer(request: Request, result: JoinResult) -> Body:
    nullable = request.version >= 7
    return {
        "error_code": result.error,
        "generation_id": result.generation,
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol if nullable else result.protocol or "",
        "leader": result.leader,
        "skip_assignment": result.skip_assignment,
        "member_id": result.member_id,
        "members": [
            {"member_id": member, "group_instance_id": instance, "metadata": metadata}
            for member, instance, metadata in result.members
        ],
    }
