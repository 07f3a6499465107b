"""A consumer group as the fields of a hash, readable with HGETALL, and back. Timers are not part of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ketch.coordinator.consumer.group import ConsumerGroup
from ketch.coordinator.consumer.member import ConsumerConfig, Member, MemberState
from ketch.coordinator.consumer.topics import Partitions, TopicInfo

_MEMBER = "member:"


def to_fields(group: ConsumerGroup, now_ms: int) -> dict[str, str]:
    """state, groupEpoch, assignmentEpoch, assignor, topics (JSON), updated (ms), `member:<id>` with JSON objects."""
    fields = {
        "state": str(group.state),
        "groupEpoch": str(group.epoch),
        "assignmentEpoch": str(group.assignment_epoch),
        "assignor": group.assignor,
        "topics": json.dumps({name: [info.id, info.partitions] for name, info in group.topics.items()}),
        "updated": str(now_ms),
    }
    return fields | {_MEMBER + member.id: json.dumps(_member(member)) for member in group.members.values()}


def _member(member: Member) -> dict[str, Any]:
    return {
        "instanceId": member.instance_id,
        "rackId": member.rack_id,
        "clientId": member.client_id,
        "host": member.host,
        "rebalanceTimeoutMs": round(member.rebalance_timeout * 1000),
        "topics": sorted(member.names),
        "regex": member.regex,
        "assignor": member.assignor,
        "epoch": member.epoch,
        "previousEpoch": member.previous_epoch,
        "state": str(member.state),
        "assigned": _by_topic(member.assigned),
        "revoking": _by_topic(member.revoking),
        "target": _by_topic(member.target),
    }


def _by_topic(partitions: Partitions) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


def from_fields(group_id: str, fields: Mapping[str, str], config: ConsumerConfig, now: float) -> ConsumerGroup:
    """The group as it was stored; every member's time begins again, since no heartbeat could come meanwhile.

    Raises:
        ValueError, KeyError, TypeError: the fields are not what `to_fields` makes.
    """
    group = ConsumerGroup(group_id, config, int(fields["groupEpoch"]), int(fields["assignmentEpoch"]))
    topics = json.loads(fields["topics"])
    group.topics = {name: TopicInfo(str(id), int(partitions)) for name, (id, partitions) in topics.items()}
    for name, value in fields.items():
        if name.startswith(_MEMBER):
            member = _read_member(name.removeprefix(_MEMBER), json.loads(value), config, now)
            group.members[member.id] = member
            if member.instance_id is not None:
                group.static[member.instance_id] = member.id
            group.owners.update(dict.fromkeys(member.assigned | member.revoking, member.id))
    return group


def _read_member(member_id: str, stored: Mapping[str, Any], config: ConsumerConfig, now: float) -> Member:
    timeout, state = stored["rebalanceTimeoutMs"] / 1000, MemberState(stored["state"])
    return Member(
        member_id,
        stored["instanceId"],
        stored["rackId"],
        stored["clientId"],
        stored["host"],
        timeout,
        frozenset(stored["topics"]),
        stored["regex"],
        stored["assignor"],
        stored["epoch"],
        stored["previousEpoch"],
        state,
        _partitions(stored["assigned"]),
        _partitions(stored["revoking"]),
        _partitions(stored["target"]),
        now + config.session_timeout,
        now + timeout if state is MemberState.UNREVOKED else None,
    )


def _partitions(topics: Mapping[str, list[int]]) -> Partitions:
    return frozenset((topic, index) for topic, indexes in topics.items() for index in indexes)
