"""How far each partition is archived, and what its table holds: the facts of `ketch archive status`.

Questions to Redis alone: `announced` asks what the archive job has announced; `stored` goes by what `views.tables` has
read of the tables, which it does not open itself, so that whoever asks needs no pyiceberg.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ketch.configs.topic_checks import LazyDefaults
from ketch.redis.question import Question
from ketch.store.keys import Keyspace
from ketch.store.stream import counting, extents, isolation
from ketch.store.stream.extents import Extent
from ketch.store.stream.ranges import PartitionStream
from ketch.store.topics import archives, hashes
from ketch.store.topics.archives import ArchivedRange
from ketch.store.topics.topic import Topic

_COUNT_MAX = 200_000  # records that are counted rather than estimated
NOT_ITS_TABLE = "the table holds an earlier topic of this name"


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition. Offsets; None where nothing is archived.

    Attributes:
        start, through: what is archived, from the first up to the second, exclusive.
        end: the last stable offset: nothing from there on is archived yet.
        lag: how many records wait in Redis: exact for dense offsets, else an estimate above a bound.
        topic_records: how many records the table holds, the same for all its partitions.
        records, files, bytes: what the archive holds of this partition, None where only Redis was asked.
        note: a sentence's part for whoever looks, such as NOT_ITS_TABLE.
    """

    topic: str
    partition: int
    start: int | None
    through: int | None
    end: int
    lag: int
    topic_records: int = 0
    records: int | None = None
    files: int | None = None
    bytes: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a table holds of one partition: records, data files, and their bytes."""

    records: int = 0
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One topic's table.

    Attributes:
        own: whether it is this topic's; the rest is empty where it belongs to an earlier topic of that name.
        records: how many it holds.
        progress: by partition, the offsets that it answers for.
        contents: by partition.
    """

    own: bool
    records: int = 0
    progress: Mapping[int, ArchivedRange] = field(default_factory=dict)
    contents: Mapping[int, Contents] = field(default_factory=dict)


def topics(keys: Keyspace, names: Sequence[str]) -> Question[list[Topic]]:
    """The topics with these names, or every topic where none is named; those that do not exist are left out."""
    wanted = names or (yield from hashes.names(keys))
    found = yield from hashes.lookup(keys, wanted, LazyDefaults())
    return [topic for topic in found if topic is not None]


def look(keys: Keyspace, of: Iterable[Topic]) -> Question[list[Extent]]:
    """Every partition of these topics, sorted, as Redis has it: `end` is the last stable offset."""
    wanted = sorted((topic.name, index, topic) for topic in of for index in range(topic.partitions))
    streams = [PartitionStream.of(topic, index, keys) for _, index, topic in wanted]
    found = yield from extents.extents(streams, keys)
    transactions = yield from isolation.looks(streams, keys)  # after the extents: those of all these records
    return [
        replace(each, end=open_.last_stable(each.start, each.end))
        for each, open_ in zip(found, transactions, strict=True)
    ]


def announced(keys: Keyspace, names: Sequence[str]) -> Question[list[PartitionStatus]]:
    """The state that the archive job has announced of these topics, or of every topic; `lag` is estimated."""
    asked = yield from topics(keys, names)
    found = yield from look(keys, asked)
    known = yield from archives.read_all(keys, [(topic.name, str(topic.id)) for topic in asked])
    by_topic = {topic.name: each for topic, each in zip(asked, known, strict=True) if each is not None}
    statuses = []
    for each in found:
        announcement = by_topic.get(each.stream.topic.name)
        range_ = announcement.partitions.get(each.stream.index) if announcement else None
        status = _status(each, range_, extents.about_from(each, _waiting_from(each, range_)))
        statuses.append(replace(status, topic_records=announcement.records if announcement else 0))
    return statuses


def stored(of: Iterable[Extent], tables: Mapping[str, TableFacts]) -> Question[list[PartitionStatus]]:
    """The state in the tables; `lag` is counted up to some number, and estimated above.

    Args:
        of: what `look` gave.
        tables: by topic; there is none for a topic without a table.
    """
    statuses = []
    for each in of:
        table = tables.get(each.stream.topic.name)
        range_ = table.progress.get(each.stream.index) if table else None
        status = _status(each, range_, (yield from _lag(each, _waiting_from(each, range_))))
        statuses.append(_with_table(status, table))
    return statuses


def _status(of: Extent, range_: ArchivedRange | None, lag: int) -> PartitionStatus:
    start, through = (range_.start, range_.through) if range_ else (None, None)
    return PartitionStatus(of.stream.topic.name, of.stream.index, start, through, of.end, lag)


def _with_table(status: PartitionStatus, table: TableFacts | None) -> PartitionStatus:
    if table is None:
        return status
    if not table.own:
        return replace(status, note=NOT_ITS_TABLE)
    held = table.contents.get(status.partition, Contents())
    return replace(status, topic_records=table.records, records=held.records, files=held.files, bytes=held.bytes)


def _waiting_from(of: Extent, range_: ArchivedRange | None) -> int:
    """The offset of the first record that is not archived yet."""
    return of.start if range_ is None else max(range_.through, of.start)


def _lag(of: Extent, start: int) -> Question[int]:
    """How many records there are from `start` on: counted up to `_COUNT_MAX`, else estimated."""
    if of.stream.numbering.dense:
        return extents.about_from(of, start)
    counted = yield from counting.count(of.stream, start, of.end, _COUNT_MAX)
    return counted if counted < _COUNT_MAX else max(counted, extents.about_from(of, start))
