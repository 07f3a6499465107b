"""Heartbeat (12), versions 0 to 4: a member is alive; REBALANCE_IN_PROGRESS tells it to join again."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.coordinator.classic.events import Heartbeat
from ketch.errors import KetchError


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not be a member of the group."""
    return {"error_code": code}


async def handle(request: Request) -> Answer:
    body = request.body
    error = ErrorCode.invalid_group_id
    if body.group_id:
        try:
            error = await request.broker.groups.submit(
                body.group_id,
                lambda token: Heartbeat(
                    token, body.member_id, getattr(body, "group_instance_id", None), body.generation_id
                ),
            )
        except KetchError as failure:
            error = request.refuse(f"group {body.group_id}", failure)
    if error is ErrorCode.none:
        request.broker.assignments.speaks(request.reader, body.group_id, body.member_id)
    return {"error_code": error}
