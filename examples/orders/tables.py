"""The results as Iceberg tables `shop.<name>`, written with pyiceberg by the driver of the job."""

from __future__ import annotations

from pathlib import Path
from threading import Lock

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyspark.sql import DataFrame

from ketch.lake.catalog import open_catalog

NAMESPACE = "shop"
_BATCH = "orders.batch"  # table property: the last micro-batch that is in the table
_TIME = pa.timestamp("us", tz="UTC")
_SUMS = [("orders", pa.int64()), ("units", pa.int64()), ("cents", pa.int64())]

SCHEMAS = {
    "orders": pa.schema(
        [
            ("order", pa.string()),
            ("customer", pa.string()),
            ("name", pa.string()),
            ("region", pa.string()),
            ("item", pa.string()),
            ("quantity", pa.int32()),
            ("cents", pa.int64()),
            ("placed", _TIME),
        ]
    ),
    "revenue": pa.schema([("minute", _TIME), ("region", pa.string()), *_SUMS]),
    "sessions": pa.schema([("customer", pa.string()), ("begin", _TIME), ("end", _TIME), *_SUMS]),
}


class Lake:
    """The catalog: what pyiceberg is configured with under the name `ketch`, else a SQLite file in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = Lock()  # queries commit from threads of their own

    def append(self, name: str, rows: DataFrame, batch: int) -> None:
        """Appends the rows of a micro-batch to a table, unless they are there already (for `foreachBatch`)."""
        arrow = rows.toArrow().cast(SCHEMAS[name])
        with self._lock:
            _append(self._table(name), arrow, batch)

    def read(self, name: str) -> pa.Table:
        """A whole table."""
        with self._lock:
            return self._table(name).scan().to_arrow()

    def _table(self, name: str) -> Table:
        catalog: Catalog = open_catalog("ketch", self._directory)
        try:
            return catalog.load_table((NAMESPACE, name))
        except NoSuchTableError:
            catalog.create_namespace_if_not_exists(NAMESPACE)
            # A retried commit would not look at the property again.
            properties = {"commit.retry.num-retries": "0"}
            return catalog.create_table((NAMESPACE, name), SCHEMAS[name], properties=properties)


def _append(table: Table, rows: pa.Table, batch: int) -> None:
    # Files and batch number become visible in one commit, so a batch that Spark repeats after a crash is recognised.
    if not rows.num_rows or int(table.properties.get(_BATCH, -1)) >= batch:
        return
    with table.transaction() as transaction:
        transaction.append(rows)
        transaction.set_properties({_BATCH: str(batch)})
