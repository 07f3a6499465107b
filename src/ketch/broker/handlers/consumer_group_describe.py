"""ConsumerGroupDescribe (69), versions 0 and 1: consumer groups with epochs, members and assignments (KIP-848).

A group of another kind gets GROUP_ID_NOT_FOUND (69): clients then ask DescribeGroups. Version 1 says which protocol
each member uses: one that still uses the classic one may be in a consumer group (`coordinator.migration`).
"""

from __future__ import annotations

from ketch.broker.api import Answer, Request
from ketch.broker.describing import assignment, describe
from ketch.coordinator.consumer.group import ConsumerGroup
from ketch.coordinator.consumer.member import Member
from ketch.wire.responses import Body

_OF_CLASSIC_PROTOCOL, _OF_CONSUMER_PROTOCOL = 0, 1


async def handle(request: Request) -> Answer:
    return {
        "groups": [await describe(request, name, ConsumerGroup, _topics, _member) for name in request.body.group_ids]
    }


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
        "assignment": assignment(group.named(member.assigned)),
        "target_assignment": assignment(group.named(member.target)),
        "member_type": _OF_CONSUMER_PROTOCOL if member.classic is None else _OF_CLASSIC_PROTOCOL,
    }
