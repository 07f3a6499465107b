"""What the archive job has to do: which ranges of which partitions lie in Redis and not in their tables.

The tables are the truth. Spark's checkpoint only makes a batch happen; what is in it comes from the tables' own
properties, so that a lost or outdated checkpoint changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.exceptions import NoSuchTableError

from ketch.errors import KetchError
from ketch.lake.catalog import open_catalog
from ketch.lake.files import Target
from ketch.lake.table import ArchiveConflict, ArchiveTable, Progress, Source
from ketch.spark.archive_options import Ends, Job
from ketch.spark.connection import Connection, connected
from ketch.spark.options import TopicPartition
from ketch.spark.reader import Span
from ketch.spark.topics import Partition, boundary, look, wanted
from ketch.store.keys import Keyspace
from ketch.store.topics import Topic

log = logging.getLogger(__name__)

BATCH_RECORDS = 1_000_000  # of one partition in a micro-batch, about
_SPLIT_RECORDS = 250_000  # a task and a file for each so many, about

# KEYS archive hash. ARGV updated, topic id, field, value, ... A late announcement does not undo a later one.
_ANNOUNCE = """
local known=redis.call('HMGET',KEYS[1],'updated','topic-id')
if known[2] and known[2]~=ARGV[2] then redis.call('DEL',KEYS[1])
elseif known[1] and tonumber(known[1])>tonumber(ARGV[1]) then return 0 end
redis.call('HSET',KEYS[1],'updated',ARGV[1],'topic-id',ARGV[2],unpack(ARGV,3))
return 1"""


@dataclass(frozen=True, slots=True)
class Split:
    """One task: a range of a partition, and where its rows go."""

    source: Source
    partition: int
    span: Span
    target: Target


def source_of(topic: Topic) -> Source:
    """The topic as its table knows it."""
    return Source(topic.name, str(topic.id), "dense" if topic.codec.dense else "time", topic.codec.bits)


def announce(connection: Connection, keys: Keyspace, table: ArchiveTable) -> None:
    """Tells the brokers what the table holds; nothing, if the topic is gone."""
    known = connection.call("HGET", keys.topic(table.topic), "id")
    if known is None or known.decode() != table.topic_id:
        return
    fields: list[str | int] = ["table", ".".join(table.table.name()), "metadata", table.metadata_location]
    snapshot = table.table.current_snapshot()
    fields += ["manifests", snapshot.manifest_list if snapshot else "", "records", table.records]
    for partition, progress in table.progress().items():
        fields += [f"start:{partition}", progress.start, f"through:{partition}", progress.through]
    connection.call("EVAL", _ANNOUNCE, 1, keys.archive(table.topic), table.updated, table.topic_id, *fields)


class Planner:
    """Compares Redis with the tables. Lives as long as the job and keeps the tables it has opened."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._keys = Keyspace(job.keyspace)
        self._catalog = open_catalog(job.catalog, Path(job.data_dir))
        self._tables: dict[str, ArchiveTable] = {}
        self._refused: set[str] = set()
        self._warned: set[TopicPartition] = set()
        # Ends of logs as they were seen, with the entries that had been added up to there.
        self._marks: dict[TopicPartition, dict[int, int]] = {}

    def now(self, connection: Connection) -> Ends:
        """Where each partition ends."""
        ends: Ends = {}
        for (topic, index), partition in self._look(connection).items():
            ends.setdefault(topic, {})[str(index)] = partition.end
        return ends

    def ends(self, connection: Connection, target: Ends | None) -> Ends:
        """Up to which offset of each partition the next batch goes: a batch's worth behind what is archived.

        Args:
            target: where all batches together are to end; None for the end as it is now.
        """
        ends: Ends = {}
        for (topic, index), partition in sorted(self._look(connection).items()):
            end = partition.end if target is None else target.get(topic, {}).get(str(index), 0)
            low = self._low(connection, partition, end)
            if not self._job.whole and low is not None and low < end and partition.about(low, end) > BATCH_RECORDS:
                end = min(end, boundary(connection, partition, low, BATCH_RECORDS))
            ends.setdefault(topic, {})[str(index)] = end
        return ends

    def splits(self, connection: Connection, ends: Ends) -> list[Split]:
        """The tasks of a batch."""
        splits: list[Split] = []
        for (topic, index), partition in sorted(self._look(connection).items()):
            end = min(partition.end, ends.get(topic, {}).get(str(index), 0))
            low = self._low(connection, partition, end, fresh=True)
            if low is not None and low < end:
                splits += self._cut(connection, partition, low, end)
        return splits

    def _look(self, connection: Connection) -> dict[TopicPartition, Partition]:
        return look(connection, self._keys, self._job.wanted)

    def _low(self, connection: Connection, partition: Partition, end: int, fresh: bool = False) -> int | None:
        """The next offset to archive; None where the topic cannot be archived."""
        topic = partition.topic
        table = self._table(connection, topic)
        if table is None:
            return None
        progress = table.progress().get(partition.index)
        if progress is None or progress.through < end or fresh:
            try:
                table.table.refresh()
            except NoSuchTableError:  # dropped meanwhile: it begins anew
                del self._tables[topic.name]
                return self._low(connection, partition, end)
            progress = table.progress().get(partition.index)
        if progress is None:
            return partition.start
        self._warn(partition, progress)
        return progress.through

    def _table(self, connection: Connection, topic: Topic) -> ArchiveTable | None:
        known = self._tables.get(topic.name)
        if known is not None and known.topic_id == str(topic.id):
            return known
        try:
            table = ArchiveTable.open(self._catalog, source_of(topic))
        except ArchiveConflict as error:
            if str(error) not in self._refused:
                self._refused.add(str(error))
                log.error("%s", error)
            return None
        announce(connection, self._keys, table)  # the last run may have ended between its commit and this
        self._tables[topic.name] = table
        return table

    def _warn(self, partition: Partition, progress: Progress) -> None:
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

    def _lost(self, key: TopicPartition, partition: Partition, progress: Progress) -> bool:
        """Whether records behind the archived ones were removed.

        With time ids the next record lies far behind the last one, however few are missing: there it is only known
        where more entries were removed than the log had when what is archived was its end.
        """
        info, through = partition.info, progress.through
        if info.added is None or info.removed is None:  # before Redis 7
            return False
        known = self._marks.get(key, {})
        self._marks[key] = {end: added for end, added in known.items() if end >= through} | {partition.end: info.added}
        if info.first is None or partition.start <= through:
            return False
        if partition.topic.codec.dense:
            return info.removed > 0
        return through in known and info.removed > known[through]

    def _cut(self, connection: Connection, partition: Partition, low: int, end: int) -> Iterable[Split]:
        table = self._tables[partition.topic.name]
        source, target = source_of(partition.topic), table.target
        size = partition.about(low, end)
        pieces = max(1, min(-(-size // _SPLIT_RECORDS), 2 * self._job.tasks))
        while low < end:
            pieces -= 1
            middle = end if pieces <= 0 else min(end, boundary(connection, partition, low, size // (pieces + 1)))
            yield Split(source, partition.index, partition.span(low, middle), target)
            size -= size // (pieces + 1)
            low = middle


def topics_of(job: Job) -> list[Topic]:
    """The topics that the job is for.

    Raises:
        KetchError: one that it names does not exist.
    """
    with connected(job.server) as connection:
        found = [topic for topic, _ in wanted(connection, Keyspace(job.keyspace), job.wanted)]
    missing = sorted(set(job.topics) - {topic.name for topic in found})
    if missing:
        raise KetchError(f"Unknown topic: {', '.join(missing)}.")
    return found
