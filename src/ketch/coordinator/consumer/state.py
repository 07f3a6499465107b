"""What a consumer group is at one moment, and the changes of it that events of all kinds share.

Members of both protocols are in it: those that send ConsumerGroupHeartbeat (`coordinator.consumer.group`) and those
that go on with JoinGroup, SyncGroup and Heartbeat (`coordinator.consumer.classic_members`). Those two say which event
does what. This module says what a change of members, subscriptions and topics leads to: the group epoch, the target,
and who owns what.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from kio.schema.errors import ErrorCode

from ketch.coordinator.classic.events import Assigned, Removed
from ketch.coordinator.consumer.assigned import AssignedGroup, Refused, follow, read
from ketch.coordinator.consumer.assignors import ASSIGNORS, Subscriber
from ketch.coordinator.consumer.events import JOIN_EPOCH, OnlyClassic
from ketch.coordinator.consumer.member import ConsumerConfig, Member, MemberState, State
from ketch.coordinator.consumer.reconciling import reconcile
from ketch.coordinator.consumer.topics import NO_PARTITIONS, Partition, Partitions, Topics
from ketch.coordinator.machine import Persist

_NO_NAMES: frozenset[str] = frozenset()


@dataclass(slots=True)
class GroupState(AssignedGroup[ConsumerConfig, Member]):
    """One group's state; `coordinator.consumer.group.ConsumerGroup` says what its events do.

    Attributes:
        resolved: by regular expression, the topics that it found (`resolve`); as of `resolved_serial` of all topics.
        resolve_by: when they are looked for again though no topic has come.
        announced: the partitions of which others were told that the group reads them.
        assigned_here: an assignment was given by this process; else the group was loaded with all of them.
    """

    static: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    resolved: dict[str, frozenset[str]] = field(default_factory=dict)
    resolved_serial: int = -1
    resolve_by: float = 0.0
    owners: dict[Partition, str] = field(default_factory=dict)  # -> the member that has it or has still to give it up
    announced: Partitions = NO_PARTITIONS
    assigned_here: bool = False

    protocol_type = "consumer"

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
        return min((member.due for member in self.members.values()), default=None)

    @property
    def assignor(self) -> str:
        """The assignor that most members want, of those that want any."""
        wanted = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return wanted.most_common(1)[0][0] if wanted else self.config.assignors[0]

    @property
    def is_only_classic(self) -> bool:
        """Whether it has members, and all of them use the classic protocol."""
        return bool(self.members) and all(member.classic is not None for member in self.members.values())

    @property
    def subscribed(self) -> set[str]:
        """The topics that any member subscribes to, by name or by a regular expression."""
        return {name for member in self.members.values() for name in member.names}.union(self.topics)

    def places(self, partitions: Partitions) -> list[tuple[str, int]]:
        """Partitions by their topics' names, as `named`."""
        return [(name, index) for (_, name), indexes in self.named(partitions).items() for index in indexes]


def check_room(group: GroupState, member_id: str) -> None:
    """Raises Refused where the group has no place for a member that is not in it."""
    if member_id not in group.members and len(group.members) >= group.config.max_size:
        text = f"The consumer group has reached its maximum capacity of {group.config.max_size} members."
        raise Refused(ErrorCode.group_max_size_reached, text)


def static_member(group: GroupState, member_id: str, instance_id: str) -> Member:
    """The member with this instance id; raises Refused unless it has this member id."""
    member = group.members.get(group.static.get(instance_id, ""))
    if member is None:
        raise Refused(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
    if member.id != member_id:
        text = f"Static member {member_id} with instance id {instance_id} was fenced by member {member.id}."
        raise Refused(ErrorCode.fenced_instance_id, text)
    return member


# -- members come, change and go


def enter(group: GroupState, member_id: str, instance_id: str | None) -> Member:
    """Makes a member."""
    member = group.members[member_id] = Member(member_id, instance_id)
    if instance_id is not None:
        group.static[instance_id] = member_id
    return member


def succeed(group: GroupState, old: Member, member_id: str) -> Member:
    """Puts a static member in its predecessor's place: it has the same target, and what of that it may read still."""
    forget(group, old)
    if old.id != member_id:
        group.effects.append(Removed(old.id))
    assert old.instance_id is not None
    member = group.members[member_id] = replace(old, id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    group.static[old.instance_id] = member_id
    own(group, member, None)
    return member


def advance(
    group: GroupState,
    member: Member,
    before: Member | None,
    topics: Topics,
    owned: Partitions | None,
    now: float,
    found: bool = False,
) -> None:
    """Follows up what a member has said: new epochs and a new target where they are due, and a step towards it.

    Args:
        before: the member as it was; None for a new one.
        topics: all that there are now.
        owned: what the member says it may read; None where it does not say.
        found: whether a regular expression has found other topics than before.
    """
    epochs = group.epoch, group.assignment_epoch
    # The group epoch rises where the topics, or what the member wants, have changed.
    bump = found or before is None or (before.names, before.regex) != (member.names, member.regex)
    follow(group, topics, bump, look)
    if group.epoch > group.assignment_epoch:
        _retarget(group)
    if reconcile(member, group.assignment_epoch, owned, group.owners):
        revokes = member.state is MemberState.UNREVOKED and member.classic is None
        member.revoke_by = now + member.rebalance_timeout if revokes else None
        own(group, member, before)
    if before != member or epochs != (group.epoch, group.assignment_epoch):
        group.effects.append(Persist())


def resolve(group: GroupState, topics: Topics, hides: Callable[[str], bool], now: float) -> bool:
    """Looks which topics the members' regular expressions find; whether one of them finds others than before.

    As in Kafka (GroupMetadataManager.refreshRegularExpressions) that is asked with the rights of the member whose
    heartbeat brings a new expression or new topics, or comes when it was long ago.

    Args:
        hides: whether that member may not describe the topic of this name.
    """
    regexes, before = {member.regex for member in group.members.values() if member.regex}, group.resolved
    if regexes - before.keys() or topics.serial > group.resolved_serial or now >= group.resolve_by:
        group.resolved = {
            regex: frozenset(name for name in topics.matching(regex) if not hides(name)) for regex in regexes
        }
        group.resolved_serial, group.resolve_by = topics.serial, now + group.config.regex_refresh_interval
    return any(group.resolved[regex] != before.get(regex) for regex in regexes)


def look(group: GroupState) -> bool:
    """Looks which topics the group reads; whether that has changed, or any of them."""
    members = group.members.values()
    names = {name for member in members for name in member.names}
    regexes = {member.regex for member in members}  # whoever comes with another one has it looked for
    group.resolved = {regex: names for regex, names in group.resolved.items() if regex in regexes}
    names.update(*group.resolved.values())
    return read(group, names)


def _retarget(group: GroupState) -> None:
    """Asks the assignor for the target of this group epoch."""
    assert group.seen is not None
    members = [
        Subscriber(
            member.id,
            member.instance_id,
            frozenset(
                group.topics[name].id
                for name in member.names | group.resolved.get(member.regex, _NO_NAMES)
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


def own(group: GroupState, member: Member, before: Member | None) -> None:
    """Takes notice of what a member has now, and had before."""
    now = member.assigned | member.revoking
    for partition in (before.assigned | before.revoking) - now if before is not None else ():
        if group.owners.get(partition) == member.id:
            del group.owners[partition]
    group.owners.update(dict.fromkeys(now, member.id))


def announce(group: GroupState, member: Member) -> None:
    """Tells others where members read partitions that nobody has read yet; the member has been told."""
    if not member.assigned <= group.announced:
        group.announced |= member.assigned
        group.assigned_here = True
        group.effects.append(Assigned())


def drop(group: GroupState, members: Iterable[Member]) -> None:
    """Members are gone."""
    gone, epoch = list(members), group.epoch
    if not gone:
        return
    group.effects.append(Persist())
    for member in gone:
        forget(group, member)
        group.effects.append(Removed(member.id))
        group.epoch += 1
    if group.seen is not None:
        look(group)
    if group.is_only_classic:
        group.effects.append(OnlyClassic(epoch, rebalances=True))


def forget(group: GroupState, member: Member) -> None:
    del group.members[member.id]
    if member.instance_id is not None:
        del group.static[member.instance_id]
    for partition in member.assigned | member.revoking:
        if group.owners.get(partition) == member.id:
            del group.owners[partition]
