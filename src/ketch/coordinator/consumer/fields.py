"""A consumer group as the fields of a hash, readable with HGETALL, and back. Timers are not part of it."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ketch.coordinator.consumer.group import ConsumerGroup
from ketch.coordinator.consumer.member import ClassicSide, ConsumerConfig, Member, MemberState
from ketch.coordinator.consumer.topics import Partitions, TopicInfo, Topics, by_topic, of_topics

_MEMBER = "member:"
_TEXTS = 4096  # members whose text is remembered
_SAID = ("instanceId", "rackId", "clientId", "host", "rebalanceTimeoutMs", "topics", "regex", "assignor")
_WHERE = ("epoch", "previousEpoch", "state")
_PARTITIONS = ("assigned", "revoking", "target")
_CLASSIC = "classic"  # only of members of the classic protocol


def to_fields(group: ConsumerGroup, now_ms: int) -> dict[str, str]:
    """state, groupEpoch, assignmentEpoch, assignor, topics (JSON), updated (ms), `member:<id>` with JSON objects."""
    fields = {
        "state": str(group.state),
        "groupEpoch": str(group.epoch),
        "assignmentEpoch": str(group.assignment_epoch),
        "assignor": group.assignor,
        "topics": topics_text(group.topics),
        "updated": str(now_ms),
    }
    return fields | {_MEMBER + member.id: _member(member) for member in group.members.values()}


def topics_text(topics: Mapping[str, TopicInfo]) -> str:
    """Topics as JSON: by name, id and number of partitions."""
    return json.dumps({name: [info.id, info.partitions] for name, info in sorted(topics.items())})


def read_topics(text: str) -> dict[str, TopicInfo]:
    """What `topics_text` was made of."""
    return {name: TopicInfo(str(id), int(partitions)) for name, (id, partitions) in json.loads(text).items()}


def _member(member: Member) -> str:
    said = (
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.host,
        round(member.rebalance_timeout * 1000),
        member.names,
        member.regex,
        member.assignor,
    )
    where = (member.epoch, member.previous_epoch, member.state)
    return _text(said, where, member.classic, member.assigned, member.revoking, member.target)


@lru_cache(_TEXTS)
def _text(said: tuple[Any, ...], where: tuple[Any, ...], classic: ClassicSide | None, *partitions: Partitions) -> str:
    """A member as JSON. Most members of a large group are as they were when it was stored last."""
    fields = dict(zip(_SAID, said, strict=True)) | dict(zip(_WHERE, where, strict=True))
    fields["topics"] = sorted(fields["topics"])
    if classic is not None:
        protocols = {name: b64encode(metadata).decode() for name, metadata in classic.protocols}
        fields[_CLASSIC] = {"sessionTimeoutMs": round(classic.session_timeout * 1000), "protocols": protocols}
    return json.dumps(fields | dict(zip(_PARTITIONS, map(by_topic, partitions), strict=True)))


def from_fields(group_id: str, fields: Mapping[str, str], config: ConsumerConfig, now: float) -> ConsumerGroup:
    """The group as it was stored; every member's time begins again, since no heartbeat could come meanwhile.

    Raises:
        ValueError, KeyError, TypeError: the fields are not what `to_fields` makes.
    """
    group = ConsumerGroup(group_id, config, int(fields["groupEpoch"]), int(fields["assignmentEpoch"]))
    group.topics = read_topics(fields["topics"])
    for name, value in fields.items():
        if name.startswith(_MEMBER):
            member = _read_member(name.removeprefix(_MEMBER), json.loads(value), config, now)
            group.members[member.id] = member
            if member.instance_id is not None:
                group.static[member.instance_id] = member.id
            group.owners.update(dict.fromkeys(member.assigned | member.revoking, member.id))
    known = Topics(group.topics)  # what a regular expression has found is not stored by itself
    group.resolved = {member.regex: known.matching(member.regex) for member in group.members.values() if member.regex}
    return group


def _read_member(member_id: str, stored: Mapping[str, Any], config: ConsumerConfig, now: float) -> Member:
    timeout, state, classic = stored["rebalanceTimeoutMs"] / 1000, MemberState(stored["state"]), _read_classic(stored)
    session = config.session_timeout if classic is None else classic.session_timeout
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
        of_topics(stored["assigned"]),
        of_topics(stored["revoking"]),
        of_topics(stored["target"]),
        classic,
        now + session,
        now + timeout if state is MemberState.UNREVOKED and classic is None else None,
    )


def _read_classic(stored: Mapping[str, Any]) -> ClassicSide | None:
    said = stored.get(_CLASSIC)
    if said is None:
        return None
    protocols = tuple((name, b64decode(metadata)) for name, metadata in said["protocols"].items())
    return ClassicSide(said["sessionTimeoutMs"] / 1000, protocols)
