"""What events do to a consumer group, as Kafka's GroupMetadataManager and ConsumerGroup have it (KIP-848).

    group epoch        rises when members come, go or subscribe anew, and when topics that they read change
    assignment epoch   of the last target: the assignor is asked in the first heartbeat after the group epoch rose
    member epoch       of the target that the member has reconciled to (`reconciling`)

The group is Assigning while the target is older than the group, Reconciling while a member has not reached the target,
else Stable. A member is judged by its epoch: what it says in another one than its own is refused, and it joins again.
Static members (KIP-345) keep their place by their instance id. While a group changes its protocol it also has members
of the classic one: see `classic_members`.

What an event does is read off TABLE, at the end. Every reply is given at once: no request waits here. What a group is
made of is in `state`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.coordinator.classic.events import Commit, Heartbeat, Join, JoinResult, Leave, Sync, SyncResult
from ketch.coordinator.consumer import classic_members
from ketch.coordinator.consumer.assigned import Refused, unknown
from ketch.coordinator.consumer.events import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    Beat,
    BeatResult,
    Depart,
    Effect,
    Event,
)
from ketch.coordinator.consumer.member import Member
from ketch.coordinator.consumer.state import (
    GroupState,
    advance,
    announce,
    check_room,
    drop,
    enter,
    own,
    resolve,
    static_member,
    succeed,
)
from ketch.coordinator.consumer.topics import NO_PARTITIONS
from ketch.coordinator.machine import Persist, Tick
from ketch.coordinator.patterns import regex_error

_ABANDON = "The member must abandon all its partitions and rejoin."


@dataclass(slots=True)
class ConsumerGroup(GroupState):
    """One group, as a machine."""

    def handle(self, event: Event, now: float) -> list[Effect]:
        """What follows from an event, in the order it has to be done."""
        self.effects = []
        (dead if self.retired else TABLE[type(event)])(self, event, now)
        effects, self.effects = self.effects, []
        return effects


# -- heartbeats


def beat(group: GroupState, event: Beat, now: float) -> None:
    """A member joins, or stays and is taken a step towards its target."""
    try:
        _check(group, event)
        known = _find(group, event)
    except Refused as refused:
        group.reply(event.token, BeatResult(refused.error, refused.message))
        return
    before = None if known is None else replace(known)
    member = known or enter(group, event.member_id, event.instance_id)
    _hear(member, event)
    found = resolve(group, event.topics, event.hides, now)
    advance(group, member, before, event.topics, event.owned, now, found)
    member.deadline = now + group.config.session_timeout
    given = event.is_full or before is None or before.assigned != member.assigned
    result = BeatResult(
        member_id=member.id,
        epoch=member.epoch,
        interval=group.config.heartbeat_interval,
        assignment=member.assigned if given else None,
    )
    group.reply(event.token, result)
    announce(group, member)


def _check(group: GroupState, event: Beat) -> None:
    """What is refused whoever asks."""
    if event.assignor is not None and event.assignor not in group.config.assignors:
        supported = ", ".join(group.config.assignors)
        text = f"ServerAssignor {event.assignor} is not supported. Supported assignors: {supported}."
        raise Refused(ErrorCode.unsupported_assignor, text)
    if event.epoch != JOIN_EPOCH and group.epoch == 0:
        raise Refused(ErrorCode.group_id_not_found, f"Consumer group {group.id} not found.")
    check_room(group, event.member_id)


def _find(group: GroupState, event: Beat) -> Member | None:
    """The member; None for one that is to be made. Raises Refused."""
    returns = event.instance_id is not None and event.epoch == JOIN_EPOCH
    if event.instance_id is not None:
        member = _find_static(group, event)
    else:
        member = group.members.get(event.member_id)
        if member is None and event.epoch != JOIN_EPOCH:
            raise unknown(group, event.member_id)
    if member is not None and not returns:
        _check_epoch(member, event)
    if event.regex and (member is None or event.regex != member.regex):
        _check_regex(event.regex)
    return succeed(group, member, event.member_id) if member is not None and returns else member


def _check_regex(regex: str) -> None:
    if (wrong := regex_error(regex)) is not None:
        text = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {wrong}."
        raise Refused(ErrorCode.invalid_regular_expression, text)


def _find_static(group: GroupState, event: Beat) -> Member | None:
    """The member with the instance id, which may be the predecessor of the one that asks."""
    assert event.instance_id is not None
    if event.epoch != JOIN_EPOCH:
        return static_member(group, event.member_id, event.instance_id)
    member = group.members.get(group.static.get(event.instance_id, ""))
    if member is None or member.epoch == LEAVE_STATIC_EPOCH or member.classic is not None:
        return member
    who = f"Static member {event.member_id} with instance id {event.instance_id}"
    text = f"{who} cannot join the group because the instance id is owned by {member.id} member."
    raise Refused(ErrorCode.unreleased_instance_id, text)


def _check_epoch(member: Member, event: Beat) -> None:
    """A member may come with its last epoch, if it has none but partitions it may have: it missed an answer."""
    if event.epoch == member.epoch:
        return
    missed = event.epoch == member.previous_epoch and event.owned is not None and event.owned <= member.assigned
    if event.epoch > member.epoch or not missed:
        than = "greater" if event.epoch > member.epoch else "smaller"
        epochs = f"a {than} member epoch ({event.epoch}) than the one known by the group coordinator ({member.epoch})"
        raise Refused(ErrorCode.fenced_member_epoch, f"The consumer group member has {epochs}. {_ABANDON}")


def _hear(member: Member, event: Beat) -> None:
    """Takes over what the member says of itself; from now on it uses this protocol."""
    member.client_id, member.host = event.client_id, event.host
    member.classic = member.join_by = member.sync_by = None
    for name in ("rack_id", "rebalance_timeout", "names", "regex", "assignor"):
        said = getattr(event, name)
        if said is not None:
            setattr(member, name, said)


# -- going


def depart(group: GroupState, event: Depart, now: float) -> None:
    """A member goes, for good or, if it is static and says so, until it comes back or its session ends."""
    try:
        member = _departing(group, event)
    except Refused as refused:
        group.reply(event.token, BeatResult(refused.error, refused.message))
        return
    if event.epoch == LEAVE_STATIC_EPOCH:
        before = replace(member)
        member.epoch, member.revoking, member.revoke_by = LEAVE_STATIC_EPOCH, NO_PARTITIONS, None
        own(group, member, before)
        group.effects.append(Persist())
    else:
        drop(group, [member])
    group.reply(event.token, BeatResult(member_id=member.id, epoch=event.epoch))


def _departing(group: GroupState, event: Depart) -> Member:
    if group.epoch == 0:
        raise Refused(ErrorCode.group_id_not_found, f"Group {group.id} not found.")
    if event.instance_id is not None:
        return static_member(group, event.member_id, event.instance_id)
    if event.member_id not in group.members:
        raise unknown(group, event.member_id)
    return group.members[event.member_id]


def leave(group: GroupState, event: Leave, now: float) -> None:
    """A member of the classic protocol goes, or an administrator removes any (classicGroupLeaveToConsumerGroup)."""
    member_id = event.member_id
    if not member_id and event.instance_id is not None:
        member_id = group.static.get(event.instance_id, "")
    try:
        if event.instance_id is not None:
            member = static_member(group, member_id, event.instance_id)
        elif member_id in group.members:
            member = group.members[member_id]
        else:
            raise unknown(group, member_id)
    except Refused as refused:
        group.reply(event.token, refused.error)
        return
    drop(group, [member])
    group.reply(event.token, ErrorCode.none)


def tick(group: GroupState, _: Tick, now: float) -> None:
    """Members whose time is up are gone."""
    drop(group, [member for member in group.members.values() if member.due <= now])


# -- commits, dead groups, and the table


def commit(group: GroupState, event: Commit, _: float) -> None:
    """Whether an offset may be committed: by a member in its epoch, or by anybody while there are no members."""
    group.reply(event.token, commit_error(group, event.member_id, event.generation, event.knows_epochs))


def commit_error(group: GroupState, member_id: str, epoch: int, knows_epochs: bool = True) -> ErrorCode:
    """Kafka's ConsumerGroup.validateOffsetCommit."""
    if epoch < 0 and not group.members:
        return ErrorCode.none
    member = group.members.get(member_id)
    if member is not None and member.classic is None and not knows_epochs:
        return ErrorCode.unsupported_version
    return epoch_error(group, member_id, epoch)


def epoch_error(group: GroupState, member_id: str, epoch: int) -> ErrorCode:
    """What is wrong with the member and epoch, or generation, that a commit or a fetch of offsets names."""
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.unknown_member_id
    if member.epoch == epoch:
        return ErrorCode.none
    return ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation


def dead(group: GroupState, event: Any, _: float) -> None:
    """The client looks for the coordinator and tries again."""
    error = ErrorCode.coordinator_not_available
    match event:
        case Beat() | Depart():
            group.reply(event.token, BeatResult(error))
        case Join():
            group.reply(event.token, JoinResult(error, event.member_id))
        case Sync():
            group.reply(event.token, SyncResult(error))
        case Heartbeat() | Commit() | Leave():
            group.reply(event.token, error)


TABLE: dict[type, Callable[[GroupState, Any, float], None]] = {
    Beat: beat,
    Depart: depart,
    Join: classic_members.join,
    Sync: classic_members.sync,
    Heartbeat: classic_members.heartbeat,
    Commit: commit,
    Leave: leave,
    Tick: tick,
}
