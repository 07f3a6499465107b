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
from ketch.spark.topics import Partition, look
from ketch.store.keys import Keyspace

NOT_ITS_TABLE = "the table holds an earlier topic of this name"


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition. Offsets; None where nothing is archived.

    `lag` is about how many records wait in Redis: exact for dense offsets, else by their density. `topic_records` is
    the table's, the same for all its partitions. `files`, `records` and `bytes` are what the archive holds of this
    partition, None where only Redis was asked.
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
    with connected(job.server) as connection:
        found = sorted(look(connection, Keyspace(job.keyspace), job.wanted).items())
    catalog = open_catalog(job.catalog, Path(job.data_dir))
    tables = {topic: ArchiveTable.find(catalog, topic) for topic in dict.fromkeys(topic for (topic, _), _ in found)}
    held = {topic: contents(table) for topic, table in tables.items() if table is not None}
    return [_stored(partition, tables[topic], held.get(topic, {})) for (topic, _), partition in found]


def _hashes(connection: Connection, keys: Keyspace, names: list[str]) -> list[dict[bytes, bytes]]:
    replies = connection.calls([("HGETALL", keys.archive(name)) for name in names]) if names else []
    return [dict(zip(reply[::2], reply[1::2], strict=True)) for reply in replies]


def _announced(partition: Partition, fields: dict[bytes, bytes]) -> PartitionStatus:
    def number(name: str) -> int | None:
        value = fields.get(f"{name}:{partition.index}".encode())
        return None if value is None else int(value)

    through = number("through")
    records = int(fields.get(b"records", 0))
    return PartitionStatus(
        partition.topic.name, partition.index, number("start"), through, partition.end, lag(partition, through), records
    )


def _stored(partition: Partition, table: ArchiveTable | None, held: dict[int, tuple[int, int, int]]) -> PartitionStatus:
    name, index = partition.topic.name, partition.index
    if table is None:
        return PartitionStatus(name, index, None, None, partition.end, lag(partition, None))
    if table.topic_id != source_of(partition.topic).id:
        return PartitionStatus(
            name, index, None, None, partition.end, lag(partition, None), note="another topic's table"
        )
    known = table.progress().get(index)
    start, through = known or (None, None)
    records, files, size = held.get(index, (0, 0, 0))
    return PartitionStatus(
        name, index, start, through, partition.end, lag(partition, through), table.records, records, files, size
    )


def lag(partition: Partition, through: int | None) -> int:
    """About how many records are not archived yet."""
    return partition.about(partition.start if through is None else through, partition.end)
