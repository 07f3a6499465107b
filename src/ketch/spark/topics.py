"""What the driver asks of Redis when it plans: which topics there are, and where each partition begins and ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ketch.errors import UnknownTopicOrPartition
from ketch.spark.connection import Connection
from ketch.spark.options import Tier, TopicPartition, Topics
from ketch.spark.reader import Span
from ketch.spark.tier import Archive, announced
from ketch.store import streams
from ketch.store.keys import Keyspace
from ketch.store.layout import Chunk, Layout
from ketch.store.pipe import parse
from ketch.store.streams import StreamInfo
from ketch.store.topics import Topic, lookups, read_lookups
from ketch.topicconfig import defaults

_STEP = 1_000  # entries read at a time
_SHORT = 20_000  # entries that are read rather than bisected
_STRIDE_MAX = 64  # steps in one leap
_DENSE = 1 / 16  # records an offset, from which on leaps are made
_SMALL = 10_000  # records that are counted rather than leapt over


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition as it was when the planner looked: offsets of the first record that may exist, behind the last."""

    topic: Topic
    index: int
    stream: bytes
    info: StreamInfo
    start: int
    end: int
    archive: Archive | None = None  # if it is to be read as well
    hot: bool = True  # whether Redis is to be read

    @property
    def layout(self) -> Layout:
        return self.topic.layout

    @property
    def first(self) -> int:
        """The offset of the first record in Redis; the end, where there is none to read."""
        first = self.layout.start(self.info, self.topic.codec) if self.hot else None
        return self.end if first is None else first

    @property
    def start_of_records(self) -> int:
        """The offset that no record lies below, archived or not."""
        return self.first if self.archive is None else min(self.first, self.archive.start)

    def span(self, start: int, end: int) -> Span:
        """A range of it, for a task to read."""
        topic = self.topic
        return Span(self.stream, topic.codec, self.layout, start, end, self.info, topic.largest_record)

    def most(self, start: int, end: int) -> int:
        """No more records than that lie in a range."""
        span = max(0, end - max(start, self.start))
        if self.archive is not None and start < self.first:
            return span
        # An entry may hold many records where it is a batch.
        return min(span, self.info.length) if self.topic.configs["storage.layout"] == "record" else span

    @property
    def countable(self) -> bool:
        """Whether `about` is good for more than comparisons: else an entry holds any number of records."""
        return self.topic.codec.dense or self.topic.configs["storage.layout"] == "record"

    def about(self, start: int, end: int) -> int:
        """About how many records lie in a range: with time ids a guess from the average density."""
        most = self.most(start, end)
        if self.topic.codec.dense or not most:
            return most
        if self.info.first is None:
            return 0
        in_first_entry = self.topic.codec.to_offset(*self.info.first) - self.first + 1
        density = self.info.length * in_first_entry / max(1, self.end - self.first)
        return max(1, min(most, round(density * (end - max(start, self.first)))))


class _Defaults(Mapping[str, str]):
    """What a topic that was made by hand does not say. The broker's settings, as far as they are in the environment."""

    def __getitem__(self, name: str) -> str:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @cached_property
    def _all(self) -> dict[str, str]:
        from ketch.config import Settings  # takes a fifth of a second, and every topic that Ketch made says everything

        return defaults(Settings.load())


def named(connection: Connection, keys: Keyspace, names: Iterable[str]) -> list[Topic]:
    """The topics with these names; those that do not exist are left out."""
    names = list(names)
    replies = connection.calls(lookups(keys, names)) if names else []
    return [topic for topic in read_lookups(names, replies, keys, _Defaults()) if topic is not None]


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
    connection.send(*(topic.layout.info_command(stream) for topic, _, stream in found))
    infos = [streams.parse_info(parse(reply)) for reply in [connection.reply() for _ in found]]
    return {
        (topic.name, index): Partition(topic, index, stream, info, *topic.extent(info))
        for (topic, index, stream), info in zip(found, infos, strict=True)
    }


def with_archives(
    connection: Connection, keys: Keyspace, view: dict[TopicPartition, Partition], tier: Tier, catalog: str
) -> dict[TopicPartition, Partition]:
    """The partitions with what their archives hold, or with nothing else; `catalog` as in `tier.announced`."""
    if tier == "hot":
        return view
    topics = {partition.topic.name: partition.topic for partition in view.values()}
    archives = announced(connection, keys, topics.values(), catalog)
    return {key: _with_archive(partition, archives.get(key), tier) for key, partition in view.items()}


def _with_archive(partition: Partition, archive: Archive | None, tier: Tier) -> Partition:
    if tier == "all":
        start = partition.start if archive is None else min(partition.start, archive.start)
        return replace(partition, archive=archive, start=start)
    if archive is None:
        return replace(partition, hot=False, start=partition.end)
    return replace(partition, archive=archive, hot=False, start=archive.start, end=archive.through)


def entries(connection: Connection, partition: Partition, offset: int, count: int, end: int | None = None) -> Chunk:
    """At most `count` entries from the one on that holds `offset`, to that with the record before `end`."""
    layout, codec = partition.layout, partition.topic.codec
    connection.send(layout.range_command(partition.stream, codec, offset, count, end))
    return layout.read(connection.reply(), codec, 1 << 62, log_append_time=False)


def first_at_or_after(connection: Connection, partition: Partition, timestamp: int) -> int | None:
    """The offset of the first record whose timestamp is `timestamp` ms or later; None if there is none.

    As ListOffsets does it: with time ids no record was appended before its timestamp, save by the topic's
    `timestampLead`; with dense ids a bisection, which is exact as long as timestamps rise.
    """
    topic, low = partition.topic, partition.start
    if partition.archive is not None and low < partition.first:
        archived = partition.archive.cold().first_at_or_after(partition.index, timestamp, low, partition.first)
        if archived is not None or not partition.hot:
            return archived[0] if archived is not None else None
        low = partition.first
    if not topic.codec.dense:
        low = max(low, (timestamp - topic.timestamp_lead) << topic.codec.bits)
    elif partition.info.length > _SHORT:
        low = _bisect(connection, partition, timestamp)
    while low < partition.end:
        chunk = entries(connection, partition, low, _STEP)
        if not chunk:
            return None
        if chunk.max_timestamp >= timestamp:
            found = next((offset for offset, _ in chunk.timestamps(timestamp) if offset >= low), None)
            if found is not None:
                return found
        low = chunk.end
    return None


def _bisect(connection: Connection, partition: Partition, timestamp: int) -> int:
    low, high = partition.start, partition.end - 1
    while low < high:
        middle = (low + high) // 2
        found = entries(connection, partition, middle, 1)
        if found and found.max_timestamp < timestamp:
            low = max(middle, found.base) + 1
        else:
            high = middle
    return low


def boundary(connection: Connection, partition: Partition, start: int, records: int, limit: int | None = None) -> int:
    """An offset with about `records` records between `start` and it: that of a record, or `limit`.

    What lies from `limit` (the partition's end) on is not looked at, so the answer is the same whatever comes later.

    A walk costs half of what the read itself does. So where many are wanted and lie close, stretches are leapt over
    whose density is alike at both ends; a burst that such a leap hides has at most as many records as there are offsets
    in it. At least one record lies below the boundary, if there is one.
    """
    end = partition.end if limit is None else limit
    if partition.archive is not None and start < min(end, partition.first):
        return _archived_boundary(partition, partition.archive, (start, min(end, partition.first)), records)
    first = entries(connection, partition, start, 1, end) if start < end else None
    if not first:
        return end
    low = max(start, first.base)
    if partition.topic.codec.dense:
        return min(low + records, end)
    position = _leap(connection, partition, (low, end), records, first.records)
    found = entries(connection, partition, position, 1, end) if position < end else None
    return min(max(position, found.base), end) if found else end


def _archived_boundary(partition: Partition, archive: Archive, between: tuple[int, int], records: int) -> int:
    """As `boundary`, from what the archive's index knows of its files; the seam is one, too."""
    start, end = between
    if partition.topic.codec.dense:
        return min(start + records, end)
    for file in archive.cold().ranges(partition.index, start, end):
        if file.records > records:
            return min(end, max(start + 1, file.start + (file.end - file.start) * records // file.records))
        records -= file.records
    return end


def _leap(connection: Connection, partition: Partition, between: tuple[int, int], left: int, per_entry: int) -> int:
    position, end = between
    stride, density = 1, 0.0  # of the sample before, in records an offset
    while left > 0:
        size = max(1, min(left, _STEP) // per_entry)
        leap = 0
        if density > _DENSE and left > _SMALL:
            leap = int(min(stride * _STEP, left - 2 * _STEP) / density)
        if position + leap >= end:
            leap = 0
        chunk = entries(connection, partition, position + leap, size, end)
        if chunk.entries < size and not leap:
            return end
        begin = position + leap
        count = chunk.records - max(0, begin - chunk.base)  # a batch may begin before
        here = count / (chunk.end - begin) if chunk else 0.0
        if chunk.entries < size or (leap and not 0.5 < here / density < 2.0):
            stride, density = max(1, stride // 4), 0.0  # walk until the density is steady again
            continue
        left -= count + round(leap * (here + density) / 2)
        position, density, stride = chunk.end, here, min(2 * stride, _STRIDE_MAX)
        per_entry = max(1, chunk.records // chunk.entries)
    return position + min(left, 0)  # what is too much lies within the last batch
