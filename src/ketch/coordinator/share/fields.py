"""A share group as the fields of a hash, readable with HGETALL, and back. Timers are not part of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ketch.coordinator.consumer.fields import read_topics, topics_text
from ketch.coordinator.consumer.topics import Partitions, by_topic, of_topics
from ketch.coordinator.share.config import ShareConfig
from ketch.coordinator.share.group import ShareGroup
from ketch.coordinator.share.member import Member

_MEMBER = "member:"
_TEXTS = 4096  # members whose text is remembered


def to_fields(group: ShareGroup, now_ms: int) -> dict[str, str]:
    """state, groupEpoch, assignmentEpoch, topics and begun (JSON), updated (ms), `member:<id>` with JSON objects."""
    fields = {
        "state": str(group.state),
        "groupEpoch": str(group.epoch),
        "assignmentEpoch": str(group.assignment_epoch),
        "topics": topics_text(group.topics),
        "begun": topics_text(group.begun),
        "updated": str(now_ms),
    }
    return fields | {_MEMBER + member.id: _member(member) for member in group.members.values()}


def _member(member: Member) -> str:
    said = (member.rack_id, member.client_id, member.host)
    return _text(said, member.names, (member.epoch, member.previous_epoch), member.assigned, member.target)


@lru_cache(_TEXTS)
def _text(
    said: tuple[str | None, ...],
    names: frozenset[str],
    epochs: tuple[int, int],
    assigned: Partitions,
    target: Partitions,
) -> str:
    """A member as JSON. Most members of a large group are as they were when it was stored last."""
    fields: dict[str, Any] = dict(zip(("rackId", "clientId", "host"), said, strict=True))
    fields |= {"topics": sorted(names)} | dict(zip(("epoch", "previousEpoch"), epochs, strict=True))
    return json.dumps(fields | {"assigned": by_topic(assigned), "target": by_topic(target)})


def from_fields(group_id: str, fields: Mapping[str, str], config: ShareConfig, now: float) -> ShareGroup:
    """The group as it was stored; every member's time begins again, since no heartbeat could come meanwhile.

    Raises:
        ValueError, KeyError, TypeError: the fields are not what `to_fields` makes.
    """
    group = ShareGroup(group_id, config, int(fields["groupEpoch"]), int(fields["assignmentEpoch"]))
    group.topics, group.begun = read_topics(fields["topics"]), read_topics(fields["begun"])
    for name, value in fields.items():
        if name.startswith(_MEMBER):
            member = _read_member(name.removeprefix(_MEMBER), json.loads(value), now + config.session_timeout)
            group.members[member.id] = member
    return group


def _read_member(member_id: str, stored: Mapping[str, Any], deadline: float) -> Member:
    return Member(
        member_id,
        stored["rackId"],
        stored["clientId"],
        stored["host"],
        frozenset(stored["topics"]),
        stored["epoch"],
        stored["previousEpoch"],
        of_topics(stored["assigned"]),
        of_topics(stored["target"]),
        deadline,
    )
