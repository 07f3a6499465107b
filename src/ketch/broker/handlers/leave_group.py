"""LeaveGroup (13), versions 0 to 5: members go; version 3 on names several, and static ones by instance (KIP-345)."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.coordinator.classic.events import Leave
from ketch.errors import KetchError
from ketch.wire.responses import Body


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not be a member of the group."""
    return _answer(code)


async def handle(request: Request) -> Answer:
    body = request.body
    if not body.group_id:
        return _answer(ErrorCode.invalid_group_id)
    named = (
        [(body.member_id, None)] if request.version < 3 else [(m.member_id, m.group_instance_id) for m in body.members]
    )
    try:
        members = [await _leave(request, member, instance) for member, instance in named]
    except KetchError as error:
        return _answer(request.refuse(f"group {body.group_id}", error))
    if request.version < 3:
        return _answer(members[0]["error_code"])
    return _answer(ErrorCode.none, members)


async def _leave(request: Request, member: str, instance: str | None) -> Body:
    error = await request.broker.groups.submit(request.body.group_id, lambda token: Leave(token, member, instance))
    return {"member_id": member, "group_instance_id": instance, "error_code": error}


def _answer(error: ErrorCode, members: list[Body] | tuple[()] = ()) -> Body:
    return {"error_code": error, "members": members}
