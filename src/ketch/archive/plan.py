"""Plans the archive job: which ranges of which partitions are in Redis and not yet in their tables.

The tables' own properties say how far a partition is archived. Spark's checkpoint decides only that a batch runs, not
what is in it, so a lost or outdated checkpoint changes nothing. This module writes no records.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pyiceberg.exceptions import NoSuchTableError

from ketch.archive.options import Ends, Job
from ketch.archive.tables import announce, catalog_of, source_of
from ketch.lake.files import Target
from ketch.lake.table import ArchiveConflict, ArchiveTable, Progress, Source
from ketch.redis.driver import BlockingDriver
from ketch.spark.reader import StreamRange
from ketch.spark.topics import PartitionView, boundary, look
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.stream import counting
from ketch.store.topics.topic import Topic

log = logging.getLogger(__name__)

BATCH_RECORDS = 1_000_000  # of one partition in a micro-batch, about
SPLIT_RECORDS = 250_000  # of one task and its file, about


@dataclass(frozen=True, slots=True)
class Split:
    """One task: a range of a partition, and where its rows go."""

    source: Source
    partition: int
    span: StreamRange
    target: Target


class Waiting(NamedTuple):
    """A backlog: how many records, about how many bytes of Redis entries, of how many topics."""

    records: int
    bytes: int
    topics: int


class ArchivePlanner:
    """Compares Redis with the tables. Lives as long as the job and keeps the tables it has opened."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._keys = Keyspace(job.keyspace)
        self._catalog = catalog_of(job)
        self._tables: dict[str, ArchiveTable] = {}
        self._refused: set[str] = set()
        self._warned: set[TopicPartition] = set()
        # Of each partition: ends of the log that were seen, each with the stream's entries-added at that time.
        self._marks: dict[TopicPartition, dict[int, int]] = {}

    def now(self, redis: BlockingDriver) -> Ends:
        """Where each partition ends."""
        ends: Ends = {}
        for (topic, index), partition in self._look(redis).items():
            ends.setdefault(topic, {})[str(index)] = partition.end
        return ends

    def waiting(self, redis: BlockingDriver, ends: Ends, most: int) -> Waiting:
        """What is not archived up to these ends, counted until it is more than `most` records."""
        records = size = 0
        topics: set[str] = set()
        for (topic, index), partition in sorted(self._look(redis).items()):
            end = min(partition.end, ends.get(topic, {}).get(str(index), 0))
            low = self._low(redis, partition, end)
            if low is None or low >= end or records > most:
                continue
            start = max(low, partition.start)
            here = end - start
            if not partition.topic.numbering.dense:
                here = redis.ask(counting.count(partition.stream, start, end, most + 1 - records))
            records += here
            size += min(here, partition.info.length) * partition.info.entry_bytes
            topics |= {topic} if here else set()
        return Waiting(records, size, len(topics))

    def ends(self, redis: BlockingDriver, target: Ends | None) -> Ends:
        """Up to which offset of each partition the next batch goes: a batch's worth after what is archived.

        Args:
            target: where all batches together are to end; None for the end as it is now.
        """
        ends: Ends = {}
        for (topic, index), partition in sorted(self._look(redis).items()):
            end = partition.end if target is None else target.get(topic, {}).get(str(index), 0)
            low = self._low(redis, partition, end)
            if not self._job.whole and low is not None and low < end and partition.about(low, end) > BATCH_RECORDS:
                end = min(end, boundary(redis, partition, low, BATCH_RECORDS))
            ends.setdefault(topic, {})[str(index)] = end
        return ends

    def splits(self, redis: BlockingDriver, ends: Ends) -> list[Split]:
        """The tasks of a batch."""
        splits: list[Split] = []
        for (topic, index), partition in sorted(self._look(redis).items()):
            end = min(partition.end, ends.get(topic, {}).get(str(index), 0))
            low = self._low(redis, partition, end, fresh=True)
            if low is not None and low < end:
                splits += self._cut(redis, partition, low, end)
        return splits

    def _look(self, redis: BlockingDriver) -> dict[TopicPartition, PartitionView]:
        return look(redis, self._keys, self._job.wanted, committed=True)

    def _low(self, redis: BlockingDriver, partition: PartitionView, end: int, fresh: bool = False) -> int | None:
        """The next offset to archive; None where the topic cannot be archived."""
        topic = partition.topic
        table = self._table(redis, topic)
        if table is None:
            return None
        progress = table.progress().get(partition.index)
        if progress is None or progress.through < end or fresh:
            try:
                table.table.refresh()
            except NoSuchTableError:  # dropped meanwhile: the archive of the topic begins again
                del self._tables[topic.name]
                return self._low(redis, partition, end)
            progress = table.progress().get(partition.index)
        if progress is None:
            return partition.start
        self._warn(partition, progress)
        return progress.through

    def _table(self, redis: BlockingDriver, topic: Topic) -> ArchiveTable | None:
        known = self._tables.get(topic.name)
        if known is not None and known.belongs_to(source_of(topic)):
            return known
        try:
            table = ArchiveTable.open(self._catalog, source_of(topic))
        except ArchiveConflict as error:
            if str(error) not in self._refused:
                self._refused.add(str(error))
                log.error("%s", error)
            return None
        announce(redis, self._keys, table)  # the last run may have ended between its commit and its announcement
        self._tables[topic.name] = table
        return table

    def _warn(self, partition: PartitionView, progress: Progress) -> None:
        key = (partition.topic.name, partition.index)
        lost = self._lost(key, partition, progress)
        if key in self._warned:
            return
        name = f"{key[0]}-{key[1]}"
        if partition.end < progress.through:
            self._warned.add(key)
            log.error("%s ends at offset %d but is archived up to %d: has Redis lost records?", name, partition.end,
                      progress.through)  # fmt: skip
        elif lost:
            self._warned.add(key)
            log.warning("records of %s from offset %d to %d were deleted before they were archived", name,
                        progress.through, partition.start)  # fmt: skip

    def _lost(self, key: TopicPartition, partition: PartitionView, progress: Progress) -> bool:
        """Whether records were removed before they were archived.

        With time ids a gap after the archived records says nothing. There records were lost only if more entries were
        removed than had been added when the archived-through offset was the log's end.
        """
        info, through = partition.info, progress.through
        if info.added is None or info.removed is None:  # before Redis 7
            return False
        known = {end: added for end, added in self._marks.get(key, {}).items() if end >= through}
        # Behind an open transaction there are entries beyond the end, which would count as added before it.
        self._marks[key] = known | ({partition.end: info.added} if partition.end == partition.log_end else {})
        if info.first is None or partition.start <= through:
            return False
        if partition.topic.numbering.dense:
            return info.removed > 0
        return through in known and info.removed > known[through]

    def _cut(self, redis: BlockingDriver, partition: PartitionView, low: int, end: int) -> Iterable[Split]:
        table = self._tables[partition.topic.name]
        source, target = source_of(partition.topic), table.target
        size = partition.about(low, end)
        pieces = max(1, min(-(-size // SPLIT_RECORDS), 2 * self._job.tasks))
        while low < end:
            pieces -= 1
            middle = end if pieces <= 0 else min(end, boundary(redis, partition, low, size // (pieces + 1)))
            yield Split(source, partition.index, partition.span(low, middle), target)
            size -= size // (pieces + 1)
            low = middle
