"""What APIs that describe something have in common: authorized operations, and the answer about a group of one kind.

ConsumerGroupDescribe and ShareGroupDescribe are about one kind of groups each. A group of another kind is answered as
one that is not there: clients then ask the next API. What the two say of a member is in their handlers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from ketch.broker.api import Request
from ketch.broker.resources import OPERATIONS
from ketch.broker.topics import denied
from ketch.broker.touches import LISTS_TOPIC
from ketch.coordinator.consumer.group import ConsumerGroup
from ketch.coordinator.share.group import ShareGroup
from ketch.errors import KetchError
from ketch.security.acls import ResourceType
from ketch.wire.responses import Body

G = TypeVar("G", ConsumerGroup, ShareGroup)

NOT_ASKED = -(2**31)  # authorized operations (KIP-430) that the client has not asked for
_EMPTY: Body = {
    "group_state": "",
    "group_epoch": 0,
    "assignment_epoch": 0,
    "assignor_name": "",
    "members": (),
    "authorized_operations": NOT_ASKED,
}
_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."


def authorized(request: Request, resource: ResourceType, name: str) -> int:
    """The bits of the operations on a resource that the caller may do (KIP-430)."""
    return sum(1 << each for each in OPERATIONS[resource] if request.allowed(each, resource, name, quiet=True))


async def describe(
    request: Request,
    name: str,
    kind: type[G],
    topics: Callable[[G], set[str]],
    member: Callable[[G, Any], Body],
) -> Body:
    """The answer about one group, if it is of this kind; else why it is not described.

    Args:
        topics: the names of the topics that the answer would have.
        member: what the answer has of a member.
    """
    try:
        group = await _find(request, name, kind)
        if request.rights is not None and any(request.denial_by(LISTS_TOPIC, topic) for topic in topics(group)):
            raise _NoGroup(ErrorCode.topic_authorization_failed, _HIDDEN)
    except _NoGroup as why:
        return _EMPTY | {"error_code": why.code, "error_message": why.message, "group_id": name}
    asked = request.body.include_authorized_operations
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_id": name,
        "group_state": str(group.state),
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor,
        "members": [member(group, each) for each in group.members.values()],
        "authorized_operations": authorized(request, ResourceType.GROUP, name) if asked else NOT_ASKED,
    }


async def _find(request: Request, name: str, kind: type[G]) -> G:
    """The group; raises _NoGroup unless it is of this kind and may be described."""
    if not name:
        raise _NoGroup(ErrorCode.invalid_group_id)
    if code := request.denial(ResourceType.GROUP, name):
        raise _NoGroup(request.refuse(f"group {name}", denied(code), code))
    try:
        request.broker.groups.require(name)
        group = await request.broker.groups.get(name)
        known = await request.broker.groups.exists(name)
    except KetchError as error:
        raise _NoGroup(request.refuse(f"group {name}", error)) from error
    if not isinstance(group, kind):
        why = f"is not a {kind.protocol_type} group" if known else "not found"
        raise _NoGroup(ErrorCode.group_id_not_found, f"Group {name} {why}.")
    return group


def assignment(named: Mapping[tuple[str, str], list[int]]) -> Body:
    """Partitions by the ids and names of their topics, as an answer has them."""
    return {
        "topic_partitions": [
            {"topic_id": uuid.UUID(topic), "topic_name": name, "partitions": indexes}
            for (topic, name), indexes in named.items()
        ]
    }


class _NoGroup(Exception):
    """A group is not described; with what the client is told of it."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message = code, message
