"""Members of the classic protocol in a consumer group, while a live group changes its protocol (KIP-848).

They send JoinGroup, SyncGroup and Heartbeat as ever, and what they are told leads them through the same steps as
members of the other protocol. A member's generation is its epoch, JoinGroup is its heartbeat with a subscription, and
SyncGroup tells what it may read. There is no leader: the coordinator assigns.

    Heartbeat   REBALANCE_IN_PROGRESS where JoinGroup would take the member a step on
    JoinGroup   says what it owns still, and takes it that step; answered at once
    SyncGroup   the partitions that it may read in its epoch

As Kafka's GroupMetadataManager has it: classicGroupJoinToConsumerGroup, classicGroupSyncToConsumerGroup and
classicGroupHeartbeatToConsumerGroup. One thing differs: a static member that comes back with the classic protocol has
the subscription that it names alone, not also the regular expression of its predecessor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kio.schema.errors import ErrorCode

from ketch.coordinator.classic.events import Heartbeat, Join, JoinResult, Sync, SyncResult
from ketch.coordinator.classic.payload import CONSUMER, Subscription, read_subscription, write_assignment
from ketch.coordinator.consumer.assigned import Refused, unknown
from ketch.coordinator.consumer.events import OnlyClassic
from ketch.coordinator.consumer.member import ClassicSide, Member, MemberState, State
from ketch.coordinator.consumer.state import (
    GroupState,
    advance,
    announce,
    check_room,
    enter,
    static_member,
    succeed,
)
from ketch.coordinator.consumer.topics import Partitions, Topics

# -- joining


def join(group: GroupState, event: Join, now: float) -> None:
    """A member comes, or goes a step towards its target."""
    member_id, epoch = event.member_id or event.new_id, group.epoch
    try:
        check_room(group, member_id)
        _check_protocols(group, event)
        if not event.member_id and event.instance_id is None and event.id_required:
            group.reply(event.token, JoinResult(ErrorCode.member_id_required, member_id))
            return
        subscription = _subscription(event)
        replaces_last = _replaces_last(group, event)
        known = _find(group, event, member_id)
    except Refused as refused:
        group.reply(event.token, JoinResult(refused.error))
        return
    before = None if known is None else replace(known)
    member = known or enter(group, member_id, event.instance_id)
    _hear(member, event, subscription)
    advance(group, member, before, event.topics, _partitions(subscription.owned, event.topics), now)
    member.join_by, member.revoke_by = None, None
    member.sync_by, member.deadline = now + event.rebalance_timeout, now + event.session_timeout
    if replaces_last:
        # Kafka goes on without a rebalance though others may have partitions still that are meant for this member.
        group.effects.append(OnlyClassic(epoch, rebalances=group.state is not State.STABLE))
    group.reply(
        event.token, JoinResult(ErrorCode.none, member.id, member.epoch, CONSUMER, protocol=event.protocols[0][0])
    )
    announce(group, member)


def _check_protocols(group: GroupState, event: Join) -> None:
    """Raises Refused unless all classic members have one of the protocols (ConsumerGroup.supportsClassicProtocols)."""
    spoken = [{name for name, _ in each.classic.protocols} for each in group.members.values() if each.classic]
    if event.protocol_type != CONSUMER or not any(
        all(name in names for names in spoken) for name, _ in event.protocols
    ):
        text = f"Member {event.member_id}'s protocols are not supported."
        raise Refused(ErrorCode.inconsistent_group_protocol, text)


def _subscription(event: Join) -> Subscription:
    """What the member wants: all its protocols say the same. Raises Refused where it cannot be read."""
    subscription = read_subscription(event.protocols[0][1])
    if subscription is None:
        raise Refused(ErrorCode.unknown_server_error, "Malformed embedded consumer protocol in subscription.")
    return subscription


def _replaces_last(group: GroupState, event: Join) -> bool:
    """Whether the member takes the place of the last one that does not use the classic protocol."""
    old = group.members.get(group.static.get(event.instance_id or "", ""))
    others = [each for each in group.members.values() if each is not old]
    return old is not None and old.classic is None and all(each.classic for each in others)


def _find(group: GroupState, event: Join, member_id: str) -> Member | None:
    """The member; None for one that is to be made. Any id that a client names will do. Raises Refused."""
    if event.instance_id is None:
        return group.members.get(member_id)
    if event.member_id:
        return static_member(group, member_id, event.instance_id)
    old = group.members.get(group.static.get(event.instance_id, ""))
    return None if old is None else succeed(group, old, member_id)


def _hear(member: Member, event: Join, subscription: Subscription) -> None:
    """Takes over what the member says of itself; from now on it uses the classic protocol."""
    member.client_id, member.host = event.client_id, event.host
    member.names, member.regex, member.rebalance_timeout = subscription.topics, "", event.rebalance_timeout
    member.rack_id = subscription.rack_id or member.rack_id
    member.classic = ClassicSide(event.session_timeout, event.protocols)


def _partitions(places: Iterable[tuple[str, int]], topics: Topics) -> Partitions:
    """Partitions by the ids of their topics; without those of topics that there are not."""
    known = topics.by_name
    return frozenset((known[name].id, index) for name, index in places if name in known)


# -- staying


def sync(group: GroupState, event: Sync, now: float) -> None:
    """A member that has joined asks what it may read."""
    try:
        member, side = _member(group, event)
        _check_chosen(side, event)
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
            _expect(member, now)
            raise Refused(ErrorCode.rebalance_in_progress, "A new rebalance is triggered.")
    except Refused as refused:
        group.reply(event.token, SyncResult(refused.error))
        return
    member.sync_by, member.deadline = None, now + side.session_timeout
    assignment = write_assignment(version(side), named(group, member.assigned))
    group.reply(event.token, SyncResult(ErrorCode.none, event.protocol_type, event.protocol, assignment))


def version(side: ClassicSide) -> int:
    """Of the assignments that the member can read."""
    subscription = read_subscription(side.protocols[0][1])
    return 0 if subscription is None else subscription.version


def named(group: GroupState, partitions: Partitions) -> dict[str, list[int]]:
    """Partitions by the names of their topics; without those of topics that are gone."""
    return {name: indexes for (_, name), indexes in group.named(partitions).items()}


def _check_chosen(side: ClassicSide, event: Sync) -> None:
    chosen = side.protocols[0][0]
    if event.protocol_type not in (None, CONSUMER) or event.protocol not in (None, chosen):
        raise Refused(ErrorCode.inconsistent_group_protocol, f"The protocol is {chosen}.")


def heartbeat(group: GroupState, event: Heartbeat, now: float) -> None:
    """A member is alive; it is told where it has to join again."""
    try:
        member, side = _member(group, event)
    except Refused as refused:
        group.reply(event.token, refused.error)
        return
    member.deadline = now + side.session_timeout
    due = member.epoch < group.epoch or member.state is MemberState.UNREVOKED or _gets_more(group, member)
    if due:
        _expect(member, now)
    group.reply(event.token, ErrorCode.rebalance_in_progress if due else ErrorCode.none)


def _gets_more(group: GroupState, member: Member) -> bool:
    """Whether a member waits for partitions, and all of them are free now."""
    waits = member.state is MemberState.UNRELEASED
    return waits and not any(each in group.owners for each in member.target - member.assigned)


def _expect(member: Member, now: float) -> None:
    """The member has been told to join again: it must, within its rebalance timeout."""
    if member.join_by is None:
        member.join_by = now + member.rebalance_timeout


def _member(group: GroupState, event: Sync | Heartbeat) -> tuple[Member, ClassicSide]:
    """The member that asks; raises Refused unless it uses the classic protocol and names its generation."""
    if event.instance_id is not None:
        member = static_member(group, event.member_id, event.instance_id)
    elif event.member_id in group.members:
        member = group.members[event.member_id]
    else:
        raise unknown(group, event.member_id)
    if member.classic is None:
        text = f"Member {member.id} does not use the classic protocol."
        raise Refused(ErrorCode.unknown_member_id, text)
    if member.epoch != event.generation:
        raise Refused(ErrorCode.illegal_generation, f"The generation of member {member.id} is {member.epoch}.")
    return member, member.classic
