"""DescribeGroups (15), versions 0 to 6: state, protocol and members; version 6 on has GROUP_ID_NOT_FOUND (KIP-1043).

A group of another kind is answered as one that is not there: ConsumerGroupDescribe and ShareGroupDescribe have those.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.describing import NOT_ASKED, authorized
from ketch.broker.topics import denied
from ketch.coordinator.classic.group import Group
from ketch.coordinator.classic.member import Member, State
from ketch.errors import KetchError
from ketch.security.acls import ResourceType
from ketch.wire.responses import Body

_NOT_FOUND_SINCE = 6


async def handle(request: Request) -> Answer:
    return {"groups": [await _describe(request, name) for name in request.body.groups]}


async def _describe(request: Request, name: str) -> Body:
    if code := request.denial(ResourceType.GROUP, name):
        return _error(name, request.refuse(f"group {name}", denied(code), code), None)
    try:
        request.broker.groups.require(name)
        group = await request.broker.groups.get(name)
        await request.broker.adoption.look()
        known = await request.broker.groups.exists(name)
    except KetchError as error:
        return _error(name, request.refuse(f"group {name}", error), None)
    if not known or not isinstance(group, Group):
        if request.version >= _NOT_FOUND_SINCE:
            why = "is not a classic group" if known else "not found"
            return _error(name, ErrorCode.group_id_not_found, f"Group {name} {why}.")
        return {**_error(name, ErrorCode.none, None), "authorized_operations": _operations(request, name)}
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_id": name,
        "group_state": str(group.state),
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol or "") if group.state is State.STABLE else "",
        "members": [_member(group, member) for member in group.members.values()],
        "authorized_operations": _operations(request, name),
    }


def _operations(request: Request, name: str) -> int:
    if not getattr(request.body, "include_authorized_operations", False):
        return NOT_ASKED
    return authorized(request, ResourceType.GROUP, name)


def _member(group: Group, member: Member) -> Body:
    stable = group.state is State.STABLE
    return {
        "member_id": member.id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.host,
        "member_metadata": member.metadata(group.protocol) if stable else b"",
        "member_assignment": member.assignment,
    }


def _error(name: str, error: ErrorCode, message: str | None) -> Body:
    return {
        "error_code": error,
        "error_message": message,
        "group_id": name,
        "group_state": str(State.DEAD),
        "protocol_type": "",
        "protocol_data": "",
        "members": (),
        "authorized_operations": NOT_ASKED,
    }
