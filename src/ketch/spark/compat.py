"""The parts of PySpark 4.2's Data Source API that 4.0 and 4.1 lack, so that all other modules are written for 4.2.

4.0 and 4.1 ask a streaming reader for the latest offset without a start and a limit: a reader knows the stream's
position only from its own last answer. They do not pass Trigger.AvailableNow on: Spark runs one micro-batch, or repeats
the one that the last run did not finish. 4.0 has no class of stream writers that take Arrow batches, but gives Arrow
batches to a writer that is a DataSourceArrowWriter as well.
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
            """About `max_rows` records."""

            max_rows: int

        class SupportsTriggerAvailableNow:
            """Nothing asks for it."""


if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """`write` is given Arrow batches."""
