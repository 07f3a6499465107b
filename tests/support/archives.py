"""Archive tables written by pyiceberg's own append, so that what reads them is tested against another writer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionSpec

from ketch.lake.schema import RECORDS_SCHEMA, iceberg_schema, partition_spec, sort_order, to_lake


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
