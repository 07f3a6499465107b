"""One consumer group's state and what changes it, as Kafka's GroupMetadataManager and ConsumerGroup have it (KIP-848).

    group epoch        rises when members come, go or subscribe anew, and when topics that they read change
    assignment epoch   of the last target: the assignor is asked in the first heartbeat after the group epoch rose
    member epoch       of the target that the member has reconciled to (`reconciling`)

The group is Assigning while the target is older than the group, Reconciling while a member has not reached the target,
else Stable. A member is judged by its epoch: what it says in another one than its own is refused, and it joins again.
Static members (KIP-345) keep their place by their instance id.

What an event does is read off TABLE, at the end. Every reply is given at once: no request waits here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.coordinator.classic.events import Assigned, Commit, Leave, Removed
from ketch.coordinator.consumer.assignors import ASSIGNORS, Subscriber
from ketch.coordinator.consumer.events import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    Beat,
    BeatResult,
    Depart,
    Effect,
    Event,
)
from ketch.coordinator.consumer.member import ConsumerConfig, Member, MemberState, State
from ketch.coordinator.consumer.reconciling import reconcile
from ketch.coordinator.consumer.topics import (
    NO_PARTITIONS,
    Partition,
    Partitions,
    TopicInfo,
    Topics,
    named,
    regex_error,
)
from ketch.coordinator.machine import Persist, Reply, Tick

_ABANDON = "The member must abandon all its partitions and rejoin."


class Refused(Exception):
    """What a member wants is not done; nothing has changed.

    Args:
        error: what it is told.
        message: why, in Kafka's words.
    """

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error, self.message = error, message


@dataclass(slots=True)
class ConsumerGroup:
    """One group.

    Attributes:
        epoch: the group epoch; 0 where there is no such group yet.
        topics: those that members subscribe to and that exist.
        seen: all topics as of the last look.
        announced: the partitions of which others were told that the group reads them.
        assigned_here: an assignment was given by this process; else the group was loaded with all of them.
    """

    id: str
    config: ConsumerConfig
    epoch: int = 0
    assignment_epoch: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    seen: Topics | None = None
    owners: dict[Partition, str] = field(default_factory=dict)  # -> the member that has it or has still to give it up
    announced: Partitions = NO_PARTITIONS
    assigned_here: bool = False
    retired: bool = False
    term: str = "0"  # see `Machine`, as the next one
    held_at: float = -math.inf
    effects: list[Effect] = field(default_factory=list)

    protocol_type = "consumer"

    def handle(self, event: Event, now: float) -> list[Effect]:
        """What follows from an event, in the order it has to be done."""
        self.effects = []
        (dead if self.retired else TABLE[type(event)])(self, event, now)
        effects, self.effects = self.effects, []
        return effects

    @property
    def state(self) -> State:
        if self.retired:
            return State.DEAD
        if not self.members:
            return State.EMPTY
        if self.epoch > self.assignment_epoch:
            return State.ASSIGNING
        settled = all(member.is_reconciled(self.assignment_epoch) for member in self.members.values())
        return State.STABLE if settled else State.RECONCILING

    @property
    def deadline(self) -> float | None:
        """When the next Tick is due; None while there is nothing to wait for."""
        times = [member.deadline for member in self.members.values()]
        times += [member.revoke_by for member in self.members.values() if member.revoke_by is not None]
        return min(times, default=None)

    @property
    def is_idle(self) -> bool:
        """Whether it has no members."""
        return not self.members

    def retire(self) -> bool:
        """The group is about to be deleted; False where it has members."""
        self.retired = not self.members
        return self.retired

    @property
    def assignor(self) -> str:
        """The assignor that most members want, of those that want any."""
        wanted = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return wanted.most_common(1)[0][0] if wanted else self.config.assignors[0]

    @property
    def subscribed(self) -> set[str]:
        """The topics that any member subscribes to, by name or by a regular expression."""
        return {name for member in self.members.values() for name in member.names}.union(self.topics)

    def named(self, partitions: Partitions) -> dict[tuple[str, str], list[int]]:
        """Partitions by their topics' ids and names; without those of topics that are gone."""
        return named(partitions, self.topics)

    def places(self, partitions: Partitions) -> list[tuple[str, int]]:
        """Partitions by their topics' names, as `named`."""
        return [(name, index) for (_, name), indexes in self.named(partitions).items() for index in indexes]

    def reply(self, token: Hashable, result: BeatResult | ErrorCode) -> None:
        self.effects.append(Reply(token, result))


# -- heartbeats


def beat(group: ConsumerGroup, event: Beat, now: float) -> None:
    """A member joins, or stays and is taken a step towards its target."""
    try:
        _check(group, event)
        known = _find(group, event)
    except Refused as refused:
        group.reply(event.token, BeatResult(refused.error, refused.message))
        return
    before = None if known is None else replace(known)
    epochs = group.epoch, group.assignment_epoch
    member = known or _enter(group, event)
    _hear(group, member, event, before)
    if group.epoch > group.assignment_epoch:
        _retarget(group)
    if reconcile(member, group.assignment_epoch, event.owned, group.owners):
        member.revoke_by = now + member.rebalance_timeout if member.state is MemberState.UNREVOKED else None
        _own(group, member, before)
    changed = before is None or before != replace(member, deadline=before.deadline)
    member.deadline = now + group.config.session_timeout
    if changed or epochs != (group.epoch, group.assignment_epoch):
        group.effects.append(Persist())
    _answer(group, member, event, before)


def _check(group: ConsumerGroup, event: Beat) -> None:
    """What is refused whoever asks."""
    if event.assignor is not None and event.assignor not in group.config.assignors:
        supported = ", ".join(group.config.assignors)
        text = f"ServerAssignor {event.assignor} is not supported. Supported assignors: {supported}."
        raise Refused(ErrorCode.unsupported_assignor, text)
    if event.epoch != JOIN_EPOCH and group.epoch == 0:
        raise Refused(ErrorCode.group_id_not_found, f"Consumer group {group.id} not found.")
    if event.member_id not in group.members and len(group.members) >= group.config.max_size:
        text = f"The consumer group has reached its maximum capacity of {group.config.max_size} members."
        raise Refused(ErrorCode.group_max_size_reached, text)


def _find(group: ConsumerGroup, event: Beat) -> Member | None:
    """The member; None for one that is to be made. Raises Refused."""
    returns = event.instance_id is not None and event.epoch == JOIN_EPOCH
    if event.instance_id is not None:
        member = _find_static(group, event)
    else:
        member = group.members.get(event.member_id)
        if member is None and event.epoch != JOIN_EPOCH:
            raise _unknown(group, event.member_id)
    if member is not None and not returns:
        _check_epoch(member, event)
    if event.regex and (member is None or event.regex != member.regex):
        _check_regex(event.regex)
    return _replace(group, member, event.member_id) if member is not None and returns else member


def _check_regex(regex: str) -> None:
    if (wrong := regex_error(regex)) is not None:
        text = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {wrong}."
        raise Refused(ErrorCode.invalid_regular_expression, text)


def _unknown(group: ConsumerGroup, member_id: str) -> Refused:
    return Refused(ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {group.id}.")


def _find_static(group: ConsumerGroup, event: Beat) -> Member | None:
    """The member with the instance id, which may be the predecessor of the one that asks."""
    assert event.instance_id is not None
    member = group.members.get(group.static.get(event.instance_id, ""))
    if event.epoch != JOIN_EPOCH:
        return _static(member, event.member_id, event.instance_id)
    if member is None or member.epoch == LEAVE_STATIC_EPOCH:
        return member
    who = f"Static member {event.member_id} with instance id {event.instance_id}"
    text = f"{who} cannot join the group because the instance id is owned by {member.id} member."
    raise Refused(ErrorCode.unreleased_instance_id, text)


def _static(member: Member | None, member_id: str, instance_id: str) -> Member:
    """The member with this instance id, if it has this member id."""
    if member is None:
        raise Refused(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
    if member.id != member_id:
        text = f"Static member {member_id} with instance id {instance_id} was fenced by member {member.id}."
        raise Refused(ErrorCode.fenced_instance_id, text)
    return member


def _check_epoch(member: Member, event: Beat) -> None:
    """A member may come with its last epoch, if it has none but partitions it may have: it missed an answer."""
    if event.epoch == member.epoch:
        return
    missed = event.epoch == member.previous_epoch and event.owned is not None and event.owned <= member.assigned
    if event.epoch > member.epoch or not missed:
        than = "greater" if event.epoch > member.epoch else "smaller"
        epochs = f"a {than} member epoch ({event.epoch}) than the one known by the group coordinator ({member.epoch})"
        raise Refused(ErrorCode.fenced_member_epoch, f"The consumer group member has {epochs}. {_ABANDON}")


def _enter(group: ConsumerGroup, event: Beat) -> Member:
    member = group.members[event.member_id] = Member(event.member_id, event.instance_id)
    if event.instance_id is not None:
        group.static[event.instance_id] = member.id
    return member


def _replace(group: ConsumerGroup, old: Member, member_id: str) -> Member:
    """A static member that was away is back: it has the target that it had, and what of that it may read still."""
    _forget(group, old)
    if old.id != member_id:
        group.effects.append(Removed(old.id))
    assert old.instance_id is not None
    member = group.members[member_id] = replace(old, id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    group.static[old.instance_id] = member_id
    _own(group, member, None)
    return member


def _hear(group: ConsumerGroup, member: Member, event: Beat, before: Member | None) -> None:
    """Takes over what the member says of itself, and looks at the topics; the group epoch rises where that matters."""
    member.client_id, member.host = event.client_id, event.host
    for name in ("rack_id", "rebalance_timeout", "names", "regex", "assignor"):
        said = getattr(event, name)
        if said is not None:
            setattr(member, name, said)
    bump = before is None or (before.names, before.regex) != (member.names, member.regex)
    newer = group.seen is None or event.topics.serial > group.seen.serial
    if newer:
        group.seen = event.topics
    if newer or bump:
        bump |= _look(group)
    if bump:
        group.epoch += 1


def _look(group: ConsumerGroup) -> bool:
    """Looks which topics the group reads; whether that has changed, or any of them."""
    assert group.seen is not None
    members = group.members.values()
    names = {name for member in members for name in member.names}
    names.update(*(group.seen.matching(regex) for regex in {member.regex for member in members}))
    found = {name: group.seen.by_name[name] for name in sorted(names) if name in group.seen.by_name}
    found, group.topics = group.topics, found
    return found != group.topics


def _retarget(group: ConsumerGroup) -> None:
    """Asks the assignor for the target of this group epoch."""
    assert group.seen is not None
    members = [
        Subscriber(
            member.id,
            member.instance_id,
            frozenset(
                group.topics[name].id
                for name in member.names | group.seen.matching(member.regex)
                if name in group.topics
            ),
            member.target,
        )
        for member in group.members.values()
    ]
    targets = ASSIGNORS[group.assignor](members, {info.id: info.partitions for info in group.topics.values()})
    for member in group.members.values():
        member.target = targets[member.id]
    group.assignment_epoch = group.epoch


def _own(group: ConsumerGroup, member: Member, before: Member | None) -> None:
    """Takes notice of what a member has now, and had before."""
    now = member.assigned | member.revoking
    for partition in (before.assigned | before.revoking) - now if before is not None else ():
        if group.owners.get(partition) == member.id:
            del group.owners[partition]
    group.owners.update(dict.fromkeys(now, member.id))


def _answer(group: ConsumerGroup, member: Member, event: Beat, before: Member | None) -> None:
    given = event.is_full or before is None or before.assigned != member.assigned
    assignment = member.assigned if given else None
    interval = group.config.heartbeat_interval
    result = BeatResult(member_id=member.id, epoch=member.epoch, interval=interval, assignment=assignment)
    group.reply(event.token, result)
    if not member.assigned <= group.announced:
        group.announced |= member.assigned
        group.assigned_here = True
        group.effects.append(Assigned())


# -- going


def depart(group: ConsumerGroup, event: Depart, now: float) -> None:
    """A member goes, for good or, if it is static and says so, until it comes back or its session ends."""
    try:
        member = _departing(group, event)
    except Refused as refused:
        group.reply(event.token, BeatResult(refused.error, refused.message))
        return
    if event.epoch == LEAVE_STATIC_EPOCH:
        before = replace(member)
        member.epoch, member.revoking, member.revoke_by = LEAVE_STATIC_EPOCH, NO_PARTITIONS, None
        _own(group, member, before)
        group.effects.append(Persist())
    else:
        _drop(group, [member])
    group.reply(event.token, BeatResult(member_id=member.id, epoch=event.epoch))


def _departing(group: ConsumerGroup, event: Depart) -> Member:
    if group.epoch == 0:
        raise Refused(ErrorCode.group_id_not_found, f"Group {group.id} not found.")
    if event.instance_id is not None:
        static = group.members.get(group.static.get(event.instance_id, ""))
        return _static(static, event.member_id, event.instance_id)
    if event.member_id not in group.members:
        raise _unknown(group, event.member_id)
    return group.members[event.member_id]


def leave(group: ConsumerGroup, event: Leave, now: float) -> None:
    """An administrator removes a static member; LeaveGroup is not how a member of this protocol itself leaves."""
    by_instance = group.members.get(group.static.get(event.instance_id or "", ""))
    if by_instance is None or event.member_id not in ("", by_instance.id):
        fenced = by_instance is not None
        group.reply(event.token, ErrorCode.fenced_instance_id if fenced else ErrorCode.unknown_member_id)
        return
    _drop(group, [by_instance])
    group.reply(event.token, ErrorCode.none)


def tick(group: ConsumerGroup, _: Tick, now: float) -> None:
    """Members whose time is up are gone."""
    _drop(group, [member for member in group.members.values() if member.expired(now)])


def _drop(group: ConsumerGroup, members: list[Member]) -> None:
    if not members:
        return
    group.effects.append(Persist())
    for member in members:
        _forget(group, member)
        group.effects.append(Removed(member.id))
        group.epoch += 1
    if group.seen is not None:
        _look(group)


def _forget(group: ConsumerGroup, member: Member) -> None:
    del group.members[member.id]
    if member.instance_id is not None:
        del group.static[member.instance_id]
    for partition in member.assigned | member.revoking:
        if group.owners.get(partition) == member.id:
            del group.owners[partition]


# -- commits, dead groups, and the table


def commit(group: ConsumerGroup, event: Commit, _: float) -> None:
    """Whether an offset may be committed: by a member in its epoch, or by anybody while there are no members."""
    group.reply(event.token, commit_error(group, event.member_id, event.generation, event.knows_epochs))


def commit_error(group: ConsumerGroup, member_id: str, epoch: int, knows_epochs: bool = True) -> ErrorCode:
    """Kafka's ConsumerGroup.validateOffsetCommit."""
    if epoch < 0 and not group.members:
        return ErrorCode.none
    if member_id not in group.members:
        return ErrorCode.unknown_member_id
    if not knows_epochs:
        return ErrorCode.unsupported_version
    return ErrorCode.none if group.members[member_id].epoch == epoch else ErrorCode.stale_member_epoch


def dead(group: ConsumerGroup, event: Any, _: float) -> None:
    """The client looks for the coordinator and tries again."""
    error = ErrorCode.coordinator_not_available
    match event:
        case Beat() | Depart():
            group.reply(event.token, BeatResult(error))
        case Commit() | Leave():
            group.reply(event.token, error)


TABLE: dict[type, Callable[[ConsumerGroup, Any, float], None]] = {
    Beat: beat,
    Depart: depart,
    Commit: commit,
    Leave: leave,
    Tick: tick,
}
