"""Writes the data files of an archive: Parquet, sorted by offset, one topic partition and one day of append each.

Row groups are small (thousands of rows), for the broker reads one to answer a fetch; statistics are kept of the columns
that records are looked up by and of no others.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, OutputStream, load_file_io
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from ketch.lake.schema import ARROW_SCHEMA, DAY_MS, iceberg_schema

FILE_BYTES = 128 << 20  # a file that has passed it is closed
_GROUP_ROWS = 8192
_GROUP_BYTES = 4 << 20  # of rows in memory
_DAY_US = DAY_MS * 1000

# Only of the columns that records are found by; min and max of keys and values serve no search.
METRICS = {
    "write.metadata.metrics.default": "none",
    **{f"write.metadata.metrics.column.{name}": "full" for name in ("partition", "offset", "timestamp", "append_time")},
}
_STATISTICS = ["partition", "offset", "timestamp", "append_time"]
_DICTIONARIES = ["partition", "headers.list.element.key"]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a table's data files go; travels to executors.

    `directory` is a URL of FileIO without a slash at its end, `properties` are FileIO's.
    """

    directory: str
    spec_id: int
    properties: dict[str, str] = field(repr=False)  # may hold keys of an object store


def write_files(target: Target, partition: int, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
    """Writes rows (`schema.ARROW_SCHEMA`) of one topic partition, offsets rising, into as many files as it takes.

    Raises:
        OSError: the storage refused. No file of this call is of use then, and those that are there are removed.
    """
    io = load_file_io(target.properties, target.directory)
    files: list[DataFile] = []
    current: _Writer | None = None
    try:
        for day, group in _groups(batches):
            if current is not None and (current.day != day or current.size >= FILE_BYTES):
                files.append(current.close())
                current = None
            if current is None:
                current = _Writer(io, target, partition, day)
            current.write(group)
        if current is not None:
            files.append(current.close())
    except BaseException:
        if current is not None:
            current.abort()
        remove(io, [file.file_path for file in files])
        raise
    return files


def remove(io: FileIO, paths: Iterable[str]) -> None:
    """Deletes files and ignores failures: `ketch archive expire` finds the files that stay."""
    for path in paths:
        with contextlib.suppress(Exception):
            io.delete(path)


class _Writer:
    """One data file."""

    def __init__(self, io: FileIO, target: Target, partition: int, day: int) -> None:
        self.day = day
        self._io, self._target, self._partition = io, target, partition
        folder = date(1970, 1, 1) + timedelta(days=day)
        # A new name for every attempt: a replayed task must never write over a file that a table refers to.
        self._path = f"{target.directory}/partition={partition}/append_time_day={folder}/{uuid.uuid4()}.parquet"
        self._stream: OutputStream = io.new_output(self._path).create(overwrite=True)
        self._writer = pq.ParquetWriter(
            self._stream,
            ARROW_SCHEMA,
            compression="zstd",
            compression_level=1,
            use_dictionary=_DICTIONARIES,
            write_statistics=_STATISTICS,
        )

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._stream.tell())

    def write(self, group: pa.Table) -> None:
        self._writer.write_table(group, row_group_size=group.num_rows)

    def close(self) -> DataFile:
        self._writer.close()
        size = self.size
        self._stream.close()
        schema = iceberg_schema()
        statistics = data_file_statistics_from_parquet_metadata(
            self._writer.writer.metadata,
            compute_statistics_plan(schema, METRICS),
            parquet_path_to_id_mapping(schema),
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self._path,
            file_format=FileFormat.PARQUET,
            partition=Record(self._partition, self.day),
            file_size_in_bytes=size,
            sort_order_id=None,
            spec_id=self._target.spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )

    def abort(self) -> None:
        with contextlib.suppress(Exception):
            self._writer.close()
            self._stream.close()
        remove(self._io, [self._path])


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """Row groups, each with its day: of a good size each, save the last of a day."""
    waiting: list[pa.RecordBatch] = []
    rows = size = held = 0
    for day, part in _by_day(batches):
        if waiting and day != held:
            yield held, pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(part)
        held, rows, size = day, rows + part.num_rows, size + part.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield held, pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield held, pa.Table.from_batches(waiting)


def _by_day(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Stretches of rows of one day of append."""
    for batch in batches:
        for start in range(0, batch.num_rows, _GROUP_ROWS):
            yield from _days(batch.slice(start, _GROUP_ROWS))


def _days(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    times = batch.column("append_time").cast(pa.int64())
    first, last = times[0].as_py() // _DAY_US, times[len(times) - 1].as_py() // _DAY_US
    bounds = pc.min_max(times).as_py()
    if first == last and bounds["min"] // _DAY_US == bounds["max"] // _DAY_US:
        yield first, batch
        return
    days = [time // _DAY_US for time in times.to_pylist()]
    edges = [0, *(n for n in range(1, len(days)) if days[n] != days[n - 1]), len(days)]
    for start, end in pairwise(edges):
        yield days[start], batch.slice(start, end - start)
