"""Which partition a 0.7 client means by a number, and how many there are for it on this broker.

In Kafka 0.7 a partition is a broker's own: a client names broker id and number, keeps its offsets under both, and
counts from 0 to what the broker has registered in ZooKeeper. In Ketch any broker can serve any partition. The cases:

- Without ZooKeeper clients are given a broker by hand, and a number is the partition's own, on every broker.
- With ZooKeeper each partition belongs to one of the registered brokers for ever, see `store.cluster.legacy`: its
  leader at the time when the topic was first registered. The broker's partitions, in order, have the numbers from 0 on.
  With one broker that is the partition's own number again.
- A broker that is gone keeps its partitions, as in 0.7. A broker with its id, on any machine, goes on with them.
- A producer that knows a topic to be nowhere sends to number 0 of any broker. On a broker that has no partition of the
  topic that means partition 0.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from ketch.legacy07.errors import WrongPartition
from ketch.legacy07.requests import RANDOM_PARTITION
from ketch.log.log import Log
from ketch.store.cluster import legacy
from ketch.store.cluster.brokers import Node
from ketch.store.topics.topic import Topic


class Cluster(Protocol):
    """The live brokers of this Redis."""

    @property
    def nodes(self) -> list[Node]:
        """All of them."""

    def leader(self, topic_id: UUID, index: int) -> int:
        """The node id of the broker that leads a partition."""


class Numbers:
    """The numbers of one broker.

    Args:
        broker_id: this broker's.
        shared: brokers have partitions of their own, because ZooKeeper tells clients of all of them.

    Attributes:
        registered: the ids in ZooKeeper; those of them that are brokers of this Redis share the partitions.
    """

    def __init__(self, log: Log, cluster: Cluster, broker_id: int, shared: bool) -> None:
        self._log, self._cluster, self._own, self._shared = log, cluster, broker_id, shared
        self._mine: dict[UUID, tuple[int, tuple[int, ...]]] = {}  # partitions that a topic had, and those of them here
        self.registered = frozenset[int]()

    async def mine(self, topic: Topic) -> Sequence[int]:
        """The partitions that have a number here, by number."""
        if not self._shared:
            return range(topic.partitions)
        known = self._mine.get(topic.id)
        if known is None or known[0] < topic.partitions:
            brokers = await self._assign_brokers(topic)
            mine = tuple(index for index in range(topic.partitions) if brokers.get(index) == self._own)
            known = self._mine[topic.id] = (topic.partitions, mine)
        return known[1]

    async def to_read(self, topic: Topic, number: int) -> int:
        """The partition that a consumer means; WrongPartition if there is none."""
        mine = await self.mine(topic)
        if not 0 <= number < len(mine):
            raise WrongPartition(f"partition {number} of topic {topic.name}, which has {len(mine)} here")
        return mine[number]

    async def to_write(self, topic: Topic, number: int) -> int:
        """The partition that a producer means; WrongPartition if there is none."""
        mine = await self.mine(topic) or (0,)
        if number == RANDOM_PARTITION:
            return random.choice(mine)
        return mine[0] if number == 0 else await self.to_read(topic, number)

    async def _assign_brokers(self, topic: Topic) -> dict[int, int]:
        here = {node.id for node in self._cluster.nodes}
        candidates = sorted((self.registered & here) | {self._own})
        wanted = {index: self._wanted(topic, index, candidates) for index in range(topic.partitions)}
        return await self._log.driver.ask(legacy.assign_brokers(self._log.keys, topic.name, wanted))

    def _wanted(self, topic: Topic, index: int, candidates: list[int]) -> int:
        leader = self._cluster.leader(topic.id, index)
        return leader if leader in candidates else candidates[index % len(candidates)]

    def keep(self, topics: Sequence[Topic]) -> None:
        """Forgets all topics but these."""
        self._mine = {topic.id: self._mine[topic.id] for topic in topics if topic.id in self._mine}
