"""Asks Redis for what no Kafka request returns: lag in records, numbers of records, archived offsets.

The broker names its Redis in its configs (`ketch.redis`, `ketch.keyspace`; DescribeConfigs of the broker), and the
command asks there. A Redis that wants a password, or that is reached at another address from
here, is named with --redis. This module only reads; it never writes to Redis.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ketch.cli import client
from ketch.configs.topic_checks import LazyDefaults
from ketch.errors import ConfigError, RedisError, StorageUnavailable
from ketch.redis import blocking
from ketch.redis.driver import BlockingDriver
from ketch.redis.question import Question, call
from ketch.redis.server import Server
from ketch.redis.url import why_unusable
from ketch.store.cluster.health import parse_info
from ketch.store.coordination import lag
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.stream import counting, ranges
from ketch.store.stream.ranges import PartitionStream
from ketch.store.topics import archives, hashes
from ketch.store.topics.archives import Announcement

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_CONNECT_S = 2.0  # a broker's address may lead nowhere from here, and the command has other things to show
_ANSWER_S = 10.0

DEFAULT_KEYSPACE = "korvet"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What a Ketch broker says of itself; `redis` has no user and password."""

    node_id: int
    version: str
    redis: str
    keyspace: str


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """The Redis server: kind and version ("Valkey 9.0.1"), bytes that it uses and may use at most, 0 for no limit."""

    version: str
    memory: int
    memory_max: int


@dataclass(frozen=True, slots=True)
class Archived:
    """One partition's archive: offsets `start` up to `through`, exclusive; both None where nothing is archived."""

    start: int | None
    through: int | None


@dataclass(frozen=True, slots=True)
class Held:
    """What Redis holds of one partition: records, and bytes of its memory."""

    records: int
    bytes: int


def broker_facts(admin: AdminClient, node_id: int | None = None) -> BrokerFacts | None:
    """What a broker says of itself, by default the one with the least node id; None where it is not Ketch.

    Raises:
        ClientError: no answer.
    """
    from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

    node = client.cluster(admin).brokers[0].id if node_id is None else node_id
    asked = [ConfigResource(ResourceType.BROKER, str(node))]
    (future,) = admin.describe_configs(asked, request_timeout=client.TIMEOUT).values()
    found = client.result(future, f"Broker {node} cannot be described")
    own = {name: str(entry.value) for name, entry in found.items() if name.startswith("ketch.")}
    if "ketch.redis" not in own:
        return None
    return BrokerFacts(node, own["ketch.version"], own["ketch.redis"], own["ketch.keyspace"])


class Store:
    """The Redis of a broker. Every question raises StorageUnavailable where Redis does not answer it."""

    def __init__(self, redis: BlockingDriver, keys: Keyspace, address: str) -> None:
        self._redis, self._keys = redis, keys
        self.address = address

    def record_lag(self, group: str, committed: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """How many records there are from each committed offset on.

        Raises:
            ConfigError: a topic is not in this Redis.
        """
        streams = self._streams(committed)
        return {
            partition: self._ask(lag.lag(streams[partition], group, offset)) for partition, offset in committed.items()
        }

    def held(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Held]:
        """Records and bytes of each partition.

        Raises:
            ConfigError: a topic is not in this Redis.
        """
        streams = self._streams(partitions).items()
        return {
            partition: Held(self._ask(lag.records(each)), self._ask(ranges.memory(each))) for partition, each in streams
        }

    def shifted(self, partition: TopicPartition, offset: int, records: int) -> int | None:
        """The offset `records` records further on, or back where negative; None where there are not as many.

        Raises:
            ConfigError: the topic is not in this Redis.
        """
        return self._ask(counting.shifted(self._streams([partition])[partition], offset, records))

    def archive_state(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Archived]:
        """What of each partition is archived, as the archive job announced it last.

        Raises:
            ConfigError: a topic is not in this Redis.
        """
        streams = self._streams(partitions)
        topics = {stream.topic.name: str(stream.topic.id) for stream in streams.values()}
        announced = dict(zip(topics, self._ask(archives.read_all(self._keys, [*topics.items()])), strict=True))
        return {partition: _archived(announced[partition[0]], partition[1]) for partition in streams}

    def server(self) -> RedisFacts:
        info = parse_info(self._ask(call(None, "INFO")))
        version = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}"
        return RedisFacts(version, int(info["used_memory"]), int(info.get("maxmemory", 0)))

    def cluster_id(self) -> str:
        """Kafka's cluster id, empty where this Redis has none."""
        found: bytes | None = self._ask(call(self._keys.cluster_id, "GET", self._keys.cluster_id))
        return (found or b"").decode(errors="replace")

    def _streams(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionStream]:
        wanted = list(partitions)
        names = list(dict.fromkeys(topic for topic, _ in wanted))
        topics = dict(zip(names, self._ask(hashes.lookup(self._keys, names, LazyDefaults())), strict=True))
        for name, topic in topics.items():
            if topic is None:
                raise ConfigError(f"This Redis has no topic {name}: it is another broker's, or has another --keyspace.")
        return {(name, index): PartitionStream.of(topic, index, self._keys) for name, index in wanted
                if (topic := topics[name]) is not None}  # fmt: skip

    def _ask(self, question: Question[T]) -> T:
        try:
            return self._redis.ask(question)
        except RedisError as error:
            raise StorageUnavailable(f"Redis at {self.address} does not answer: {why_unusable(error)}.") from None


def _archived(announced: Announcement | None, partition: int) -> Archived:
    held = announced.partitions.get(partition) if announced is not None else None
    return Archived(None, None) if held is None else Archived(held.start, held.through)


def store(admin: AdminClient, url: str | None = None, keyspace: str | None = None) -> Store:
    """The Redis of the broker: that of `url`, or the one that the broker names.

    Raises:
        ConfigError: `url` is no Redis URL.
        StorageUnavailable: there is none, it cannot be used from here, or it is another broker's. The message is a
            whole sentence which says what to do.
        ClientError: the broker does not answer.
    """
    facts = None if url and keyspace else broker_facts(admin)
    if facts is not None:
        url, keyspace = url or facts.redis, keyspace or facts.keyspace
    if url is None:
        raise StorageUnavailable("This broker does not say where its Redis is: name it with --redis URL.")
    found = connect(url, keyspace or DEFAULT_KEYSPACE)
    if found.cluster_id() != client.cluster(admin).id:
        raise StorageUnavailable(f"{found.address} is not this broker's Redis: name that with --redis URL.")
    return found


def connect(url: str, keyspace: str) -> Store:
    """The Redis at `url`, once it has answered.

    Raises:
        ConfigError: `url` is no Redis URL.
        StorageUnavailable: it cannot be used; the message is a whole sentence.
    """
    ca, cert, key = (os.environ.get(f"KETCH_REDIS_{name}") for name in ("CA", "CERT", "KEY"))
    server = Server(url, ca, cert, key, timeout=_ANSWER_S, connect_timeout=_CONNECT_S)
    address = server.address().describe()
    return Store(blocking.connect(server, "ketch-cli"), Keyspace(keyspace), address)
