"""How a member gets from what it has to its target, one heartbeat at a time, as Kafka's CurrentAssignmentBuilder does.

    STABLE ──newer target──> UNREVOKED ──gave all up──> UNRELEASED ──all free──> STABLE
       └──────── nothing to give up ────────────────────────^          └─ newer target: any of them ─┘

A partition changes hands in this order: its owner is told to give it up, says in a heartbeat that it has, and only then
another member is told that it may read it. So no partition has two owners. A member that gives up nothing never stops.
"""

from __future__ import annotations

from collections.abc import Container

from ketch.coordinator.consumer.member import Member, MemberState
from ketch.coordinator.consumer.topics import NO_PARTITIONS, Partition, Partitions


def reconcile(member: Member, target_epoch: int, owned: Partitions | None, taken: Container[Partition]) -> bool:
    """Takes the member one step on, where that can be; whether anything of it has changed.

    Args:
        target_epoch: of `member.target`.
        owned: what the member says it still has; None where it does not say.
        taken: partitions that a member has, or has still to give up; this member's own are among them.
    """
    epoch = member.epoch
    if member.is_reconciled(target_epoch):
        return False
    if member.state is MemberState.UNREVOKED:
        if _owns(owned, member.revoking):
            return False
        epoch += 1
    kept = member.assigned & member.target
    revoking, wanted = member.assigned - kept, member.target - kept
    if revoking and _owns(owned, revoking):
        return _step(member, MemberState.UNREVOKED, epoch, kept, revoking)
    free = frozenset(partition for partition in wanted if partition not in taken)
    state = MemberState.UNRELEASED if len(free) < len(wanted) else MemberState.STABLE
    return _step(member, state, target_epoch, kept | free, NO_PARTITIONS)


def _owns(owned: Partitions | None, partitions: Partitions) -> bool:
    """Whether the member may still read one of the partitions: it says so, or says nothing."""
    return owned is None or not owned.isdisjoint(partitions)


def _step(member: Member, state: MemberState, epoch: int, assigned: Partitions, revoking: Partitions) -> bool:
    before = (member.state, member.epoch, member.assigned, member.revoking)
    if epoch != member.epoch:  # Kafka forgets it else, and fences a member that lost two answers to the same request
        member.previous_epoch = member.epoch
    member.state, member.epoch, member.assigned, member.revoking = state, epoch, assigned, revoking
    return before != (state, epoch, assigned, revoking)
