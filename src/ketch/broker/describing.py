"""What APIs that describe something have in common: authorized operations, and finding a group of one kind.

ConsumerGroupDescribe and ShareGroupDescribe are about one kind of groups each. A group of another kind is answered as
one that is not there: clients then ask the next API.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import TypeVar

from kio.schema.errors import ErrorCode

from ketch.broker.api import Request
from ketch.broker.errors import Refused
from ketch.broker.resources import OPERATIONS
from ketch.broker.topics import denied
from ketch.broker.touches import LISTS_TOPIC
from ketch.errors import KetchError
from ketch.security.acls import ResourceType
from ketch.wire.responses import Body

G = TypeVar("G")

NOT_ASKED = -(2**31)  # authorized operations (KIP-430) that the client has not asked for
_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."


def authorized(request: Request, resource: ResourceType, name: str) -> int:
    """The bits of the operations on a resource that the caller may do (KIP-430)."""
    return sum(1 << each for each in OPERATIONS[resource] if request.allowed(each, resource, name, quiet=True))


async def find(request: Request, name: str, kind: type[G], word: str) -> G:
    """The group, if it is of this kind.

    Args:
        word: what groups of the kind are called.

    Raises:
        NoGroup: it is not to be described; with what the client is answered in its place.
    """
    if not name:
        raise NoGroup(name, ErrorCode.invalid_group_id, None)
    if code := request.denial(ResourceType.GROUP, name):
        raise NoGroup(name, request.refuse(f"group {name}", denied(code), code), None)
    try:
        request.broker.groups.require(name)
        group = await request.broker.groups.get(name)
        known = await request.broker.groups.exists(name)
    except KetchError as error:
        raise NoGroup(name, request.refuse(f"group {name}", error), None) from error
    if not isinstance(group, kind):
        why = f"is not a {word} group" if known else "not found"
        raise NoGroup(name, ErrorCode.group_id_not_found, f"Group {name} {why}.")
    return group


def check_topics(request: Request, name: str, topics: Iterable[str]) -> None:
    """Raises NoGroup where the client may not describe one of the topics that the answer would have."""
    if any(request.denial_by(LISTS_TOPIC, topic) for topic in topics):
        raise NoGroup(name, ErrorCode.topic_authorization_failed, _HIDDEN)


def operations(request: Request, name: str) -> int:
    """What the client may do with the group, where it asks for that."""
    asked = request.body.include_authorized_operations
    return authorized(request, ResourceType.GROUP, name) if asked else NOT_ASKED


def assignment(named: Mapping[tuple[str, str], list[int]]) -> Body:
    """Partitions by the ids and names of their topics, as an answer has them."""
    return {
        "topic_partitions": [
            {"topic_id": uuid.UUID(topic), "topic_name": name, "partitions": indexes}
            for (topic, name), indexes in named.items()
        ]
    }


class NoGroup(Refused):
    """A group is not described.

    Attributes:
        body: what the client is answered in its place.
    """

    def __init__(self, name: str, code: ErrorCode, message: str | None) -> None:
        super().__init__(code, message or "")
        self.body: Body = {
            "error_code": code,
            "error_message": message,
            "group_id": name,
            "group_state": "",
            "group_epoch": 0,
            "assignment_epoch": 0,
            "assignor_name": "",
            "members": (),
            "authorized_operations": NOT_ASKED,
        }
