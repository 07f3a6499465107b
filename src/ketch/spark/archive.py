"""The archive job: a Spark stream whose rows are ranges of partitions, and whose sink reads them from Redis itself.

The source plans splits, Spark schedules, repeats and remembers them, a sink's task reads its split from Redis and
writes Parquet, and the sink's commit brings all files of a batch into their tables. So records never pass through the
JVM, and a batch that is repeated finds its ranges in the tables and adds nothing.

Spark imports this module in some processes that only ask for a name: what is heavy is imported where it is used.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ketch.clock import now_ms
from ketch.spark.archive_options import Ends, Job, from_options
from ketch.spark.compat import DataSourceStreamArrowWriter, ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from ketch.spark.connection import Server, ask

if TYPE_CHECKING:
    from ketch.lake.table import Source, Written
    from ketch.spark.archive_plan import Planner, Split

FORMAT = "ketch-archive"
_COLUMN = "split"


class ArchiveDataSource(DataSource):
    """`format("ketch-archive")`: the two ends of the archive job's stream, of no use to anyone else."""

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return f"{_COLUMN} binary"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return SplitReader(*from_options(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return ArchiveWriter(from_options(self.options)[0])


@dataclass
class Task(InputPartition):
    """What one task does."""

    split: Split


class SplitReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Gives each task its split. The stream's offset is `{"run": ..., "ends": {"topic": {"0": 123}}}`.

    `run` makes the first batch of every start happen, even where nothing has been appended since the last one.
    """

    def __init__(self, job: Job, run: str) -> None:
        self._job, self._run = job, run
        self._known: Planner | None = None
        self._target: Ends | None = None

    @property
    def _planner(self) -> Planner:
        from ketch.spark.archive_plan import Planner

        if self._known is None:  # in the process that plans, not in the one that pickles this object
            self._known = Planner(self._job)
        return self._known

    def initialOffset(self) -> dict[str, Any]:
        return {"run": "", "ends": {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()  # the planner limits a batch by itself

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = ask(self._job.server, self._planner.now)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        ends = ask(self._job.server, lambda connection: self._planner.ends(connection, self._target))
        return {"run": self._run, "ends": ends}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        splits = ask(self._job.server, lambda connection: self._planner.splits(connection, end["ends"]))
        return [Task(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(partition.split)], pa.binary())], names=[_COLUMN])


@dataclass
class Done(WriterCommitMessage):
    """What one task has written."""

    parts: list[tuple[Source, Written]]


class ArchiveWriter(DataSourceStreamArrowWriter):
    """Reads splits from Redis into Parquet in the tasks, and commits them on the driver."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        splits = [pickle.loads(cell.as_py()) for batch in iterator for cell in batch.column(0)]
        return Done([(split.source, archive(self._job.server, split)) for split in splits])

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        parts = [part for message in messages if isinstance(message, Done) for part in message.parts]
        if not parts:
            return
        from ketch.lake.catalog import open_catalog
        from ketch.lake.table import ArchiveTable
        from ketch.spark.archive_plan import announce
        from ketch.store.keys import Keyspace

        catalog = open_catalog(self._job.catalog, Path(self._job.data_dir))
        keys = Keyspace(self._job.keyspace)
        parts.sort(key=lambda part: (part[0].topic, part[1].partition, part[1].start))
        for source, group in groupby(parts, key=lambda part: part[0]):
            table = ArchiveTable.open(catalog, source)
            table.commit(joined([written for _, written in group]))
            ask(self._job.server, lambda connection, table=table: announce(connection, keys, table))  # type: ignore[misc]

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Deletes nothing: it is also called for a commit of which nobody knows whether it went through."""


def archive(server: Server, split: Split) -> Written:
    """Writes a split's records into data files."""
    from ketch.lake.files import write_files
    from ketch.lake.parquet import clip
    from ketch.lake.schema import append_times, to_lake
    from ketch.lake.table import Written
    from ketch.records.arrow import to_arrow
    from ketch.spark.reader import read_batches

    span, codec = split.span, split.span.codec
    archived = now_ms()

    def rows() -> Iterator[pa.RecordBatch]:
        for batches in read_batches(server, span):
            records = clip(to_arrow(batches), span.start, span.end)
            if records.num_rows:
                times = archived if codec.dense else append_times(records.column("offset"), codec.bits)
                yield to_lake(records, split.partition, times)

    return Written(split.partition, span.start, span.end, write_files(split.target, split.partition, rows()))


def joined(parts: list[Written]) -> list[Written]:
    """Splits of one partition, in order, as the one range that they are."""
    whole: list[Written] = []
    for part in parts:
        last = whole[-1] if whole else None
        if last is not None and last.partition == part.partition and last.end == part.start:
            whole[-1] = last._replace(end=part.end, files=[*last.files, *part.files])
        else:
            whole.append(part)
    return whole
