"""Share groups as their hashes have them, and where they stand on partitions. Questions to Redis alone.

The commands' Kafka library knows no share groups: it lists none, and takes one for a group that is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ketch.configs.topic_checks import LazyDefaults
from ketch.coordinator.share.config import ShareConfig
from ketch.coordinator.share.fields import from_fields
from ketch.coordinator.share.group import ShareGroup
from ketch.redis.question import Question
from ketch.store.coordination import groups
from ketch.store.coordination.sharing import pending, stored_ranges
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.offsets import ZERO
from ketch.store.stream import counting
from ketch.store.stream.ranges import PartitionStream
from ketch.store.topics import hashes

TYPE = "share"  # in a group's hash


@dataclass(frozen=True, slots=True)
class Position:
    """Where a share group stands on a partition.

    Attributes:
        start: the first offset that is not settled; None where nothing was delivered yet.
        lag: records from there on, those in flight or settled among them; None where `start` is.
    """

    start: int | None
    lag: int | None


def share_groups(keys: Keyspace) -> Question[dict[str, ShareGroup]]:
    """All share groups by name, as their coordinators have stored them."""
    names = yield from groups.names(keys)
    kinds = yield from groups.types(keys, names)
    found = {}
    for name in (name for name in names if kinds[name] == TYPE):
        group = yield from share_group(keys, name)
        if group is not None:
            found[name] = group
    return found


def share_group(keys: Keyspace, name: str) -> Question[ShareGroup | None]:
    """The share group of this name; None where there is none."""
    fields = yield from groups.load(keys, name)
    return read(name, fields) if fields.get("type") == TYPE else None


def read(name: str, fields: Mapping[str, str]) -> ShareGroup:
    """The share group whose hash has these fields; raises as `coordinator.share.fields.from_fields`."""
    return from_fields(name, fields, ShareConfig(), 0.0)


def positions(keys: Keyspace, group: ShareGroup) -> Question[dict[TopicPartition, Position]]:
    """Where the group stands on each partition that it has begun to read."""
    found = {}
    for stream in (yield from begun(keys, group)):
        start = yield from first_unsettled(keys, stream, group.id)
        lag = None if start is None else (yield from counting.count(stream, start))
        found[stream.topic.name, stream.index] = Position(start, lag)
    return found


def begun(keys: Keyspace, group: ShareGroup) -> Question[list[PartitionStream]]:
    """The partitions of the topics that the group has begun to read, and that there are still."""
    known = yield from hashes.lookup(keys, sorted(group.begun), LazyDefaults())
    topics = [topic for topic in known if topic is not None and str(topic.id) == group.begun[topic.name].id]
    return [
        PartitionStream.of(topic, index, keys)
        for topic in topics
        for index in range(min(topic.partitions, group.begun[topic.name].partitions))
    ]


def first_unsettled(keys: Keyspace, stream: PartitionStream, group: str) -> Question[int | None]:
    """The first offset that a share group has not settled; None where nothing was delivered to it yet."""
    if stream.layout.entry_is_record:
        first = yield from pending.first(stream.key, group)
        if first is None:
            return None
        return 0 if first == ZERO else stream.numbering.to_offset(*first)
    return (yield from stored_ranges.start(keys.shares(stream.key), group))
