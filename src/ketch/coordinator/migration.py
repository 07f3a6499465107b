"""A live group changes its protocol: a classic group becomes a consumer group, and the other way round (KIP-848).

`upgrade` makes a consumer group of a classic one, when a member comes that sends ConsumerGroupHeartbeat. The classic
members stay in it (`coordinator.consumer.classic_members`): each has what it was assigned last, in an epoch that is the
group's generation. `downgrade` makes a classic group of a consumer group when its last such member has gone. The
members that are left have their targets as their assignments; they have to share what the last member had, so a
rebalance begins.

As Kafka's ConsumerGroup.fromClassicGroup and ClassicGroup.fromConsumerGroup. Pure: who may convert what is decided by
the caller (`broker.coordination.kinds.consumer`).
"""

from __future__ import annotations

from collections.abc import Callable

from kio.schema.errors import ErrorCode

from ketch.coordinator.classic import group as classic
from ketch.coordinator.classic.events import JoinResult, SyncResult
from ketch.coordinator.classic.group import Group
from ketch.coordinator.classic.member import GroupConfig
from ketch.coordinator.classic.member import Member as ClassicMember
from ketch.coordinator.classic.member import State as ClassicState
from ketch.coordinator.classic.payload import CONSUMER, read_assignment, read_subscription, write_assignment
from ketch.coordinator.consumer.classic_members import named, version
from ketch.coordinator.consumer.group import ConsumerGroup
from ketch.coordinator.consumer.member import ClassicSide, ConsumerConfig, Member
from ketch.coordinator.consumer.state import look, own
from ketch.coordinator.consumer.topics import Partitions, Topics
from ketch.coordinator.machine import Reply


class Unfit(Exception):
    """The group cannot be converted; the text ends a sentence of Kafka's that says so."""


def upgrade(group: Group, config: ConsumerConfig, topics: Topics, now: float) -> ConsumerGroup:
    """A consumer group with the members of a classic group, which is left as it is.

    Args:
        topics: all that there are.

    Raises:
        Unfit: what a member has sent cannot be read, or holds data of an assignor of the client's own.
    """
    made = ConsumerGroup(group.id, config, group.generation, group.generation)
    made.assigned_here = group.assigned_here
    for old in group.members.values():
        member = _upgraded(group, old, topics, now)
        # An assignor of the client's own may have given one partition to two members; a consumer group does not.
        member.assigned = member.target = member.assigned.difference(made.owners)
        made.members[member.id] = member
        if member.instance_id is not None:
            made.static[member.instance_id] = member.id
        own(made, member, None)
    made.seen = topics
    look(made)
    return made


def _upgraded(group: Group, old: ClassicMember, topics: Topics, now: float) -> Member:
    said = read_subscription(old.metadata(group.protocol) or old.protocols[0][1])
    if said is None:
        raise Unfit("the embedded consumer protocol is malformed")
    return Member(
        old.id,
        old.instance_id,
        said.rack_id,
        old.client_id,
        old.host,
        old.rebalance_timeout,
        said.topics,
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=_assigned(old, topics),
        classic=ClassicSide(old.session_timeout, old.protocols),
        deadline=now + old.session_timeout,
    )


def _assigned(old: ClassicMember, topics: Topics) -> Partitions:
    """What it may read, without topics that there are no more; nothing for one that was never assigned anything."""
    if not old.assignment:
        return frozenset()
    assignment = read_assignment(old.assignment)
    if assignment is None:
        raise Unfit("the embedded consumer protocol is malformed")
    if assignment.custom:
        raise Unfit(
            "an unsupported custom assignor is in use. "
            "Please refer to the documentation or switch to a default assignor before re-attempting the upgrade"
        )
    known = topics.by_name
    return frozenset((known[name].id, index) for name, index in assignment.places if name in known)


def released(group: Group) -> list[Reply]:
    """Answers the requests that wait in a group which becomes a consumer group: their members are to join again."""
    error, members = ErrorCode.rebalance_in_progress, group.members.values()
    joins = [Reply(m.join_token, JoinResult(error, m.id)) for m in members if m.join_token is not None]
    return joins + [Reply(m.sync_token, SyncResult(error)) for m in members if m.sync_token is not None]


def downgrade(
    group: ConsumerGroup,
    config: GroupConfig,
    new_member_id: Callable[[str], str],
    generation: int,
    rebalances: bool,
    now: float,
) -> Group:
    """A classic group with the members of a consumer group, all of which use the classic protocol.

    Args:
        generation: of the classic group.
        rebalances: a rebalance begins.
    """
    made = Group(group.id, config, new_member_id, ClassicState.STABLE, generation, CONSUMER)
    made.assigned_here = group.assigned_here
    for old in group.members.values():
        assert old.classic is not None
        made.members[old.id] = ClassicMember(
            old.id,
            old.instance_id,
            old.client_id,
            old.host,
            old.classic.session_timeout,
            old.rebalance_timeout,
            old.classic.protocols,
            write_assignment(version(old.classic), named(group, old.target)),
            now + old.classic.session_timeout,
        )
        if old.instance_id is not None:
            made.static[old.instance_id] = old.id
    made.leader = next(iter(made.members))
    made.protocol = classic.select_protocol(made)
    if rebalances:
        classic.changed(made, now)
    return made
