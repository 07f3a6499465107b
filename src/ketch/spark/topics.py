"""The questions that a planner asks: which topics there are, where each partition starts and ends, where a time lies.

It reads bounds and indexes, of Redis and of archives, and writes nothing. `spark.plan` and `archive.plan` decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ketch.configs.topic_checks import LazyDefaults
from ketch.errors import UnknownTopicOrPartition
from ketch.redis.driver import BlockingDriver
from ketch.spark.options import Tier, Topics
from ketch.spark.reader import StreamRange
from ketch.spark.tier import PartitionArchive, announced
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.stream import extents, isolation, search
from ketch.store.stream.boundary import boundary as hot_boundary
from ketch.store.stream.isolation import IsolationKeys, Transactions
from ketch.store.stream.ranges import EntrySizes, PartitionStream
from ketch.store.topics import hashes
from ketch.store.topics.topic import Topic
from ketch.store.xinfo import StreamInfo


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition as it was when the planner looked.

    `start` is the offset of the first record that may exist, `end` the one after the last.
    """

    stream: PartitionStream
    info: StreamInfo
    start: int
    end: int
    archive: PartitionArchive | None = None  # if it is to be read as well
    hot: bool = True  # whether Redis is to be read
    isolation: IsolationKeys | None = None  # see `reader.StreamRange`

    @property
    def topic(self) -> Topic:
        return self.stream.topic

    @property
    def index(self) -> int:
        return self.stream.index

    @property
    def first(self) -> int:
        """The offset of the first record in Redis; the end, where there is none to read."""
        first = self.stream.layout.start(self.info, self.topic.numbering) if self.hot else None
        return self.end if first is None else first

    @property
    def start_of_records(self) -> int:
        """The offset that no record lies below, archived or not."""
        return self.first if self.archive is None else min(self.first, self.archive.start)

    def span(self, start: int, end: int) -> StreamRange:
        """A range of it, for a task to read."""
        return StreamRange(self.stream, start, end, self.info, self.isolation)

    @property
    def log_end(self) -> int:
        """The high watermark. `end` lies below it where a transaction is open."""
        return max(self.end, self.topic.numbering.to_offset(*self.info.last) + 1)

    def most(self, start: int, end: int) -> int:
        """An upper bound of the number of records in a range."""
        offsets = max(0, end - max(start, self.start))
        if self.archive is not None and start < self.first:
            return offsets
        return extents.at_most(self.stream, self.info, offsets)

    @property
    def countable(self) -> bool:
        """Whether `about` estimates records. Where an entry holds any number of them, it only serves comparisons."""
        return self.topic.numbering.dense or self.stream.layout.entry_is_record

    def about(self, start: int, end: int) -> int:
        """An estimate of the number of records in a range, see `extents.about`."""
        log, most = (self.first, self.log_end), self.most(start, end)
        return extents.about(self.stream, self.info, (start, end), log, most)


def named(redis: BlockingDriver, keys: Keyspace, names: Iterable[str]) -> list[Topic]:
    """The topics with these names; those that do not exist are left out."""
    found = redis.ask(hashes.lookup(keys, list(names), LazyDefaults()))
    return [topic for topic in found if topic is not None]


def wanted(redis: BlockingDriver, keys: Keyspace, topics: Topics) -> list[tuple[Topic, Sequence[int]]]:
    """The topics a reader asks for, each with its partitions; those that do not exist are left out.

    Raises:
        UnknownTopicOrPartition: a partition that was assigned does not exist, though its topic does.
    """
    if topics.assigned:
        found = {topic.name: topic for topic in named(redis, keys, dict.fromkeys(t for t, _ in topics.assigned))}
        for name, index in topics.assigned:
            if name in found and index >= found[name].partitions:
                raise UnknownTopicOrPartition(f"Topic {name} has {found[name].partitions} partitions, no {index}.")
        return [(topic, sorted({i for t, i in topics.assigned if t == name})) for name, topic in found.items()]
    names: Iterable[str] = topics.names
    if topics.pattern is not None:
        pattern = re.compile(topics.pattern)
        names = [name for name in redis.ask(hashes.names(keys)) if pattern.fullmatch(name)]
    return [(topic, range(topic.partitions)) for topic in named(redis, keys, names)]


def look(redis: BlockingDriver, keys: Keyspace, topics: Topics, committed: bool) -> dict[TopicPartition, PartitionView]:
    """Every partition a reader asks for, as it is now.

    Args:
        committed: only committed records are read, so each ends at its last stable offset.
    """
    streams = [
        PartitionStream.of(topic, index, keys) for topic, indexes in wanted(redis, keys, topics) for index in indexes
    ]
    found = redis.ask(extents.extents(streams, keys))
    view = {
        (each.stream.topic.name, each.stream.index): PartitionView(each.stream, each.info, each.start, each.end)
        for each in found
    }
    if not committed:
        return view
    transactions = redis.ask(isolation.looks(streams, keys))  # after the extents: those of all these records
    return {
        key: _stable(partition, found, isolation.keys_of(keys, partition.stream.key))
        for (key, partition), found in zip(view.items(), transactions, strict=True)
    }


def _stable(partition: PartitionView, transactions: Transactions, keys: IsolationKeys) -> PartitionView:
    return replace(partition, end=transactions.last_stable(partition.start, partition.end), isolation=keys)


def with_archives(
    redis: BlockingDriver, keys: Keyspace, view: dict[TopicPartition, PartitionView], tier: Tier, catalog: str
) -> dict[TopicPartition, PartitionView]:
    """The partitions with their archives as `tier` asks; `catalog` as in `tier.announced`."""
    if tier == "hot":
        return view
    topics = {partition.topic.name: partition.topic for partition in view.values()}
    archives = announced(redis, keys, topics.values(), catalog)
    return {key: _with_archive(partition, archives.get(key), tier) for key, partition in view.items()}


def _with_archive(partition: PartitionView, archive: PartitionArchive | None, tier: Tier) -> PartitionView:
    if tier == "all":
        start = partition.start if archive is None else min(partition.start, archive.start)
        return replace(partition, archive=archive, start=start)
    if archive is None:
        return replace(partition, hot=False, start=partition.end)
    return replace(partition, archive=archive, hot=False, start=archive.start, end=archive.through)


def first_at_or_after(redis: BlockingDriver, partition: PartitionView, timestamp: int) -> int | None:
    """The offset of the first record whose timestamp is `timestamp` ms or later, as ListOffsets finds it; None if there
    is none.
    """
    low = partition.start
    if partition.archive is not None and low < partition.first:
        archived = partition.archive.cold().first_at_or_after(partition.index, timestamp, low, partition.first)
        if archived is not None or not partition.hot:
            return archived[0] if archived is not None else None
        low = partition.first
    stream, info = partition.stream, partition.info
    found = redis.ask(search.first_at_or_after(stream, EntrySizes.of(stream, info), info, low, timestamp))
    return None if found is None or found.offset >= partition.end else found.offset


def boundary(
    redis: BlockingDriver, partition: PartitionView, start: int, records: int, limit: int | None = None
) -> int:
    """An offset with about `records` records between `start` and it: that of a record, or `limit`.

    What lies from `limit` (the partition's end) on is not looked at, so the answer is the same whatever comes later. At
    least one record lies below the boundary, if there is one.
    """
    end = partition.end if limit is None else limit
    if partition.archive is not None and start < min(end, partition.first):
        return _archived_boundary(partition, partition.archive, (start, min(end, partition.first)), records)
    return redis.ask(hot_boundary(partition.stream, start, end, records))


def _archived_boundary(
    partition: PartitionView, archive: PartitionArchive, between: tuple[int, int], records: int
) -> int:
    """As `boundary`, from what the archive's index knows of its files; the seam is one, too."""
    start, end = between
    if partition.topic.numbering.dense:
        return min(start + records, end)
    for file in archive.cold().ranges(partition.index, start, end):
        if file.records > records:
            return min(end, max(start + 1, file.start + (file.end - file.start) * records // file.records))
        records -= file.records
    return end
