"""A group as the fields of a hash, readable with HGETALL, and back. Waiting requests and timers are not part of it."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any

from ketch.coordinator.classic.group import Group
from ketch.coordinator.classic.member import GroupConfig, Member, State

_MEMBER = "member:"


def to_fields(group: Group, now_ms: int) -> dict[str, str]:
    """state, generation, protocolType, protocol, leader, updated (ms), and `member:<id>` with a JSON object each."""
    fields = {
        "state": str(_stored_state(group)),
        "generation": str(group.generation),
        "protocolType": group.protocol_type or "",
        "protocol": group.protocol or "",
        "leader": group.leader or "",
        "updated": str(now_ms),
    }
    return fields | {_MEMBER + member.id: json.dumps(_member(member)) for member in group.members.values()}


def _stored_state(group: Group) -> State:
    """The state in which the next coordinator begins: Stable, as a member that joins again starts a new rebalance.

    Only a group that has just been converted from a consumer group is stored in its rebalance. Were it loaded as
    Stable, its members would find the generation that they know and not join again, and nobody would read the
    partitions of the member that left.
    """
    if not group.members:
        return State.EMPTY
    return State.PREPARING if group.state is State.PREPARING else State.STABLE


def _member(member: Member) -> dict[str, Any]:
    return {
        "instanceId": member.instance_id,
        "clientId": member.client_id,
        "host": member.host,
        "sessionTimeoutMs": round(member.session_timeout * 1000),
        "rebalanceTimeoutMs": round(member.rebalance_timeout * 1000),
        "protocols": {name: b64encode(metadata).decode() for name, metadata in member.protocols},
        "assignment": b64encode(member.assignment).decode(),
    }


def from_fields(
    group_id: str,
    fields: Mapping[str, str],
    config: GroupConfig,
    new_member_id: Callable[[str], str],
    now: float,
) -> Group:
    """The group as it was stored; every member's session begins again, since no heartbeat could come meanwhile.

    Raises:
        ValueError, KeyError: the fields are not what `to_fields` makes.
    """
    group = Group(group_id, config, new_member_id, State(fields["state"]), int(fields["generation"]))
    group.protocol_type = fields["protocolType"] or None
    group.protocol, group.leader = fields["protocol"] or None, fields["leader"] or None
    for name, value in fields.items():
        if name.startswith(_MEMBER):
            member = _read_member(name.removeprefix(_MEMBER), json.loads(value), now)
            group.members[member.id] = member
            if member.instance_id is not None:
                group.static[member.instance_id] = member.id
    if group.state is State.PREPARING:
        group.timer = now + group.max_rebalance_timeout
    return group


def _read_member(member_id: str, stored: Mapping[str, Any], now: float) -> Member:
    session = stored["sessionTimeoutMs"] / 1000
    return Member(
        member_id,
        stored["instanceId"],
        stored["clientId"],
        stored["host"],
        session,
        stored["rebalanceTimeoutMs"] / 1000,
        tuple((name, b64decode(metadata)) for name, metadata in stored["protocols"].items()),
        b64decode(stored["assignment"]),
        now + session,
        synced=True,
    )
