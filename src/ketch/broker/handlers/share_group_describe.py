"""ShareGroupDescribe (77), version 1: share groups with epochs, members and assignments (KIP-932).

A group of another kind gets GROUP_ID_NOT_FOUND (69).
"""

from __future__ import annotations

from ketch.broker.api import Answer, Request
from ketch.broker.describing import assignment, describe
from ketch.coordinator.share.group import ShareGroup
from ketch.coordinator.share.member import Member
from ketch.wire.responses import Body


async def handle(request: Request) -> Answer:
    return {"groups": [await describe(request, name, ShareGroup, _topics, _member) for name in request.body.group_ids]}


def _topics(group: ShareGroup) -> set[str]:
    """The names of the topics that the answer would have."""
    held = (group.named(member.assigned) for member in group.members.values())
    return group.subscribed.union(name for topics in held for _, name in topics)


def _member(group: ShareGroup, member: Member) -> Body:
    return {
        "member_id": member.id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.host,
        "subscribed_topic_names": sorted(member.names),
        "assignment": assignment(group.named(member.assigned)),
    }
