"""The log as a whole: its drivers to Redis, the topics, and a `Partition` for every partition in use.

Handlers come here first. What is done to one partition is `log.partition`'s, reads of many `log.reads`'s.
"""

from __future__ import annotations

import os
import secrets
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ketch.configs.settings import Settings
from ketch.configs.topic_checks import defaults
from ketch.errors import UnknownTopicId, UnknownTopicOrPartition
from ketch.log import reads as log_reads
from ketch.log.commits import Commits
from ketch.log.copies import Copies
from ketch.log.followers import Followers
from ketch.log.live import Shared
from ketch.log.partition import Partition
from ketch.log.reads import PartitionRead
from ketch.log.recent import Newest, ReadAhead, Tails
from ketch.log.tier import Archives
from ketch.log.topic_cache import TopicCache
from ketch.log.upkeep import retention
from ketch.log.upkeep.compaction import Cleaner
from ketch.log.watcher import Watcher
from ketch.records.control import Marker
from ketch.redis.driver import Connect, Driver
from ketch.redis.question import call
from ketch.store.cluster import identity
from ketch.store.coordination import groups
from ketch.store.coordination.commits import Committed
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.stream import ranges
from ketch.store.stream.ranges import Room
from ketch.store.topics.topic import Topic, shown

if TYPE_CHECKING:
    from ketch.lake.cold import Cold

T = TypeVar("T")

_SIZES_AT_ONCE = 500  # partitions that Redis is asked for in one go


class Log:
    """Everything that is stored.

    Args:
        connect: makes drivers to the Redis that it is stored in.

    Attributes:
        connect: makes the drivers to the Redis it is stored in.
        session: this broker process: the fences of its appends and the terms of what it coordinates name it.
        topics, commits: the topics, and the offsets that groups have committed.
        newest: the batches that were appended last.
        copies: whether replicas have what was written.
        followers: which replicas there are.
        watcher: what is known of streams, and the connection of appends.
    """

    def __init__(self, settings: Settings, connect: Connect) -> None:
        max_age = settings.metadata_max_age_ms / 1000
        self.keys = Keyspace(settings.keyspace)
        self.defaults = defaults(settings)
        self._reads = connect("read")
        self.watcher = Watcher(connect, max_age, settings.append)
        self.topics = TopicCache(self.keys, self._reads, max_age, self.defaults)
        self.newest = Newest()
        self.session = f"{settings.node_id}-{os.getpid()}-{secrets.token_hex(4)}"
        self.commits = Commits(self.keys, self._reads)
        self.followers = Followers(self._reads, self.keys)
        self.copies = Copies(connect, self.keys, self.followers, settings.redis_timeout_ms, settings.copies_are_on_disk)
        self._archives = Archives(self.keys, self._reads, settings.archive_catalog, settings.archive_stall_ms / 1000)
        self._shared = Shared(
            keys=self.keys,
            session=self.session.encode(),
            reads=self._reads,
            watcher=self.watcher,
            copies=self.copies,
            ahead=ReadAhead(),
            tails=Tails(),
            newest=self.newest,
            archives=self._archives,
            pending_max=settings.group_pending_max,
            exists=self._exists,
        )
        self._cleaner = Cleaner(settings, self.keys, self._reads, self.session)
        self._producer_expiration_ms = settings.producer_id_expiration_ms
        self._partitions: dict[tuple[int, int], Partition] = {}  # by the topic's id and the index

    def configure(self, defaults: Mapping[str, str], producer_expiration_ms: int) -> None:
        """Takes over what was changed while the broker runs: defaults of topic configs, and when producers expire."""
        self.defaults.update(defaults)
        self.topics.forget_all()
        self._producer_expiration_ms = producer_expiration_ms

    @property
    def driver(self) -> Driver:
        """The driver for everything that is neither an append nor a look at a stream's end."""
        return self._reads

    async def start(self) -> None:
        """Connects; StorageUnavailable if Redis cannot be reached."""
        await self.watcher.start()
        await self._reads.start()

    async def stop(self) -> None:
        self._archives.stop()
        for part in (self.copies, self._reads, self.watcher):
            await part.stop()

    @property
    def up(self) -> bool:
        """Whether Redis can be written to and read from now."""
        return self.watcher.up and self._reads.up

    @property
    def behind(self) -> bool:
        """Whether `writable` would wait."""
        return self.watcher.behind

    async def writable(self) -> None:
        """Waits while Redis is behind with what it was sent."""
        await self.watcher.drained()

    async def topic(self, name: str) -> Topic:
        """The topic; UnknownTopicOrPartition if there is none."""
        topic = await self.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"no topic {name}")
        return topic

    async def topic_by_id(self, topic_id: uuid.UUID) -> Topic:
        """The topic with this id; UnknownTopicId if there is none."""
        topic = await self.topics.by_id(topic_id)
        if topic is None:
            raise UnknownTopicId(f"no topic with id {shown(topic_id)}")
        return topic

    def partition(self, topic: Topic, index: int) -> Partition:
        """One of the topic's partitions; UnknownTopicOrPartition if it has fewer."""
        partition = self._partitions.get((topic.id.int, index))
        if partition is None:
            if not 0 <= index < topic.partitions:
                raise UnknownTopicOrPartition(f"topic {topic.name} has no partition {index}")
            partition = Partition(topic, index, self._shared)
            self._partitions[topic.id.int, index] = partition
        if partition.topic is not topic:
            partition.describe(topic)
        return partition

    async def look(self, reads: Sequence[PartitionRead]) -> None:
        """Finds out where each partition's log starts and ends, see `reads.look`."""
        await log_reads.look(reads)

    async def read(self, reads: Sequence[PartitionRead], room: int, zstd: bool) -> None:
        """Reads partitions that were looked at, see `reads.fill`."""
        await log_reads.fill(reads, room, zstd)

    async def _exists(self, topic: Topic) -> bool:
        return await self.topics.reread(topic) is not None

    async def delete(self, topic: Topic) -> None:
        """Deletes the topic; what waits on its partitions fails."""
        closed = [self._partitions.pop((topic.id.int, index), None) for index in range(topic.partitions)]
        for partition in closed:
            if partition is not None:
                partition.close()
        # What was sent for its streams, to whichever nodes, has landed then, and goes with them.
        await self.watcher.ask_each(lambda: call(None, "PING"))
        await self.topics.delete(topic)
        await self.commits.forget_topic(topic.name, topic.partitions)
        for index, partition in enumerate(closed):
            self.watcher.changed(self.keys.stream(topic.name, index))
            if partition is not None:
                self.watcher.states.forget(partition.state)

    async def delete_group(self, group: str, term: str) -> None:
        """Deletes what is kept of a group: membership, commits, native groups on any stream.

        Raises:
            Overtaken: another coordinator has written it in a later term.
        """
        partitions = [(topic.name, index) for topic in await self.topics.all() for index in range(topic.partitions)]
        await self._reads.ask(groups.delete(self.keys, group, partitions, term))
        for partition in self._partitions.values():
            partition.group_positions.forget(group)
            partition.shares.forget(group)

    async def sweep(self) -> None:
        """Deletes what is past its retention, see `log.upkeep.retention`, and forgets topics that others deleted."""
        await retention.sweep(self.topics, self.partition, self._reads, self._producer_expiration_ms)
        await self._forget_deleted()

    async def _forget_deleted(self) -> None:
        """Lets go of the partitions of topics that another broker has deleted; what waits on them fails."""
        listed = {topic.id for topic in await self.topics.all()}
        for topic in {each.topic.id: each.topic for each in self._partitions.values()}.values():
            # The list may be older than the topic. One that is gone never comes back: ids are not used twice.
            if topic.id not in listed and await self.topics.reread(topic) is None:
                for key in [key for key in self._partitions if key[0] == topic.id.int]:
                    partition = self._partitions.pop(key)
                    partition.close()
                    self.watcher.states.forget(partition.state)

    async def memory(self, partitions: Sequence[tuple[Topic, int]]) -> dict[tuple[str, int], int]:
        """Bytes that partitions take in Redis, by topic and number."""
        found: dict[tuple[str, int], int] = {}
        for start in range(0, len(partitions), _SIZES_AT_ONCE):
            some = [(topic.name, index) for topic, index in partitions[start : start + _SIZES_AT_ONCE]]
            taken = await self._reads.ask(ranges.sizes([self.keys.stream(*each) for each in some]))
            found |= zip(some, taken, strict=True)
        return found

    async def rooms(self) -> list[Room]:
        """The memory of each node of Redis."""
        return await self._reads.ask_each(ranges.room)

    async def archived_bytes(self, topic: Topic) -> dict[int, int] | None:
        """Bytes of the data files of each archived partition; None where the topic has no archive.

        Raises:
            StorageUnavailable: the archive cannot be read.
        """
        return await self._archives.bytes_of(topic)

    async def archived(self, topic: Topic, work: Callable[[Cold], T]) -> T | None:
        """What `work` finds, in a thread, in the topic's table as announced now; None where nothing is archived.

        Raises:
            StorageUnavailable: the archive cannot be read.
        """
        return await self._archives.newest(topic, work)

    async def compact(self, leads: Callable[[uuid.UUID, int], bool]) -> None:
        """Compacts what is due of the partitions that this broker leads, see `log.upkeep.compaction`."""
        await self._cleaner.sweep(self.topics, self.partition, leads)

    async def new_producer_id(self) -> int:
        """A producer id that was never given before."""

        def ask() -> Awaitable[int]:
            return self.watcher.ask(identity.new_producer_id(self.keys))

        return await self.copied(self.watcher.driver, [self.keys.next_producer_id], ask)

    async def commit(self, group: str, made: Mapping[TopicPartition, Committed], term: str) -> None:
        """Stores committed offsets, see `log.commits`; they have the copies that the brokers' configs want."""
        keys = [self.keys.commit(self.keys.stream(*partition), group) for partition in made]
        await self.copied(self._reads, keys, partial(self.commits.store, group, made, term))

    async def end_transaction(self, partition: Partition, marker: Marker) -> None:
        """Appends a marker, see `Partition.end_transaction`; it has the copies that the topic's config wants."""

        def write() -> Awaitable[bool]:
            return partition.end_transaction(marker)

        await self._copied(partition.topic.intake.copies, self.watcher.driver, [partition.key], write)

    async def copied(self, driver: Driver, keys: Sequence[bytes], write: Callable[[], Awaitable[T]]) -> T:
        """Does a write of no topic: the default of `min.insync.replicas` is for it, too.

        It may be a read: what is read then has its copies.

        Args:
            keys: on whose nodes it is.

        Raises:
            NotEnoughReplicas, NotEnoughReplicasAfterAppend: see `Copies.copied`.
        """
        return await self._copied(int(self.defaults["min.insync.replicas"]), driver, keys, write)

    async def _copied(self, wanted: int, driver: Driver, keys: Sequence[bytes], write: Callable[[], Awaitable[T]]) -> T:
        return await (write() if wanted == 1 else self.copies.copied(driver, keys, wanted, write))

    async def cluster_id(self) -> str:
        """The id of all brokers on this keyspace, made by the first one."""
        return await self.watcher.ask(identity.cluster_id(self.keys, shown(uuid.uuid4())))
