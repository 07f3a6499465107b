"""SyncGroup (14), versions 0 to 5: the leader hands in the assignment, and each member is answered with its own part.

From version 5 on a member says which protocol it believes was chosen (KIP-559).
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.coordinator.classic.events import Sync, SyncResult
from ketch.errors import KetchError
from ketch.wire.responses import Body


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not be a member of the group."""
    return _answer(SyncResult(code))


async def handle(request: Request) -> Answer:
    body = request.body
    if not body.group_id:
        return _answer(SyncResult(ErrorCode.invalid_group_id))
    if request.version >= 5 and None in (body.protocol_type, body.protocol_name):
        return _answer(SyncResult(ErrorCode.inconsistent_group_protocol))
    try:
        answered = request.broker.groups.submit(
            body.group_id,
            lambda token: Sync(
                token,
                body.member_id,
                getattr(body, "group_instance_id", None),
                body.generation_id,
                getattr(body, "protocol_type", None),
                getattr(body, "protocol_name", None),
                {assignment.member_id: assignment.assignment for assignment in body.assignments},
            ),
        )
        result = await request.waiting(answered)  # for the other members
    except KetchError as error:
        result = SyncResult(request.refuse(f"group {body.group_id}", error))
    if result.error is ErrorCode.none:
        request.broker.assignments.speaks(request.reader, body.group_id, body.member_id)
    return _answer(result)


def _answer(result: SyncResult) -> Body:
    return {
        "error_code": result.error,
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol,
        "assignment": result.assignment,
    }
