"""Which member reads which partition, as far as the broker can tell.

Kafka's Fetch names no group. A fetch is a member's if exactly one member with its client id and host was assigned the
partition; if there are several, `broker.coordination.readers` may know from what the connection did before. Of a
classic group's members that is read from their assignments (`coordinator.classic.payload`).
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable

from ketch.broker.coordination.readers import Fitting, Identity, Reader, Readers
from ketch.coordinator.classic.group import Group
from ketch.coordinator.classic.member import Member
from ketch.coordinator.classic.payload import CONSUMER, read_assignment, read_subscription
from ketch.coordinator.consumer.group import ConsumerGroup
from ketch.coordinator.consumer.member import Member as ConsumerMember
from ketch.coordinator.consumer.topics import Partitions
from ketch.store.keys import TopicPartition

_FORMER_S = 600.0  # for so long a consumer that lost a partition may go on fetching it: it was paused, say

_Key = tuple[str, str, TopicPartition]  # client id, host, partition


def subscribed_topics(group: Group | ConsumerGroup) -> set[str] | None:
    """The topics that any member subscribes to; None where that cannot be told."""
    if isinstance(group, ConsumerGroup):
        return group.subscribed
    topics: set[str] = set()
    for member in group.members.values():
        subscription = read_subscription(member.metadata(group.protocol))
        if subscription is None:
            return None
        topics.update(subscription.topics)
    return topics


def assigned_partitions(member: Member) -> list[TopicPartition]:
    """The partitions that the member was assigned."""
    assignment = read_assignment(member.assignment)
    return [] if assignment is None else list(assignment.places)


def _keys(member: Member | ConsumerMember, partitions: Iterable[TopicPartition]) -> list[_Key]:
    return [(member.client_id, member.host, partition) for partition in partitions]


class Assignments:
    """The index of fetches: (client id, host, topic, partition) -> group and member.

    Args:
        clock: monotonic seconds, as `Reader.asked`.

    Attributes:
        assigned: the index. Of a fetch whose partitions are not in it, `meet` and `find` know nothing.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.assigned: dict[_Key, set[Identity]] = {}
        self._members: dict[str, dict[str, list[_Key]]] = {}  # group -> member -> its keys in the index
        # Of each member of a consumer group its client id, host and partitions, as of the last update.
        self._seen: dict[str, dict[str, tuple[str, str, Partitions]]] = {}
        self._former: defaultdict[_Key, dict[str, float]] = defaultdict(dict)  # groups that lost a key, and when
        self._losses: deque[tuple[float, str, _Key]] = deque()  # the same, oldest first
        self._readers = Readers()
        self._changed = clock()  # when the index last changed

    def update(self, group: Group | ConsumerGroup) -> list[tuple[str, list[TopicPartition]]]:
        """The group has a new assignment; which members lost which partitions."""
        given, gone = self._changed_members(group)
        had = {member: self._remove(group.id, member) for member in {*given, *gone}}
        for member_id, keys in given.items():
            self._add(group.id, member_id, keys)
        self._compare(group, had.values(), given.values())
        for member_id in gone:
            self._readers.gone((group.id, member_id))
        members = self._members.get(group.id, {})
        has = {member_id: set(_partitions(members.get(member_id, []))) for member_id in had}
        return [
            (member_id, [partition for partition in _partitions(keys) if partition not in has[member_id]])
            for member_id, keys in had.items()
        ]

    def _changed_members(self, group: Group | ConsumerGroup) -> tuple[dict[str, list[_Key]], set[str]]:
        """The keys of members that may have others than before, and members that are gone.

        Of a classic group all may have: a rebalance gives everybody its part. A consumer group moves a few partitions
        at a time, and may be large.
        """
        if isinstance(group, ConsumerGroup):
            seen = self._seen.get(group.id, {})
            now = {member.id: (member.client_id, member.host, member.assigned) for member in group.members.values()}
            if now:
                self._seen[group.id] = now
            else:
                self._seen.pop(group.id, None)
            changed = [group.members[each] for each, what in now.items() if seen.get(each) != what]
            given = {member.id: _keys(member, group.places(member.assigned)) for member in changed}
            return given, self._members.get(group.id, {}).keys() - now.keys()
        self._seen.pop(group.id, None)
        reads = group.members.values() if group.protocol_type == CONSUMER else ()
        given = {member.id: _keys(member, assigned_partitions(member)) for member in reads}
        return given, self._members.get(group.id, {}).keys() - given.keys()

    def _add(self, group_id: str, member_id: str, keys: list[_Key]) -> None:
        self._members.setdefault(group_id, {})[member_id] = keys
        for key in keys:
            self.assigned.setdefault(key, set()).add((group_id, member_id))

    def _compare(self, group: Group | ConsumerGroup, had: Iterable[list[_Key]], has: Iterable[list[_Key]]) -> None:
        """Takes notice of what members of a group have lost and got."""
        before, now = ({key for keys in each for key in keys} for each in (had, has))
        self._lost(group.id, before - now)
        if not group.assigned_here:
            for name in {key[:2] for key in now - before}:
                self._readers.doubt(name)

    def _lost(self, group_id: str, keys: Iterable[_Key]) -> None:
        self._changed = self._clock()
        for key in keys:
            self._former[key][group_id] = self._changed
            self._losses.append((self._changed, group_id, key))
        while self._losses and self._losses[0][0] < self._changed - _FORMER_S:
            at, former, key = self._losses.popleft()
            if self._former[key].get(former) == at:  # else it was lost again later
                del self._former[key][former]
            if not self._former[key]:
                del self._former[key]

    def remove(self, group_id: str, member_id: str) -> list[TopicPartition]:
        """A member is gone; the partitions it had."""
        self._seen.get(group_id, {}).pop(member_id, None)
        keys = self._remove(group_id, member_id)
        self._lost(group_id, keys)
        self._readers.gone((group_id, member_id))
        return _partitions(keys)

    def _remove(self, group_id: str, member_id: str) -> list[_Key]:
        members = self._members.get(group_id, {})
        keys = members.pop(member_id, [])
        if not members:
            self._members.pop(group_id, None)
        for key in keys:
            assigned = self.assigned.get(key, set())
            assigned.discard((group_id, member_id))
            if not assigned:
                self.assigned.pop(key, None)
        return keys

    def partitions(self, group_id: str) -> set[TopicPartition]:
        """The partitions that the group's members were assigned."""
        return {partition for keys in self._members.get(group_id, {}).values() for partition in _partitions(keys)}

    def tracked(self, group_id: str, partition: TopicPartition, leads: bool) -> bool:
        """Whether `find` knows the fetches of this partition by a member of the group.

        Args:
            leads: whether this broker leads the partition. What another one knows of its connections is not known here.
        """
        members = self._members.get(group_id, {}).items()
        found = ((member_id, key) for member_id, keys in members for key in keys if key[2] == partition)
        return any(
            len(self.assigned[key]) == 1 or (leads and self._readers.knows(key[:2], (group_id, member_id)))
            for member_id, key in found
        )

    # -- connections

    def speaks(self, reader: Reader, group_id: str, member_id: str) -> None:
        """A heartbeat or SyncGroup of the member came through this connection, and was accepted."""
        if member_id in self._members.get(group_id, ()):
            self._readers.speak(reader, (group_id, member_id))

    def meet(self, reader: Reader, client_id: str, host: str, partitions: Collection[TopicPartition]) -> None:
        """A connection whose member is not known fetches these partitions. To be called once for each such fetch."""
        keys = [(client_id, host, partition) for partition in partitions]
        if any(key in self.assigned for key in keys):
            fitting = (Fitting(self.assigned.get(key, ()), self._former.get(key, ())) for key in keys)
            self._readers.meet(reader, (client_id, host), fitting)

    def find(self, reader: Reader, client_id: str, host: str, partition: TopicPartition) -> Identity | None:
        """Group and member id of a fetch; None where there is none, or more than one that it may be."""
        members = self.assigned.get((client_id, host, partition))
        return self._readers.find(reader, (client_id, host), members, self._changed) if members else None

    def shared(self, client_id: str, host: str, partition: TopicPartition) -> bool:
        """Whether members of several groups fit a fetch of this partition."""
        return len(self.assigned.get((client_id, host, partition), ())) > 1


def _partitions(keys: Iterable[_Key]) -> list[TopicPartition]:
    return [partition for _, _, partition in keys]
