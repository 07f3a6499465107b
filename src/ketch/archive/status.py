"""How far each partition is archived, and what its table holds."""

from __future__ import annotations

from dataclasses import dataclass

from ketch.archive.options import Job
from ketch.archive.tables import catalog_of, source_of
from ketch.lake.maintenance import contents
from ketch.lake.table import ArchiveTable
from ketch.redis.blocking import connected
from ketch.redis.driver import BlockingDriver
from ketch.spark.topics import PartitionView, look
from ketch.store.keys import Keyspace
from ketch.store.stream import counting
from ketch.store.topics import archives
from ketch.store.topics.archives import Announcement

_COUNT_MAX = 200_000  # records that are counted rather than estimated
NOT_ITS_TABLE = "the table holds an earlier topic of this name"


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition. Offsets; None where nothing is archived.

    `lag` is how many records wait in Redis: exact for dense offsets, else an estimate above a bound.
    `topic_records` is the table's, the same for all its partitions. `files`, `records` and `bytes` are what the archive
    holds of this partition, None where only Redis was asked.
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


def progress(job: Job) -> list[PartitionStatus]:
    """The state that the job has announced in Redis; it opens no table.

    Raises:
        StorageUnavailable: Redis cannot be reached.
    """
    keys = Keyspace(job.keyspace)
    with connected(job.server) as redis:
        found = sorted(look(redis, keys, job.wanted, committed=True).items())
        ids = {name: str(partition.topic.id) for (name, _), partition in found}
        announced = dict(zip(ids, redis.ask(archives.read_all(keys, list(ids.items()))), strict=True))
        return [_announced(partition, announced[topic]) for (topic, _), partition in found]


def status(job: Job) -> list[PartitionStatus]:
    """The state in the tables.

    Raises:
        StorageUnavailable: Redis cannot be reached.
        ConfigError: the catalog cannot be opened.
    """
    catalog = catalog_of(job)
    with connected(job.server) as redis:
        found = sorted(look(redis, Keyspace(job.keyspace), job.wanted, committed=True).items())
        tables = {topic: ArchiveTable.find(catalog, topic) for topic in dict.fromkeys(topic for (topic, _), _ in found)}
        held = {topic: contents(table) for topic, table in tables.items() if table is not None}
        return [_stored(redis, partition, tables[topic], held.get(topic, {})) for (topic, _), partition in found]


def _announced(partition: PartitionView, announced: Announcement | None) -> PartitionStatus:
    held = announced.partitions.get(partition.index) if announced is not None else None
    return PartitionStatus(
        topic=partition.topic.name,
        partition=partition.index,
        start=held.start if held else None,
        through=held.through if held else None,
        end=partition.end,
        lag=_lag(partition, held.through if held else None),
        topic_records=announced.records if announced is not None else 0,
    )


def _stored(
    redis: BlockingDriver, partition: PartitionView, table: ArchiveTable | None, held: dict[int, tuple[int, int, int]]
) -> PartitionStatus:
    own = table is not None and table.belongs_to(source_of(partition.topic))
    known = table.progress().get(partition.index) if table is not None and own else None
    records, files, size = held.get(partition.index, (0, 0, 0)) if own else (None, None, None)
    return PartitionStatus(
        topic=partition.topic.name,
        partition=partition.index,
        start=known.start if known else None,
        through=known.through if known else None,
        end=partition.end,
        lag=_lag(partition, known.through if known else None, redis),
        topic_records=table.records if table is not None and own else 0,
        records=records,
        files=files,
        bytes=size,
        note=NOT_ITS_TABLE if table is not None and not own else "",
    )


def _lag(partition: PartitionView, through: int | None, redis: BlockingDriver | None = None) -> int:
    """How many records are not archived yet: with a connection counted up to `_COUNT_MAX`, else estimated."""
    start = partition.start if through is None else max(through, partition.start)
    if partition.topic.numbering.dense:
        return max(0, partition.end - start)
    about = partition.about(start, partition.end)
    if redis is None:
        return about
    counted = redis.ask(counting.count(partition.stream, start, partition.end, _COUNT_MAX))
    return counted if counted < _COUNT_MAX else max(counted, about)
