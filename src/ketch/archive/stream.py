"""The archive job as a Spark stream: its rows are ranges of partitions, and its sink reads their records from Redis.

The source plans these ranges, the splits. Spark schedules them and runs them again after a failure. A task of the sink
reads its split from Redis and writes Parquet. The sink's commit adds all files of a batch to their tables. So records
never pass through the JVM, and a batch that is repeated finds its ranges in the tables and adds nothing.

Spark imports this module in processes that only ask for a name, so heavy modules are imported where they are used.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ketch.archive.options import Ends, Job, from_options
from ketch.redis.blocking import ask
from ketch.spark.compat import DataSourceStreamArrowWriter, ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from ketch.spark.quiet_end import EndsQuietly

if TYPE_CHECKING:
    from ketch.archive.batch import Part
    from ketch.archive.plan import ArchivePlanner, Split

FORMAT = "ketch-archive"
_COLUMN = "split"


class ArchiveDataSource(DataSource):
    """`format("ketch-archive")`: source and sink of the archive job's stream; no other program can use them."""

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
class SplitTask(InputPartition):
    """The split of one task."""

    split: Split


class SplitReader(EndsQuietly, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Gives each task its split. The stream's offset is `{"run": ..., "ends": {"topic": {"0": 123}}}`.

    `run` differs for every start, so that Spark runs a first batch even where nothing has been appended since the last.
    """

    def __init__(self, job: Job, run: str) -> None:
        self._job, self._run = job, run
        self._known: ArchivePlanner | None = None
        self._target: Ends | None = None

    @property
    def _planner(self) -> ArchivePlanner:
        from ketch.archive.plan import ArchivePlanner

        if self._known is None:  # in the process that plans, not in the one that pickles this object
            self._known = ArchivePlanner(self._job)
        return self._known

    def initialOffset(self) -> dict[str, Any]:
        return {"run": "", "ends": {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()  # the planner limits a batch by itself

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = ask(self._job.server, self._planner.now)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        ends = ask(self._job.server, lambda redis: self._planner.ends(redis, self._target))
        return {"run": self._run, "ends": ends}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        splits = ask(self._job.server, lambda redis: self._planner.splits(redis, end["ends"]))
        return [SplitTask(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SplitTask)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(partition.split)], pa.binary())], names=[_COLUMN])


@dataclass
class Done(WriterCommitMessage):
    """What one task has written."""

    parts: list[Part]


class ArchiveWriter(DataSourceStreamArrowWriter):
    """Reads splits from Redis into Parquet in the tasks, and commits them on the driver."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        splits = [pickle.loads(cell.as_py()) for batch in iterator for cell in batch.column(0)]
        if not splits:
            return Done([])
        from ketch.archive.batch import write

        return Done([write(self._job.server, split) for split in splits])

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        parts = [part for message in messages if isinstance(message, Done) for part in message.parts]
        if parts:
            from ketch.archive.batch import commit

            commit(self._job, parts)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Deletes nothing: Spark also calls it after a commit with an unknown outcome."""
