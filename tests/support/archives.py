"""Archive tables written by pyiceberg's own append, so that what reads them is tested against another writer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionSpec
from redis import Redis

from ketch.lake.schema import RECORDS_SCHEMA, iceberg_schema, partition_spec, sort_order, to_lake
from tests.support.kafka import Kafka


class Row(NamedTuple):
    """A record; `headers` as (name, value) pairs."""

    offset: int
    timestamp: int = 1_700_000_000_000
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


class Archive:
    """A table in a directory of its own."""

    def __init__(self, directory: Path, name: str = "topic", row_group: int = 4) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        catalog = SqlCatalog("test", uri=f"sqlite:///{directory}/catalog.db", warehouse=f"file://{directory}/warehouse")
        catalog.create_namespace_if_not_exists("ketch")
        self.table = catalog.create_table(
            ("ketch", name),
            iceberg_schema(),
            # Without the day: pyiceberg's own append needs pyiceberg-core for it.
            partition_spec=PartitionSpec(*partition_spec().fields[:1]),
            sort_order=sort_order(),
            properties={"write.parquet.row-group-limit": str(row_group)},
        )
        self.catalog = catalog

    @property
    def location(self) -> str:
        return str(self.table.metadata_location)

    def append(self, partition: int, rows: Sequence[Row], appended: int = 1_700_000_000_000) -> None:
        """One more file."""
        self.table.append(pa.Table.from_batches([to_lake(records(rows), partition, appended)]))

    def close(self) -> None:
        self.catalog.engine.dispose()


def records(rows: Sequence[Row]) -> pa.RecordBatch:
    columns: dict[str, Any] = {name: [getattr(row, name) for row in rows] for name in Row._fields}
    columns["headers"] = [[{"key": key, "value": value} for key, value in row.headers] for row in rows]
    return pa.RecordBatch.from_pydict(columns, schema=RECORDS_SCHEMA)


class Job:
    """Archives one topic as the archive job does: rows, then the announcement in Redis.

    It reads through a Kafka connection, as anybody may.
    """

    def __init__(self, directory: Path, kafka: Kafka, redis: Redis[bytes], topic: str) -> None:
        self.archive = Archive(directory, topic, row_group=100)
        self._kafka, self._redis, self._topic = kafka, redis, topic
        self.through: dict[int, int] = {}
        self.start: dict[int, int] = {}

    @property
    def key(self) -> str:
        return f"korvet:archive:{self._topic}"

    def run(self, partition: int = 0, files: int = 1, end: int = 1 << 62) -> int:
        """Archives what is new and below `end`, in so many files; the offset behind it."""
        fresh = [r for r in self._kafka.read_all(self._topic, self.through.get(partition), partition) if r.offset < end]
        for part in range(files):
            rows = [Row(*record) for record in fresh[part * len(fresh) // files : (part + 1) * len(fresh) // files]]
            self.archive.append(partition, rows)
        if fresh:
            self.start.setdefault(partition, fresh[0].offset)
            self.through[partition] = fresh[-1].offset + 1
        self.announce()
        return self.through[partition]

    def announce(self, **fields: str) -> None:
        told = {f"through:{partition}": offset for partition, offset in self.through.items()}
        told |= {f"start:{partition}": offset for partition, offset in self.start.items()}
        where = {"table": f"ketch.{self._topic}", "metadata": self.archive.location}
        self._redis.hset(self.key, mapping={**told, **where, **fields})
