"""ConsumerGroupDescribe (69), versions 0 and 1: consumer groups with epochs, members and assignments (KIP-848).

A group of the classic protocol gets GROUP_ID_NOT_FOUND (69): clients then ask DescribeGroups. Version 1 says of which
protocol a member is.
"""

from __future__ import annotations

import uuid

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.handlers.metadata import NOT_ASKED, authorized
from ketch.broker.topics import denied
from ketch.broker.touches import LISTS_TOPIC
from ketch.coordinator.consumer.group import ConsumerGroup
from ketch.coordinator.consumer.member import Member
from ketch.coordinator.consumer.topics import Partitions
from ketch.errors import KetchError
from ketch.security.acls import ResourceType
from ketch.wire.responses import Body

_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."
_OF_CLASSIC_PROTOCOL, _OF_CONSUMER_PROTOCOL = 0, 1


async def handle(request: Request) -> Answer:
    return {"groups": [await _describe(request, name) for name in request.body.group_ids]}


async def _describe(request: Request, name: str) -> Body:
    if not name:
        return _error(name, ErrorCode.invalid_group_id, None)
    if code := request.denial(ResourceType.GROUP, name):
        return _error(name, request.refuse(f"group {name}", denied(code), code), None)
    try:
        request.broker.groups.require(name)
        group = await request.broker.groups.get(name)
        known = await request.broker.groups.exists(name)
    except KetchError as error:
        return _error(name, request.refuse(f"group {name}", error), None)
    if not isinstance(group, ConsumerGroup):
        why = "is not a consumer group" if known else "not found"
        return _error(name, ErrorCode.group_id_not_found, f"Group {name} {why}.")
    if any(request.denial_by(LISTS_TOPIC, topic) for topic in _topics(group)):
        return _error(name, ErrorCode.topic_authorization_failed, _HIDDEN)
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_id": name,
        "group_state": str(group.state),
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor,
        "members": [_member(group, member) for member in group.members.values()],
        "authorized_operations": _operations(request, name),
    }


def _operations(request: Request, name: str) -> int:
    asked = request.body.include_authorized_operations
    return authorized(request, ResourceType.GROUP, name) if asked else NOT_ASKED


def _topics(group: ConsumerGroup) -> set[str]:
    """The names of the topics that the answer would have."""
    held = [group.named(partitions) for each in group.members.values() for partitions in (each.assigned, each.target)]
    subscribed = [each.names for each in group.members.values()]
    return {name for topics in held for _, name in topics}.union(*subscribed)


def _member(group: ConsumerGroup, member: Member) -> Body:
    return {
        "member_id": member.id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.host,
        "subscribed_topic_names": sorted(member.names),
        "subscribed_topic_regex": member.regex or None,
        "assignment": _assignment(group, member.assigned),
        "target_assignment": _assignment(group, member.target),
        "member_type": _OF_CONSUMER_PROTOCOL if member.classic is None else _OF_CLASSIC_PROTOCOL,
    }


def _assignment(group: ConsumerGroup, partitions: Partitions) -> Body:
    return {
        "topic_partitions": [
            {"topic_id": uuid.UUID(topic), "topic_name": name, "partitions": indexes}
            for (topic, name), indexes in group.named(partitions).items()
        ]
    }


def _error(name: str, error: ErrorCode, message: str | None) -> Body:
    return {
        "error_code": error,
        "error_message": message,
        "group_id": name,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": (),
        "authorized_operations": NOT_ASKED,
    }
