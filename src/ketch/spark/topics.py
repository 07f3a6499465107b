"""What the driver asks of Redis when it plans: which topics there are, and where each partition begins and ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ketch.config import Settings
from ketch.errors import UnknownTopicOrPartition
from ketch.records import DecodedBatch
from ketch.spark.connection import Connection
from ketch.spark.options import TopicPartition, Topics
from ketch.spark.reader import decode
from ketch.store import streams
from ketch.store.keys import Keyspace
from ketch.store.pipe import parse
from ketch.store.streams import StreamInfo
from ketch.store.topics import Topic, parse_topic
from ketch.topicconfig import defaults

_STEP = 1_000  # entries read at a time
_SHORT = 20_000  # entries that are read rather than bisected
_STRIDE_MAX = 64  # steps in one leap


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition as it was when the planner looked: offsets of the first record that may exist, behind the last."""

    topic: Topic
    index: int
    stream: bytes
    info: StreamInfo
    start: int
    end: int

    @property
    def length_between(self) -> float:
        """About how many records an offset more is worth."""
        first = self.start if self.info.first is None else self.topic.codec.to_offset(*self.info.first)
        return min(1.0, self.info.length / max(1, self.end - first))

    def about(self, start: int, end: int) -> int:
        """About how many records lie in a range; never more than there can be."""
        span = max(0, end - max(start, self.start))
        return 0 if not span else max(1, min(self.info.length, round(span * self.length_between)))


def named(connection: Connection, keys: Keyspace, names: Iterable[str]) -> list[Topic]:
    """The topics with these names; those that do not exist are left out."""
    names = list(names)
    commands: list[tuple[bytes | str | int, ...]] = []
    for name in names:
        commands += [("SISMEMBER", keys.topics, name), ("HGETALL", keys.topic(name))]
    replies = connection.calls(commands) if commands else []
    values = defaults(Settings.load())
    found = [parse_topic(name, replies[2 * i + 1], keys, values) for i, name in enumerate(names) if replies[2 * i]]
    return [topic for topic in found if topic is not None]


def wanted(connection: Connection, keys: Keyspace, topics: Topics) -> list[tuple[Topic, Sequence[int]]]:
    """The topics a reader asks for, each with its partitions; those that do not exist are left out.

    Raises:
        UnknownTopicOrPartition: a partition that was assigned does not exist, though its topic does.
    """
    if topics.assigned:
        found = {topic.name: topic for topic in named(connection, keys, dict.fromkeys(t for t, _ in topics.assigned))}
        for name, index in topics.assigned:
            if name in found and index >= found[name].partitions:
                raise UnknownTopicOrPartition(f"Topic {name} has {found[name].partitions} partitions, no {index}.")
        return [(topic, sorted({i for t, i in topics.assigned if t == name})) for name, topic in found.items()]
    names: Iterable[str] = topics.names
    if topics.pattern is not None:
        pattern = re.compile(topics.pattern)
        every = sorted(name.decode() for name in connection.call("SMEMBERS", keys.topics))
        names = [name for name in every if pattern.fullmatch(name)]
    return [(topic, range(topic.partitions)) for topic in named(connection, keys, names)]


def look(connection: Connection, keys: Keyspace, topics: Topics) -> dict[TopicPartition, Partition]:
    """Every partition a reader asks for, as it is now."""
    found = [
        (topic, index, keys.stream(topic.name, index))
        for topic, indexes in wanted(connection, keys, topics)
        for index in indexes
    ]
    connection.send(*(streams.info_command(stream) for _, _, stream in found))
    replies = [connection.reply() for _ in found]
    return {
        (topic.name, index): _partition(topic, index, stream, streams.parse_info(parse(reply)))
        for (topic, index, stream), reply in zip(found, replies, strict=True)
    }


def _partition(topic: Topic, index: int, stream: bytes, info: StreamInfo) -> Partition:
    # The rules of log.partition: the end lies behind the last id ever given, the start of an untrimmed log at the
    # topic's creation.
    end = max(topic.codec.to_offset(*info.last) + 1, topic.first_offset)
    start = end if info.first is None else topic.codec.to_offset(*info.first)
    if info.removed == 0:
        start = min(start, topic.first_offset)
    return Partition(topic, index, stream, info, start, end)


def entries(connection: Connection, partition: Partition, offset: int, count: int) -> list[DecodedBatch]:
    """At most `count` records from `offset` on."""
    connection.send(streams.range_command(partition.stream, partition.topic.codec, offset, count))
    return decode(connection.reply(), partition.topic.codec)


def first_at_or_after(connection: Connection, partition: Partition, timestamp: int) -> int | None:
    """The offset of the first record whose timestamp is `timestamp` ms or later; None if there is none.

    As ListOffsets does it: with time ids no record was appended before its timestamp, save by the topic's
    `timestampLead`; with dense ids a bisection, which is exact as long as timestamps rise.
    """
    topic, low = partition.topic, partition.start
    if not topic.codec.dense:
        low = max(low, (timestamp - topic.timestamp_lead) << topic.codec.bits)
    elif partition.info.length > _SHORT:
        low = _bisect(connection, partition, timestamp)
    while low < partition.end:
        connection.send(streams.range_command(partition.stream, topic.codec, low, _STEP))
        reply = connection.reply()
        batches = decode(reply, topic.codec)
        if not batches:
            return None
        if max(batch[3] for batch in batches) >= timestamp:
            return next(offset for offset, own in streams.read_timestamps(reply, topic.codec) if own >= timestamp)
        low = batches[-1][0] + batches[-1][1] + 1
    return None


def _bisect(connection: Connection, partition: Partition, timestamp: int) -> int:
    low, high = partition.start, partition.end - 1
    while low < high:
        middle = (low + high) // 2
        found = entries(connection, partition, middle, 1)
        if found and found[0][3] < timestamp:
            low = max(middle, found[0][0]) + 1
        else:
            high = middle
    return low


def boundary(connection: Connection, partition: Partition, start: int, records: int) -> int:
    """An offset with about `records` records between `start` and it: that of a record, or the partition's end.

    A walk would cost as much as the read itself. So some thousand are walked, then stretches are leapt over whose
    density is alike at both ends. At least one record lies below it, if there is one.
    """
    end = partition.end
    first = entries(connection, partition, start, 1) if start < end else []
    if not first:
        return end
    if partition.topic.codec.dense:
        return min(first[0][0] + records, end)
    position = _leap(connection, partition, first[0][0], records)
    found = entries(connection, partition, position, 1) if position < end else []
    return min(found[0][0], end) if found else end


def _leap(connection: Connection, partition: Partition, position: int, left: int) -> int:
    stride, density = 1, 0.0  # of the sample before, in records an offset
    while left > 0:
        size = min(left, _STEP)
        leap = 0
        if density and left > 3 * _STEP:
            leap = int(min(stride * _STEP, left - 2 * _STEP) / density)
        batches = entries(connection, partition, position + leap, size)
        count = sum(batch[4] for batch in batches)
        if count < size:
            if not leap:
                return partition.end
            stride, density = max(1, stride // 4), 0.0
            continue
        behind = batches[-1][0] + batches[-1][1] + 1
        here = count / (behind - position - leap)
        if leap and not 0.5 < here / density < 2.0:
            stride, density = max(1, stride // 4), 0.0  # walk until the density is steady again
            continue
        left -= count + round(leap * (here + density) / 2)
        position, density, stride = behind, here, min(2 * stride, _STRIDE_MAX)
    return position
