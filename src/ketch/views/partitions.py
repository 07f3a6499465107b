"""What Redis knows of single partitions: records, bytes, what is archived, and how far it is from offset to offset.

Questions to Redis alone. With time ids offsets are sparse, so no subtraction tells how many records there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ketch.configs.topic_checks import LazyDefaults
from ketch.errors import ConfigError
from ketch.redis.question import Question, call
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.stream import counting, ranges
from ketch.store.stream.ranges import PartitionStream
from ketch.store.topics import archives, hashes


@dataclass(frozen=True, slots=True)
class Held:
    """What Redis holds of one partition: records, and bytes of its memory."""

    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Archived:
    """One partition's archive: offsets `start` up to `through`, exclusive; both None where nothing is archived."""

    start: int | None
    through: int | None


NOT_ARCHIVED = Archived(None, None)


def streams(keys: Keyspace, partitions: Iterable[TopicPartition]) -> Question[dict[TopicPartition, PartitionStream]]:
    """The stream of each partition.

    Raises:
        ConfigError: a topic is not in this Redis; so do all views that take partitions.
    """
    wanted = list(partitions)
    names = list(dict.fromkeys(topic for topic, _ in wanted))
    found = yield from hashes.lookup(keys, names, LazyDefaults())
    topics = {topic.name: topic for topic in found if topic is not None}
    for name in names:
        if name not in topics:
            raise ConfigError(f"This Redis has no topic {name}: it is another broker's, or has another --keyspace.")
    return {(name, index): PartitionStream.of(topics[name], index, keys) for name, index in wanted}


def held(keys: Keyspace, partitions: Iterable[TopicPartition]) -> Question[dict[TopicPartition, Held]]:
    """Records and bytes of each partition; raises as `streams`."""
    found = yield from streams(keys, partitions)
    return (yield from held_in(found))


def held_in(of: dict[TopicPartition, PartitionStream]) -> Question[dict[TopicPartition, Held]]:
    """As `held`, of streams that are known."""
    found = {}
    for partition, stream in of.items():
        found[partition] = Held((yield from records(stream)), (yield from ranges.memory(stream)))
    return found


def records(stream: PartitionStream) -> Question[int]:
    """How many records Redis holds of a partition."""
    if stream.layout.entry_is_record:
        length: int = yield from call(stream.key, "XLEN", stream.key)
        return length
    return (yield from counting.count(stream, 0))


def archived(keys: Keyspace, partitions: Iterable[TopicPartition]) -> Question[dict[TopicPartition, Archived]]:
    """What of each partition is archived, as the archive job announced it last; raises as `streams`."""
    found = yield from streams(keys, partitions)
    return (yield from archived_of(keys, found))


def archived_of(keys: Keyspace, of: dict[TopicPartition, PartitionStream]) -> Question[dict[TopicPartition, Archived]]:
    """As `archived`, of streams that are known."""
    topics = {stream.topic.name: str(stream.topic.id) for stream in of.values()}
    announced = dict(zip(topics, (yield from archives.read_all(keys, [*topics.items()])), strict=True))
    return {(name, index): _archived(announced[name], index) for name, index in of}


def _archived(announced: archives.Announcement | None, partition: int) -> Archived:
    range_ = announced.partitions.get(partition) if announced is not None else None
    return NOT_ARCHIVED if range_ is None else Archived(range_.start, range_.through)


def shifted(keys: Keyspace, partition: TopicPartition, offset: int, by: int) -> Question[int | None]:
    """The offset `by` records further on, or back where negative; None where there are not as many.

    Raises as `streams`.
    """
    found = yield from streams(keys, [partition])
    return (yield from counting.shifted(found[partition], offset, by))
