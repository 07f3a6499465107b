"""What PySpark 4.0 and 4.1 lack of the Data Source API, so that the rest is written for 4.2.

Their streaming readers are asked for the latest offset alone, without a start and a limit, so that a reader only knows
where the stream is by what it said before. They know nothing of Trigger.AvailableNow: Spark runs one micro-batch, which
is that of the last run where this had not finished it. 4.0 has no name for stream writers that take Arrow batches, and
gives them to one that is a DataSourceArrowWriter as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import datasource

__all__ = [
    "LIMITS",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
]

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    LIMITS = True  # whether Spark says where a stream is and how much it wants
except ImportError:
    LIMITS = False
    if not TYPE_CHECKING:

        class ReadLimit:
            """How much a micro-batch may take."""

        class ReadAllAvailable(ReadLimit):
            """All there is."""

        @dataclass
        class ReadMaxRows(ReadLimit):
            """So many records, about."""

            max_rows: int

        class SupportsTriggerAvailableNow:
            """Nothing asks for it."""


if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """`write` is given Arrow batches."""
