"""Where a group stands on its partitions: what it has committed, and how far that is behind the log, in records and in
seconds. Questions to Redis alone.

Lag in records may have to be counted. A `Budget` bounds how many records are counted for one view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ketch.clock import now_ms
from ketch.configs.topic_checks import LazyDefaults
from ketch.redis.question import Question
from ketch.store.coordination import commits, native
from ketch.store.coordination.commits import Committed
from ketch.store.coordination.native import NativeGroup
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.stream import extents, glances
from ketch.store.stream.extents import Extent
from ketch.store.stream.ranges import PartitionStream
from ketch.store.topics import hashes
from ketch.views import lag, share_groups

COUNT_MAX = 100_000  # records that one view counts
_LARGE = 8 << 20  # bytes of an entry, of which none is read for a view
_COUNT_LEAST = 1_000  # of one partition, whatever was counted before


@dataclass(slots=True)
class Budget:
    """How many records a view may count yet.

    Attributes:
        estimates: whether a lag that was not counted to its end is estimated; else it is what was counted.
    """

    left: int = COUNT_MAX
    estimates: bool = False

    @property
    def most(self) -> int:
        """How many of the next partition."""
        return max(_COUNT_LEAST, self.left)


@dataclass(frozen=True, slots=True)
class Measured:
    """One partition's log, offsets, and how far a group is behind it; see `groups.GroupPartition`."""

    start: int
    end: int
    lag: int | None
    counted: bool
    age: float | None


def shares(fields: Mapping[str, str]) -> bool:
    """Whether these are the fields of a share group."""
    return fields.get("type") == share_groups.TYPE


def partitions_of(keys: Keyspace, name: str, fields: Mapping[str, str]) -> Question[list[TopicPartition]]:
    """Those that the group has committed for; of a share group those that it has begun to read."""
    if not shares(fields):
        return (yield from commits.partitions(keys, name))
    try:
        group = share_groups.read(name, fields)
    except (ValueError, KeyError, TypeError):  # another client wrote it
        return []
    return [(stream.topic.name, stream.index) for stream in (yield from share_groups.begun(keys, group))]


def committed_of(
    keys: Keyspace, name: str, fields: Mapping[str, str], of: Mapping[TopicPartition, Extent]
) -> Question[dict[TopicPartition, Committed]]:
    """What the group has committed for these partitions, see `groups.GroupPartition.committed`."""
    if not shares(fields):
        return (yield from commits.committed(keys, name, of))
    found = {}
    for partition, extent in of.items():
        start = yield from share_groups.first_unsettled(keys, extent.stream, name)
        if start is not None:
            found[partition] = Committed(start)
    return found


def extents_of(keys: Keyspace, partitions: Iterable[TopicPartition]) -> Question[dict[TopicPartition, Extent]]:
    """Those of partitions that exist; a topic that is gone leaves commits behind for a while."""
    wanted = list(partitions)
    topics = yield from hashes.lookup(keys, list(dict.fromkeys(topic for topic, _ in wanted)), LazyDefaults())
    known = {topic.name: topic for topic in topics if topic is not None}
    there = [(name, n) for name, n in wanted if name in known and n < known[name].partitions]
    found = yield from extents.lean([PartitionStream.of(known[name], n, keys) for name, n in there], keys)
    return dict(zip(there, found, strict=True))


def natives_of(group: str, of: Mapping[TopicPartition, Extent]) -> Question[dict[TopicPartition, NativeGroup]]:
    """The native groups of those partitions that have one."""
    found = yield from native.named([extent.stream.key for extent in of.values()], group)
    return {partition: known for partition, known in zip(of, found, strict=True) if known is not None}


def measured(
    of: Mapping[TopicPartition, Extent],
    committed: Mapping[TopicPartition, Committed],
    natives: Mapping[TopicPartition, NativeGroup],
    budget: Budget,
) -> Question[dict[TopicPartition, Measured]]:
    """Each of these partitions with how far the group is behind."""
    found = {}
    for partition, extent in of.items():
        commit = committed.get(partition)
        if commit is None:
            found[partition] = Measured(extent.start, extent.end, None, True, None)
            continue
        heavy = extent.info.entry_bytes > _LARGE
        if heavy and extent.start < commit.offset < extent.end and not extent.stream.numbering.dense:
            # To count entries, or to look at one, Redis reads them: what is said is that there are some.
            records, counted = extents.about_from(extent, commit.offset) if budget.estimates else 1, False
        else:
            records, counted = yield from behind(extent, natives.get(partition), commit.offset, budget)
        age = (yield from _age(extent, commit.offset)) if records and not heavy else None
        found[partition] = Measured(extent.start, extent.end, records, counted, age)
    return found


def behind(of: Extent, known: NativeGroup | None, offset: int, budget: Budget) -> Question[tuple[int, bool]]:
    """Records from an offset on, and whether that is all; no question where the log itself has the answer."""
    if offset >= of.end:
        return 0, True
    if of.stream.numbering.dense:
        return lag.dense_lag(offset, of.start, of.end), True
    if of.stream.layout.entry_is_record and offset <= of.start:
        return of.info.length, True
    most = budget.most
    counted = yield from lag.lag(of.stream, known, offset, most)
    budget.left -= counted
    if counted >= most and budget.estimates:
        return max(counted, extents.about_from(of, offset)), False
    return counted, counted < most


def _age(of: Extent, offset: int) -> Question[float | None]:
    """How old the first record from an offset on is, by its timestamp, s."""
    step = yield from glances.forward(of.stream, offset, of.info.entry_bytes, 1, 1)
    stamps = [record.timestamp for record in step.found if record.timestamp >= 0]
    return None if not stamps else max(0.0, (now_ms() - stamps[0]) / 1000)
