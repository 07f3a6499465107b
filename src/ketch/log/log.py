"""The log as a whole: connections, the topic catalog, and a Partition for every partition in use."""

from __future__ import annotations

import base64
import os
import secrets
import uuid

from ketch.config import Settings
from ketch.errors import UnknownTopicId, UnknownTopicOrPartition
from ketch.log import retention
from ketch.log.ahead import Newest, ReadAhead, Tails
from ketch.log.partition import Partition
from ketch.log.tier import Archives
from ketch.store.groups import GroupStore
from ketch.store.keys import Keyspace
from ketch.store.link import Link
from ketch.store.registry import Registry
from ketch.store.topics import Catalog, Topic
from ketch.store.url import RedisAddress
from ketch.store.watcher import Watcher
from ketch.topicconfig import defaults


class Log:
    """Everything that is stored.

    Args:
        address: the Redis it is stored in.
    """

    def __init__(self, settings: Settings, address: RedisAddress) -> None:
        timeout = settings.redis_timeout_ms / 1000
        max_age = settings.metadata_max_age_ms / 1000
        self.keys = Keyspace(settings.keyspace)
        self.defaults = defaults(settings)
        self._reads = Link("read", address, timeout)
        self._watcher = Watcher(address, timeout, max_age)
        self._writes = self._watcher.link
        self.catalog = Catalog(self.keys, self._reads, max_age, self.defaults)
        self.groups = GroupStore(self.keys, self._reads)
        session = f"{settings.node_id}-{os.getpid()}-{secrets.token_hex(4)}"
        self.registry = Registry(self.keys, self._reads, session, settings.broker_session_timeout_ms)
        self._session = session.encode()
        self._ahead = ReadAhead(), Tails(), Newest()
        self._archives = Archives(self.keys, self._reads, settings.archive_catalog, settings.archive_stall_ms / 1000)
        self._pending_max = settings.group_pending_max
        self._producer_expiration_ms = settings.producer_id_expiration_ms
        self._partitions: dict[tuple[uuid.UUID, int], Partition] = {}

    @property
    def watcher(self) -> Watcher:
        return self._watcher

    async def start(self) -> None:
        """Connects; StorageUnavailable if Redis cannot be reached."""
        await self._watcher.start()
        await self._reads.start()

    async def stop(self) -> None:
        self._archives.stop()
        for part in (self._reads, self._watcher):
            await part.stop()

    @property
    def up(self) -> bool:
        """Whether Redis can be written to and read from now."""
        return self._writes.up and self._reads.up

    @property
    def behind(self) -> bool:
        """Whether `writable` would wait."""
        return self._writes.pipe.behind

    async def writable(self) -> None:
        """Waits while Redis is behind with what it was sent."""
        await self._writes.pipe.drained()

    async def topic(self, name: str) -> Topic:
        """The topic; UnknownTopicOrPartition if there is none."""
        topic = await self.catalog.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"no topic {name}")
        return topic

    async def topic_by_id(self, topic_id: uuid.UUID) -> Topic:
        """The topic with this id; UnknownTopicId if there is none."""
        topic = await self.catalog.by_id(topic_id)
        if topic is None:
            raise UnknownTopicId(f"no topic with id {topic_id}")
        return topic

    def partition(self, topic: Topic, index: int) -> Partition:
        """One of the topic's partitions; UnknownTopicOrPartition if it has fewer."""
        partition = self._partitions.get((topic.id, index))
        if partition is None:
            if not 0 <= index < topic.partitions:
                raise UnknownTopicOrPartition(f"topic {topic.name} has no partition {index}")
            partition = self._new_partition(topic, index)
            self._partitions[topic.id, index] = partition
        partition.topic = topic  # configs may have changed
        return partition

    def _new_partition(self, topic: Topic, index: int) -> Partition:
        async def alive() -> bool:
            return await self.catalog.anew(topic) is not None

        shared = (self._pending_max, self._ahead, self._archives)
        return Partition(topic, index, self.keys, self._session, self._reads, self._watcher, alive, *shared)

    async def delete(self, topic: Topic) -> None:
        """Deletes the topic; what waits on its partitions fails."""
        for index in range(topic.partitions):
            partition = self._partitions.pop((topic.id, index), None)
            if partition is not None:
                partition.close()
        await self._writes.pipe.call("PING")  # what was sent for its streams has then landed, and goes with them
        await self.catalog.delete(topic)
        await self.groups.forget_topic(topic.name, topic.partitions)
        for index in range(topic.partitions):
            self._watcher.changed(self.keys.stream(topic.name, index))

    async def delete_group(self, group: str) -> None:
        """Deletes what is kept of a group: membership, commits, native groups on any stream."""
        places = [(topic.name, index) for topic in await self.catalog.all() for index in range(topic.partitions)]
        await self.groups.delete(group, places)
        for partition in self._partitions.values():
            partition.forget(group)

    async def sweep(self) -> None:
        """Deletes what is past its retention, see `log.retention`."""
        await retention.sweep(self, self._reads, self._producer_expiration_ms)

    async def new_producer_id(self) -> int:
        """A producer id that was never given before."""
        number: int = await self._writes.pipe.call("INCR", self.keys.next_producer_id)
        return number

    async def cluster_id(self) -> str:
        """The id of all brokers on this keyspace, made by the first one."""
        mine = uuid.uuid4().bytes
        pipe = self._writes.pipe
        await pipe.call("SETNX", self.keys.cluster_id, _base64(mine))
        found: bytes = await pipe.call("GET", self.keys.cluster_id)
        return found.decode()


def _base64(raw: bytes) -> str:
    # 22 characters of URL-safe base64 without padding: Kafka's Uuid.toString
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
