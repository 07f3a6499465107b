"""Has the native consumer groups in Redis follow what Kafka's groups do: get assigned, commit, lose members.

- Members have been told their assignment, or a group with assignments was loaded: the group's coordinator makes a
  native group on each partition that has none (`assigned`). So XINFO GROUPS shows every group that reads, and its lag,
  also where nobody can tell whose fetches are whose (`broker.coordination.readers`) and before anything is committed.
- A commit acknowledges what lies below it.
- A partition that a member has lost drops the member's pending deliveries.

A native group that is made by an assignment stands at the committed offset. Where nothing is committed it stands before
the first entry. No request says where such a consumer begins (`auto.offset.reset` is its own). This position is right
for one that begins at the start. Of one that begins at the end, XINFO GROUPS shows the records as not yet delivered
until its first fetch (where that is known as its own) or its first commit sets the position. At the end, a group that
has not begun to read a backlog would seem to be done with it.

Assignments make no stream (MKSTREAM): after the deletion of its topic, that would leave a stream which belongs to none.
Where a partition has no stream yet, the group is made when the first record has made that: a task of the group waits
for it, as fetches do, until the group is assigned anew, has no members, or is coordinated elsewhere. Several brokers,
or a read, may make one native group at the same time: Redis makes it once.

No client waits for any of this: an assignment is answered first, and a commit when it is stored. A rebalance costs one
command for each partition, `_AT_ONCE` of them in a round trip. Of commits that come faster than every `_PAUSE_S` a
native group follows the newest. What a native group has to do on one partition is `log.native_position`'s. A native
group that cannot follow is a line in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from ketch.broker.coordination.assignments import Assignments
from ketch.broker.coordination.cluster import Cluster
from ketch.coordinator.classic.group import Group
from ketch.coordinator.consumer.group import ConsumerGroup
from ketch.errors import KetchError, StorageUnavailable, UnknownTopicOrPartition
from ketch.log.log import Log
from ketch.log.states import Waiter
from ketch.store.coordination import native
from ketch.store.coordination.commits import Committed
from ketch.store.keys import TopicPartition
from ketch.tasks import lasting

log = logging.getLogger(__name__)

_PAUSE_S = 0.05
_RETRY_S = 5.0  # after Redis could not be asked
_LOOK_S = 60.0  # how often a task that waits for streams looks whether it is to go on
_AT_ONCE = 500  # native groups made in one round trip


class NativeGroups:
    """What consumer groups have native groups do.

    Args:
        assignments: which member reads which partition; kept up to date here.
        keep: keeps a task alive until it is done or the broker stops.
    """

    def __init__(
        self, log_: Log, cluster: Cluster, assignments: Assignments, keep: Callable[[asyncio.Task[None]], None]
    ) -> None:
        self._log, self._cluster, self._assignments, self._keep = log_, cluster, assignments, keep
        self._due: dict[tuple[str, TopicPartition], int] = {}  # the newest commit, while it is followed
        self._making: dict[str, asyncio.Task[None]] = {}  # by group, until all its partitions have one

    # -- assignments

    def assigned(self, group: str) -> None:
        """Members have been told their assignment: each partition gets a native group, if it has none."""
        self._stop_making(group)
        partitions = sorted(self._assignments.partitions(group))
        if partitions:
            task = self._making[group] = asyncio.get_running_loop().create_task(self._make(group, partitions))
            self._keep(task)

    def _stop_making(self, group: str) -> None:
        if group in self._making:
            self._making.pop(group).cancel()

    async def _make(self, group: str, due: list[TopicPartition]) -> None:
        waiter, absent = self._log.watcher.waiter(), dict[bytes, TopicPartition]()  # by stream, which is not there yet
        try:
            while (due or absent) and self._cluster.coordinates("group", group):
                try:
                    # It goes on when this is cancelled: what it has made it also sets to what is committed.
                    missing = await asyncio.shield(lasting(self._make_each(group, due)))
                    streams = await asyncio.gather(*(self._has_stream(partition, waiter) for partition in missing))
                except StorageUnavailable:  # the links say so themselves
                    await asyncio.sleep(_RETRY_S)
                    continue
                found = list(zip(missing, streams, strict=True))
                absent |= {self._log.keys.stream(*partition): partition for partition, there in found if there is False}
                due = [partition for partition, there in found if there]
                if absent and not due:
                    await waiter.wait(_LOOK_S)
                    due = [absent.pop(stream) for stream in waiter.take() if stream in absent]
        except KetchError as error:
            log.warning("group %s: its native groups: %s", group, error)
        finally:
            waiter.close()
            if self._making.get(group) is asyncio.current_task():
                del self._making[group]

    async def _make_each(self, group: str, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Makes the group on each of these partitions; those that have no stream."""
        absent = []
        for start in range(0, len(partitions), _AT_ONCE):
            some = partitions[start : start + _AT_ONCE]
            created = await self._log.driver.ask(
                native.create_each([self._log.keys.stream(*each) for each in some], group)
            )
            made = [partition for partition, new in zip(some, created, strict=True) if new]
            for partition, commit in (await self._log.commits.of(group, made)).items():
                if (group, partition) not in self._due:  # else it is about to follow a newer commit
                    self.committed(group, {partition: commit})
            absent += [partition for partition, new in zip(some, created, strict=True) if new is None]
        return absent

    async def _has_stream(self, partition: TopicPartition, waiter: Waiter) -> bool | None:
        """Whether the partition has a stream, see `GroupPositions.has_stream`; None where the topic is gone."""
        try:
            topic = await self._log.topic(partition[0])
            return await self._log.partition(topic, partition[1]).group_positions.has_stream(waiter)
        except UnknownTopicOrPartition:
            return None

    # -- commits

    def committed(self, group: str, commits: Mapping[TopicPartition, Committed]) -> None:
        """Commits have been stored: what lies below them is acknowledged."""
        for partition, commit in commits.items():
            follows = (group, partition) in self._due
            self._due[group, partition] = commit.offset
            if not follows:
                self._keep(asyncio.get_running_loop().create_task(self._follow(group, partition)))

    @property
    def busy(self) -> bool:
        """Whether a native group has still to follow a commit."""
        return bool(self._due)

    async def _follow(self, group: str, partition: TopicPartition) -> None:
        followed = None
        try:
            while (offset := self._due[group, partition]) != followed:
                await self._acknowledge(group, *partition, offset)
                followed = offset
                await asyncio.sleep(_PAUSE_S)
        finally:
            del self._due[group, partition]

    async def _acknowledge(self, group: str, topic: str, index: int, offset: int) -> None:
        try:
            known = await self._log.topic(topic)
            leads = self._cluster.leads(known.id, index)
            tracked = self._assignments.tracked(group, (topic, index), leads)
            positions = self._log.partition(known, index).group_positions
            await positions.committed(group, offset, tracked, elsewhere=tracked and not leads)
        except KetchError as error:
            log.warning("group %s: its native group on %s-%d: %s", group, topic, index, error)

    # -- members

    def reassigned(self, group: Group | ConsumerGroup) -> None:
        """The group's members or assignments have changed, or it was loaded."""
        for member_id, partitions in self._assignments.update(group):
            self._lost(group.id, member_id, partitions)
        if not group.members:
            self._stop_making(group.id)
        elif not group.assigned_here and self._cluster.coordinates("group", group.id):
            self.assigned(group.id)  # its last coordinator may not have come to it, or was of an older version

    def member_left(self, group_id: str, member_id: str) -> None:
        """A member is gone."""
        self._lost(group_id, member_id, self._assignments.remove(group_id, member_id))

    def _lost(self, group_id: str, member_id: str, partitions: list[TopicPartition]) -> None:
        if partitions:
            self._keep(asyncio.get_running_loop().create_task(self._leave(group_id, member_id, partitions)))

    async def _leave(self, group_id: str, member_id: str, partitions: list[TopicPartition]) -> None:
        """What the member was delivered and did not commit is no longer its own."""
        for topic, index in partitions:
            try:
                partition = self._log.partition(await self._log.topic(topic), index)
                await partition.group_positions.left(group_id, member_id)
            except UnknownTopicOrPartition:
                continue  # its native groups were deleted with it
            except KetchError as error:
                log.warning("group %s: %s-%d still names member %s: %s", group_id, topic, index, member_id, error)
