"""Has the native consumer groups in Redis follow what Kafka's groups do: commit, get assigned, lose members.

A commit acknowledges what lies below it; a partition that a member has lost drops the member's pending deliveries. What
a native group has to do on one partition is `log.delivery`'s. A native group that cannot follow is a line in the log.

No client waits for it: a commit is answered when it is stored. Of commits that come faster than every `_PAUSE_S` a
native group follows the newest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from ketch.broker.coordination.assignments import Assignments
from ketch.broker.coordination.cluster import Cluster
from ketch.coordinator.classic.group import Group
from ketch.errors import KetchError, UnknownTopicOrPartition
from ketch.log.log import Log
from ketch.store.coordination.commits import Committed
from ketch.store.keys import TopicPartition

log = logging.getLogger(__name__)

_PAUSE_S = 0.05


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

    def reassigned(self, group: Group) -> None:
        """The group's members or assignments have changed."""
        for member_id, partitions in self._assignments.update(group):
            self._lost(group.id, member_id, partitions)

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
