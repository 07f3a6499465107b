"""How far each partition is archived, and what its table holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ketch.lake.catalog import open_catalog
from ketch.lake.maintenance import contents
from ketch.lake.table import ArchiveTable
from ketch.spark.archive_options import Job
from ketch.spark.archive_plan import source_of
from ketch.spark.connection import Connection, connected
from ketch.spark.topics import Partition, entries, look
from ketch.store.keys import Keyspace

_STEP = 10_000  # entries read at a time
_COUNT_MAX = 1_000_000  # records that are counted rather than estimated
NOT_ITS_TABLE = "the table holds an earlier topic of this name"


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition. Offsets; None where nothing is archived.

    `lag` is how many records wait in Redis: exact for dense offsets, else about, by their density, beyond some number.
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
    """As the job announces it in Redis; costs next to nothing.

    Raises:
        StorageUnavailable: Redis is gone.
    """
    keys = Keyspace(job.keyspace)
    with connected(job.server) as connection:
        found = sorted(look(connection, keys, job.wanted).items())
        names = list(dict.fromkeys(topic for (topic, _), _ in found))
        hashes = dict(zip(names, _hashes(connection, keys, names), strict=True))
        return [_announced(partition, hashes[topic]) for (topic, _), partition in found]


def status(job: Job) -> list[PartitionStatus]:
    """As the tables have it.

    Raises:
        StorageUnavailable: Redis is gone.
        ConfigError: the catalog cannot be opened.
    """
    catalog = open_catalog(job.catalog, Path(job.data_dir))
    with connected(job.server) as connection:
        found = sorted(look(connection, Keyspace(job.keyspace), job.wanted).items())
        tables = {topic: ArchiveTable.find(catalog, topic) for topic in dict.fromkeys(topic for (topic, _), _ in found)}
        held = {topic: contents(table) for topic, table in tables.items() if table is not None}
        return [_stored(connection, partition, tables[topic], held.get(topic, {})) for (topic, _), partition in found]


def _hashes(connection: Connection, keys: Keyspace, names: list[str]) -> list[dict[bytes, bytes]]:
    replies = connection.calls([("HGETALL", keys.archive(name)) for name in names]) if names else []
    return [dict(zip(reply[::2], reply[1::2], strict=True)) for reply in replies]


def _announced(partition: Partition, fields: dict[bytes, bytes]) -> PartitionStatus:
    def number(name: str) -> int | None:
        value = fields.get(f"{name}:{partition.index}".encode())
        return None if value is None else int(value)

    through = number("through")
    return PartitionStatus(
        topic=partition.topic.name,
        partition=partition.index,
        start=number("start"),
        through=through,
        end=partition.end,
        lag=_lag(partition, through),
        topic_records=int(fields.get(b"records", 0)),
    )


def _stored(
    connection: Connection, partition: Partition, table: ArchiveTable | None, held: dict[int, tuple[int, int, int]]
) -> PartitionStatus:
    own = table is not None and table.topic_id == source_of(partition.topic).id
    known = table.progress().get(partition.index) if table is not None and own else None
    records, files, size = held.get(partition.index, (0, 0, 0)) if own else (None, None, None)
    return PartitionStatus(
        topic=partition.topic.name,
        partition=partition.index,
        start=known.start if known else None,
        through=known.through if known else None,
        end=partition.end,
        lag=_lag(partition, known.through if known else None, connection),
        topic_records=table.records if table is not None and own else 0,
        records=records,
        files=files,
        bytes=size,
        note=NOT_ITS_TABLE if table is not None and not own else "",
    )


def _lag(partition: Partition, through: int | None, connection: Connection | None = None) -> int:
    """About how many records are not archived yet; over a connection counted, as far as that does not take long."""
    start = partition.start if through is None else max(through, partition.start)
    if partition.topic.codec.dense:
        return max(0, partition.end - start)
    records = 0
    while connection is not None and records < _COUNT_MAX:
        chunk = entries(connection, partition, start, _STEP)
        if not chunk:
            return records
        records, start = records + chunk.records, chunk.end
    return records + partition.about(start, partition.end)
