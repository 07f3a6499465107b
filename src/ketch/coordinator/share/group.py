"""One share group's state and what changes it, as Kafka's GroupMetadataManager and ShareGroup have it (KIP-932).

    group epoch        rises when members come, go or subscribe anew, and when topics that they read change
    assignment epoch   of the last target: the assignor is asked in the first heartbeat after the group epoch rose
    member epoch       of the target that the member was told last

Partitions are shared, so nobody has to give one up before another member gets it: a member is told its target in its
next heartbeat, and has reached it. A member is judged by its epoch: what it says in another one than its own or the one
before is refused, and it joins again. Who has which record is not known here: the leaders of the partitions know.

Kafka assigns a partition only once its share-partition state is initialized. Here it is assigned at once, and its
leader makes that state when it is first read.

What an event does is read off TABLE, at the end. Every reply is given at once: no request waits here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.coordinator.consumer.assigned import AssignedGroup, Refused, follow, read, unknown
from ketch.coordinator.consumer.assignors import Subscriber
from ketch.coordinator.consumer.events import JOIN_EPOCH, LEAVE_EPOCH, BeatResult
from ketch.coordinator.consumer.topics import TopicInfo
from ketch.coordinator.machine import Persist, Tick
from ketch.coordinator.share.assignor import NAME, assign_simply
from ketch.coordinator.share.config import ShareConfig
from ketch.coordinator.share.events import Effect, Event, ShareBeat, ShareDepart, ShareForget, ShareMove
from ketch.coordinator.share.member import Member, State

_ABANDON = "The member must abandon all its partitions and rejoin."


@dataclass(slots=True)
class ShareGroup(AssignedGroup[ShareConfig, Member]):
    """One group.

    Attributes:
        begun: topics on whose partitions the group may stand somewhere, by name: it read them, or was moved there.
    """

    begun: dict[str, TopicInfo] = field(default_factory=dict)

    protocol_type = "share"
    assignor = NAME

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
        return State.STABLE if self.members else State.EMPTY

    @property
    def deadline(self) -> float | None:
        """When the next Tick is due; None while there is nothing to wait for."""
        return min((member.deadline for member in self.members.values()), default=None)

    @property
    def subscribed(self) -> set[str]:
        """The topics that any member subscribes to."""
        return {name for member in self.members.values() for name in member.names}


# -- heartbeats


def beat(group: ShareGroup, event: ShareBeat, now: float) -> None:
    """A member joins, or stays and is told its target."""
    try:
        known = _find(group, event)
    except Refused as refused:
        group.reply(event.token, BeatResult(refused.error, refused.message))
        return
    before = None if known is None else replace(known)
    epochs = group.epoch, group.assignment_epoch
    member = known or group.members.setdefault(event.member_id, Member(event.member_id))
    _hear(group, member, event, before)
    if group.epoch > group.assignment_epoch:
        _retarget(group)
    if member.epoch != group.assignment_epoch:
        member.previous_epoch, member.epoch, member.assigned = member.epoch, group.assignment_epoch, member.target
    changed = before is None or before != replace(member, deadline=before.deadline)
    member.deadline = now + group.config.session_timeout
    if changed or epochs != (group.epoch, group.assignment_epoch):
        group.effects.append(Persist())
    _answer(group, member, event, before)


def _find(group: ShareGroup, event: ShareBeat) -> Member | None:
    """The member; None for one that is to be made. Raises Refused."""
    if event.epoch != JOIN_EPOCH and group.epoch == 0:
        raise Refused(ErrorCode.group_id_not_found, f"Share group {group.id} not found.")
    member = group.members.get(event.member_id)
    if member is None and len(group.members) >= group.config.max_size:
        text = f"The share group has reached its maximum capacity of {group.config.max_size} members."
        raise Refused(ErrorCode.group_max_size_reached, text)
    if member is None and event.epoch != JOIN_EPOCH:
        raise unknown(group, event.member_id)
    if member is not None:
        _check_epoch(member, event.epoch)
    return member


def _check_epoch(member: Member, epoch: int) -> None:
    """A member may come with its last epoch: it missed an answer. That of one which has just joined was 0."""
    if epoch in (member.epoch, member.previous_epoch):
        return
    than = "greater" if epoch > member.epoch else "smaller"
    text = f"The share group member has a {than} member epoch ({epoch})"
    text += f" than the one known by the group coordinator ({member.epoch})"
    if epoch < member.epoch:
        text += f", and it does not match the previous member epoch ({member.previous_epoch})"
    raise Refused(ErrorCode.fenced_member_epoch, f"{text}. {_ABANDON}")


def _hear(group: ShareGroup, member: Member, event: ShareBeat, before: Member | None) -> None:
    """Takes over what the member says of itself, and looks at the topics; the group epoch rises where that matters."""
    member.client_id, member.host = event.client_id, event.host
    member.rack_id = member.rack_id if event.rack_id is None else event.rack_id
    member.names = member.names if event.names is None else event.names
    follow(group, event.topics, before is None or before.names != member.names, _look)


def _look(group: ShareGroup) -> bool:
    """Looks which topics the group reads; whether that has changed, or any of them."""
    changed = read(group, group.subscribed)
    group.begun |= group.topics
    return changed


def _retarget(group: ShareGroup) -> None:
    """Asks the assignor for the target of this group epoch."""
    topics = group.topics
    members = [
        Subscriber(
            member.id, None, frozenset(topics[name].id for name in member.names if name in topics), member.target
        )
        for member in group.members.values()
    ]
    targets = assign_simply(members, {info.id: info.partitions for info in topics.values()})
    for member in group.members.values():
        member.target = targets[member.id]
    group.assignment_epoch = group.epoch


def _answer(group: ShareGroup, member: Member, event: ShareBeat, before: Member | None) -> None:
    # Who says everything, or comes with its last epoch, may have missed the answer that had its assignment.
    missed = before is None or event.names is not None or event.epoch != before.epoch
    given = missed or (before is not None and before.assigned != member.assigned)
    interval, assignment = group.config.heartbeat_interval, member.assigned if given else None
    result = BeatResult(member_id=member.id, epoch=member.epoch, interval=interval, assignment=assignment)
    group.reply(event.token, result)


# -- going


def depart(group: ShareGroup, event: ShareDepart, now: float) -> None:
    """A member goes."""
    member = group.members.get(event.member_id)
    if member is None:
        refused = unknown(group, event.member_id)
        if group.epoch == 0:
            refused = Refused(ErrorCode.group_id_not_found, f"Group {group.id} not found.")
        group.reply(event.token, BeatResult(refused.error, refused.message))
        return
    _drop(group, [member])
    group.reply(event.token, BeatResult(member_id=member.id, epoch=LEAVE_EPOCH))


def tick(group: ShareGroup, _: Tick, now: float) -> None:
    """Members whose time is up are gone."""
    _drop(group, [member for member in group.members.values() if member.deadline <= now])


def _drop(group: ShareGroup, members: list[Member]) -> None:
    if not members:
        return
    group.effects.append(Persist())
    for member in members:
        del group.members[member.id]
        group.epoch += 1
    if group.seen is not None:
        _look(group)


# -- where it stands on partitions


def move(group: ShareGroup, event: ShareMove, now: float) -> None:
    """An administrator asks to have the group begin elsewhere on some topics, which it may while it has no members."""
    if _stands_still(group, event.token):
        group.begun |= event.topics
        group.effects.append(Persist())
        group.reply(event.token, BeatResult())


def forget(group: ShareGroup, event: ShareForget, now: float) -> None:
    """An administrator asks to remove what is kept of the group on some topics: allowed while it has no members."""
    if _stands_still(group, event.token):
        group.begun = {name: info for name, info in group.begun.items() if name not in event.names}
        group.effects.append(Persist())
        group.reply(event.token, BeatResult())


def _stands_still(group: ShareGroup, token: Hashable) -> bool:
    """Whether there is such a group and nobody reads; else the answer has been given."""
    if group.epoch == 0:
        group.reply(token, BeatResult(ErrorCode.group_id_not_found, f"Group {group.id} not found."))
    elif group.members:
        group.reply(token, BeatResult(ErrorCode.non_empty_group, "The group is not empty."))
    return group.epoch != 0 and not group.members


# -- dead groups, and the table


def dead(group: ShareGroup, event: Any, _: float) -> None:
    """The client looks for the coordinator and tries again."""
    if not isinstance(event, Tick):
        group.reply(event.token, BeatResult(ErrorCode.coordinator_not_available))


TABLE: dict[type, Callable[[ShareGroup, Any, float], None]] = {
    ShareBeat: beat,
    ShareDepart: depart,
    ShareMove: move,
    ShareForget: forget,
    Tick: tick,
}
