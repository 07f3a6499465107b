"""Row groups of an archive's data files as records, with what was read before kept in bounded caches."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.utils.config import Config

from ketch.lake.schema import from_lake, split_marks

_COLUMNS = ["offset", "timestamp", "key", "value", "headers", "exact"]
_FOOTERS_MAX = 32 << 20  # bytes
_GROUPS_MAX = 64 << 20
# Bytes of memory that a footer takes for each byte in the file, about; and those of a cached item beside its value.
_FOOTER_FACTOR, _ITEM = 4, 500

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def io_properties(catalog: str) -> dict[str, str]:
    """What pyiceberg's own configuration (`~/.pyiceberg.yaml`, `PYICEBERG_CATALOG__...`) says of a catalog, its FileIO
    included; empty where it says nothing."""
    return {name: str(value) for name, value in (Config().get_catalog_config(catalog) or {}).items()}


class Cache(Generic[K, V]):
    """The values used last, `size` bytes of them at most; several threads may use it."""

    def __init__(self, size: int) -> None:
        self._room = size
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            held = self._values.get(key)
            if held is None:
                return None
            self._values.move_to_end(key)
            return held[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Keeps it and drops the values used longest ago. A value larger than the cache stays until the next put."""
        with self._lock:
            if key in self._values:
                return
            self._values[key] = (value, size + _ITEM)
            self._room -= size + _ITEM
            while self._room < 0 and len(self._values) > 1:
                self._room += self._values.popitem(last=False)[1][1]


class Footer(NamedTuple):
    """A file's metadata, and for each row group its first and last offset and its latest timestamp in ms.

    The timestamp is None where the file has no statistics of it.
    """

    metadata: pq.FileMetaData
    lows: list[int]
    highs: list[int]
    latest: list[int | None]

    def groups(self, start: int, end: int) -> range:
        """The row groups that hold offsets from `start` up to `end`, exclusive."""
        return range(bisect_left(self.highs, start), bisect_left(self.lows, end))


class Group(NamedTuple):
    """A row group: its records (`records.arrow.SCHEMA`), and the marks of some by offset."""

    rows: pa.RecordBatch
    marks: dict[int, bytes]


class Parquet:
    """Reads data files; may be used by several threads.

    Args:
        properties: of pyiceberg's FileIO (`s3.endpoint` and so on).
    """

    def __init__(self, properties: Mapping[str, str], location: str) -> None:
        self.io: FileIO = load_file_io(dict(properties), location)
        self._footers: Cache[str, Footer] = Cache(_FOOTERS_MAX)
        self._groups: Cache[tuple[str, int], Group] = Cache(_GROUPS_MAX)

    def footer(self, path: str) -> Footer:
        """Raises OSError where the file cannot be read, ValueError where it is not one of the archive's."""
        known = self._footers.get(path)
        if known is None:
            with self.io.new_input(path).open() as source:
                known = _footer(pq.read_metadata(source), path)
            self._footers.put(path, known, known.metadata.serialized_size * _FOOTER_FACTOR)
        return known

    def group(self, path: str, number: int) -> Group:
        """A row group; raises as `footer`."""
        known = self._groups.get((path, number))
        if known is None:
            footer = self.footer(path)
            with self.io.new_input(path).open() as source:
                # A row group is small; more threads would only take CPU from the event loop's thread.
                file = pq.ParquetFile(source, metadata=footer.metadata, pre_buffer=True)
                table = file.read_row_group(number, _COLUMNS, use_threads=False)
            rows, marks = split_marks(table.combine_chunks().to_batches()[0])
            known = Group(from_lake(rows), marks)
            self._groups.put((path, number), known, known.rows.nbytes + sum(map(len, marks.values())))
        return known

    def rows(self, path: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """A file's records from offset `start` up to `end`, exclusive, row group by row group."""
        for number in self.footer(path).groups(start, end):
            rows = clip(self.group(path, number).rows, start, end)
            if rows.num_rows:
                yield rows

    def marks(self, path: str, start: int, end: int) -> dict[int, bytes]:
        """The marks of a file's records from offset `start` up to `end`, exclusive, see `lake.schema`."""
        groups = [self.group(path, number) for number in self.footer(path).groups(start, end)]
        return {offset: mark for group in groups for offset, mark in group.marks.items() if start <= offset < end}


def clip(rows: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    """The rows with offsets from `start` up to `end`, exclusive; offsets rise."""
    offsets = rows.column("offset")
    first = bisect_left(offsets, start, key=_plain)
    return rows.slice(first, bisect_left(offsets, end, lo=first, key=_plain) - first)


def _plain(number: pa.Int64Scalar) -> int:
    value: int = number.as_py()
    return value


def _footer(metadata: pq.FileMetaData, path: str) -> Footer:
    names = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    if "offset" not in names or "timestamp" not in names:
        raise ValueError(f"{path} is no file of an archive")
    offset, timestamp = names.index("offset"), names.index("timestamp")
    lows, highs, latest = [], [], []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        known = group.column(offset).statistics
        if known is None or not known.has_min_max:
            raise ValueError(f"{path} has no statistics of its offsets")
        lows.append(known.min)
        highs.append(known.max)
        latest.append(_latest(group.column(timestamp).statistics))
    return Footer(metadata, lows, highs, latest)


def _latest(known: pq.Statistics | None) -> int | None:
    if known is None or not known.has_min_max or not known.has_null_count or known.null_count:
        return None
    latest: int = known.max_raw // 1000
    return latest
