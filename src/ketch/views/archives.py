"""How far each partition is archived, and what its table holds: the facts of `ketch archive status`.

Questions to Redis alone: `announced` asks what the archive job has announced; `stored` goes by what `views.tables` has
read of the tables, which it does not open itself, so that whoever asks needs no pyiceberg.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ketch.configs.topic_checks import LazyDefaults
from ketch.errors import ConfigError
from ketch.redis.question import Question
from ketch.store.keys import Keyspace
from ketch.store.stream import counting, extents, isolation
from ketch.store.stream.extents import Extent
from ketch.store.stream.ranges import PartitionStream
from ketch.store.topics import archives, hashes
from ketch.store.topics.archives import Announcement, ArchivedRange
from ketch.store.topics.topic import Topic

PARTITIONS_MAX = 2_000  # of a list whose waiting records are looked up
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


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    """A topic with an archive.

    Attributes:
        partitions: of the topic.
        announced: what the archive job announced last.
        waiting: how many records wait in Redis, about; None where the page has too many partitions to look at them all.
    """

    name: str
    partitions: int
    announced: Announcement
    waiting: int | None


def existing(keys: Keyspace, names: Sequence[str]) -> Question[list[str]]:
    """Those of the topics of which something was archived."""
    return (yield from archives.existing(keys, names))


def announcements(keys: Keyspace, names: Sequence[str]) -> Question[dict[str, Announcement]]:
    """What is announced of these topics, by topic; in two round trips."""
    return {topic.name: each for topic, each in (yield from _announced(keys, names))}


def rows(keys: Keyspace, names: Sequence[str]) -> Question[list[ArchivedTopic]]:
    """These topics with their archives; records that wait are looked up of `PARTITIONS_MAX` partitions at most."""
    found = yield from _announced(keys, names)
    chosen, left = [], PARTITIONS_MAX
    for topic, _ in found:
        left -= topic.partitions
        if left < 0:
            break
        chosen.append(topic)
    waiting = dict.fromkeys((topic.name for topic in chosen), 0)
    known = {topic.name: each for topic, each in found}
    for extent in (yield from look(keys, chosen)):
        name = extent.stream.topic.name
        range_ = known[name].partitions.get(extent.stream.index)
        waiting[name] += extents.about_from(extent, _waiting_from(extent, range_))
    return [ArchivedTopic(topic.name, topic.partitions, each, waiting.get(topic.name)) for topic, each in found]


def page(keys: Keyspace, name: str, first: int, count: int) -> Question[tuple[ArchivedTopic, list[PartitionStatus]]]:
    """A topic's archive, and `count` of its partitions from `first` on.

    Raises:
        ConfigError: nothing is archived of a topic of this name.
    """
    found = yield from _announced(keys, [name])
    if not found:
        raise ConfigError(f"Nothing of a topic {name} is archived.")
    ((topic, announcement),) = found
    indexes = range(max(0, first), min(topic.partitions, max(0, first) + count))
    shown = yield from ends([PartitionStream.of(topic, index, keys) for index in indexes], keys)
    return ArchivedTopic(name, topic.partitions, announcement, None), [_by(announcement, each) for each in shown]


def _announced(keys: Keyspace, names: Sequence[str]) -> Question[list[tuple[Topic, Announcement]]]:
    """The topics with what is announced of them, of those of which anything is."""
    asked = [each for each in (yield from hashes.lookup(keys, names, LazyDefaults())) if each is not None]
    found = yield from archives.read_all(keys, [(topic.name, str(topic.id)) for topic in asked])
    return [(topic, each) for topic, each in zip(asked, found, strict=True) if each is not None]


def topics(keys: Keyspace, names: Sequence[str]) -> Question[list[Topic]]:
    """The topics with these names, or every topic where none is named; those that do not exist are left out."""
    wanted = names or (yield from hashes.names(keys))
    found = yield from hashes.lookup(keys, wanted, LazyDefaults())
    return [topic for topic in found if topic is not None]


def look(keys: Keyspace, of: Iterable[Topic]) -> Question[list[Extent]]:
    """Every partition of these topics, sorted, as Redis has it: `end` is the last stable offset."""
    wanted = sorted((topic.name, index, topic) for topic in of for index in range(topic.partitions))
    streams = [PartitionStream.of(topic, index, keys) for _, index, topic in wanted]
    return (yield from ends(streams, keys))


def ends(of: Sequence[PartitionStream], keys: Keyspace) -> Question[list[Extent]]:
    """These partitions as Redis has them: `end` is the last stable offset."""
    found = yield from extents.lean(of, keys)
    transactions = yield from isolation.looks(of, keys)  # after the extents: those of all these records
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
        statuses.append(_by(by_topic.get(each.stream.topic.name), each))
    return statuses


def _by(announcement: Announcement | None, of: Extent) -> PartitionStatus:
    """A partition's state by what is announced of its topic."""
    range_ = announcement.partitions.get(of.stream.index) if announcement else None
    status = _status(of, range_, extents.about_from(of, _waiting_from(of, range_)))
    return replace(status, topic_records=announcement.records if announcement else 0)


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
