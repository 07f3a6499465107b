"""Reads records of a topic from its archive table by offset and by time, through the index of `lake.index`.

Blocking, for threads. Every call may raise OSError (a file cannot be read; if a compaction has replaced it,
`refresh` helps) and ValueError (a file is not what the archive writes).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ketch.lake.index import File, Index, Snapshot, snapshots
from ketch.lake.parquet import Parquet, clip
from ketch.records import DecodedBatch
from ketch.records.arrow import from_arrow

_END = 2**63 - 1


class FileRange(NamedTuple):
    """Offsets that one data file holds, from `start` up to `end`, exclusive."""

    start: int
    end: int
    records: int  # at most


class Cold:
    """An archive table as it was at one metadata location.

    Args:
        metadata_location: of the table's metadata file.
        properties: of pyiceberg's FileIO.
        manifest_list: see `Index.refresh`.
        parquet: where several tables share one, with its caches.
    """

    def __init__(
        self,
        metadata_location: str,
        properties: Mapping[str, str],
        manifest_list: str | None = None,
        parquet: Parquet | None = None,
    ) -> None:
        self._metadata_location = metadata_location
        self._parquet = parquet or Parquet(properties, metadata_location)
        self._index = Index(self._parquet.io)
        self._lock = threading.Lock()
        self._snapshots: tuple[str, list[Snapshot]] = "", []  # as of which metadata file
        self._index.refresh(metadata_location, manifest_list)

    def refresh(self, metadata_location: str, manifest_list: str | None = None) -> None:
        """Goes to another metadata file of the same table."""
        with self._lock:
            if metadata_location != self._metadata_location:
                self._index.refresh(metadata_location, manifest_list)
                self._metadata_location = metadata_location

    def sizes(self) -> dict[int, int]:
        """Bytes of the data files by partition."""
        return self._index.sizes()

    def files(self, first: int, count: int, partition: int | None = None) -> tuple[int, list[tuple[int, File]]]:
        """See `Index.some`."""
        return self._index.some(first, count, partition)

    def snapshots(self) -> list[Snapshot]:
        """Those that the table keeps, the newest first; read once for each state of the table."""
        with self._lock:
            at = self._metadata_location
            if self._snapshots[0] != at:
                self._snapshots = at, snapshots(self._parquet.io, at)
            return self._snapshots[1]

    # -- by offset

    def read(
        self, partition: int, offset: int, max_bytes: int, limit_offset: int, split_timestamps: bool = False
    ) -> list[DecodedBatch]:
        """Batches from `offset` up to `limit_offset`, exclusive, about `max_bytes` of them, at least one record.

        Args:
            split_timestamps: no batch with two timestamps, as LogAppendTime wants.
        """
        batches: list[DecodedBatch] = []
        room = max_bytes
        for rows in self.rows(partition, offset, limit_offset):
            more = from_arrow(rows, room, split_timestamps)
            room -= sum(len(batch.records) for batch in more)
            if batches and room < 0:  # this file's first record no longer fits
                break
            batches += more
            if room <= 0 or more[-1].last_offset < rows.column("offset")[-1].as_py():
                break
        return batches

    def rows(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Records from `start` up to `end`, exclusive, as `records.arrow.SCHEMA`, row group by row group."""
        for file in self._index.overlapping(partition, start, end):
            yield from self._parquet.rows(file.path, start, end)

    def marks(self, partition: int, start: int, end: int) -> dict[int, bytes]:
        """The marks of records from `start` up to `end`, exclusive, see `lake.schema`."""
        found: dict[int, bytes] = {}
        for file in self._index.overlapping(partition, start, end):
            found |= self._parquet.marks(file.path, start, end)
        return found

    # -- by time

    def first_at_or_after(
        self, partition: int, timestamp: int, start: int = 0, end: int = _END
    ) -> tuple[int, int] | None:
        """The first record from `start` up to `end` with `timestamp` (ms) or later: its offset and timestamp."""
        for file in self._index.overlapping(partition, start, end):
            for rows in self._late(file, timestamp, start, end):
                row = pc.index(pc.greater_equal(rows.column("timestamp"), timestamp), True).as_py()
                if row >= 0:
                    return rows.column("offset")[row].as_py(), rows.column("timestamp")[row].as_py()
        return None

    def latest_timestamp(self, partition: int, start: int = 0, end: int = _END) -> tuple[int, int] | None:
        """Offset and timestamp of the first of the records from `start` up to `end` that bear the latest timestamp."""
        best: tuple[int, int] | None = None  # timestamp, -offset
        files = self._index.overlapping(partition, start, end)
        for file in sorted(files, key=lambda file: (-(_END if file.latest is None else file.latest), file.low)):
            for rows in self._late(file, best[0] if best else None, start, end):
                latest = pc.max(rows.column("timestamp"))
                row = pc.index(rows.column("timestamp"), latest).as_py()
                found = latest.as_py(), -rows.column("offset")[row].as_py()
                best = max(best or found, found)
        return (-best[1], best[0]) if best else None

    def _late(self, file: File, timestamp: int | None, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The row groups that may hold records with `timestamp` (ms) or later; all of them for None."""
        if not _may_be_as_late(file.latest, timestamp):
            return
        footer = self._parquet.footer(file.path)
        for number in footer.groups(start, end):
            if _may_be_as_late(footer.latest[number], timestamp):
                rows = clip(self._parquet.group(file.path, number).rows, start, end)
                if rows.num_rows:
                    yield rows

    # -- for planners

    def ranges(self, partition: int, start: int, end: int) -> list[FileRange]:
        """Where the offsets from `start` up to `end`, exclusive, lie."""
        return [
            FileRange(max(start, file.low), min(end, file.high + 1), file.records)
            for file in self._index.overlapping(partition, start, end)
        ]


def _may_be_as_late(latest: int | None, timestamp: int | None) -> bool:
    return latest is None or timestamp is None or latest >= timestamp
