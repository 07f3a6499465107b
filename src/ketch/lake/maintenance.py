"""Keeps archive tables small: retention, compaction, and the removal of files that nothing refers to.

All of it may run while the archive job does. Each change is one commit on the newest table, repeated where another
commit came first. Files are removed only after a commit after which no snapshot refers to them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, ValidationException
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update.snapshot import ExpireSnapshots

from ketch.lake.catalog import identifier
from ketch.lake.files import remove, write_files
from ketch.lake.index import number
from ketch.lake.schema import APPEND_TIME, OFFSET, TIMESTAMP
from ketch.lake.table import ArchiveTable

if TYPE_CHECKING:
    import pyarrow as pa

UNLIMITED = -1


class Retention(NamedTuple):
    """A topic's `retention.ms` and `retention.bytes` (a partition's files), -1: no limit; and whether by timestamps.

    Entry ids of dense topics hold no time: their records go by their own timestamps, as in Redis.
    """

    ms: int
    bytes: int
    by_timestamp: bool


@dataclass(slots=True)
class Removed:
    """What a run of `expire` has done."""

    records: int = 0
    data_files: int = 0
    snapshots: int = 0
    files: int = 0  # on storage: data files, manifests, lists
    bytes: int = 0  # of them that were data files


def contents(table: ArchiveTable) -> dict[int, tuple[int, int, int]]:
    """Records, files and bytes of each partition."""
    held: dict[int, tuple[int, int, int]] = {}
    for file in data_files(table):
        records, files, size = held.get(file.partition[0], (0, 0, 0))
        held[file.partition[0]] = (records + file.record_count, files + 1, size + file.file_size_in_bytes)
    return held


def data_files(table: ArchiveTable) -> list[DataFile]:
    """The files of the current snapshot."""
    snapshot = table.table.current_snapshot()
    io = table.table.io
    manifests = snapshot.manifests(io) if snapshot else []
    return [file for manifest in manifests for file in _files(table, manifest)]


def _files(table: ArchiveTable, manifest: ManifestFile) -> Iterator[DataFile]:
    if manifest.content == ManifestContent.DATA:
        for entry in manifest.fetch_manifest_entry(table.table.io, discard_deleted=True):
            yield entry.data_file


# -- retention


def expire_records(table: ArchiveTable, retention: Retention, deleted: Mapping[int, int], now_ms: int) -> Removed:
    """Removes the files that retention has expired, the oldest of each partition first, and moves `start` past them.

    Args:
        deleted: offsets below which records of a partition were deleted (DeleteRecords).
    """
    removed = Removed()

    def step(transaction: Transaction) -> bool:
        nonlocal removed
        gone, starts = _outdated(table, retention, deleted, now_ms)
        removed = Removed(records=sum(file.record_count for file in gone), data_files=len(gone))
        return table.replace(gone, [], starts)(transaction)

    table.attempt(step)
    return removed


def _outdated(
    table: ArchiveTable, retention: Retention, deleted: Mapping[int, int], now_ms: int
) -> tuple[list[DataFile], dict[int, int]]:
    gone: list[DataFile] = []
    starts: dict[int, int] = {}
    files = by_partition(data_files(table))
    for partition, known in table.progress().items():
        own = files.get(partition, [])
        count = _count_outdated(own, retention, deleted.get(partition, 0), now_ms)
        gone += own[:count]
        start = _low(own[count]) if count < len(own) else known.through
        start = max(start if count else known.start, min(deleted.get(partition, 0), known.through))
        if start > known.start:
            starts[partition] = start
    return gone, starts


def _count_outdated(files: list[DataFile], retention: Retention, deleted: int, now_ms: int) -> int:
    """How many of the files, from the first on, are to go."""
    left = sum(file.file_size_in_bytes for file in files)
    for count, file in enumerate(files):
        too_old = retention.ms != UNLIMITED and _newest(file, retention.by_timestamp) < now_ms - retention.ms
        too_much = retention.bytes != UNLIMITED and left > retention.bytes
        if not (too_old or too_much or _high(file) < deleted):
            return count
        left -= file.file_size_in_bytes
    return len(files)


def by_partition(files: Iterable[DataFile]) -> dict[int, list[DataFile]]:
    """The files of each partition, by offset."""
    found: dict[int, list[DataFile]] = {}
    for file in sorted(files, key=_low):
        found.setdefault(file.partition[0], []).append(file)
    return found


def _low(file: DataFile) -> int:
    return number(file.lower_bounds[OFFSET])


def _high(file: DataFile) -> int:
    return number(file.upper_bounds[OFFSET])


def _newest(file: DataFile, by_timestamp: bool) -> int:
    """ms of its latest record; by the time of append where timestamps are missing."""
    known = TIMESTAMP in file.upper_bounds and not (file.null_value_counts or {}).get(TIMESTAMP)
    field = TIMESTAMP if by_timestamp and known else APPEND_TIME
    return number(file.upper_bounds[field]) // 1000


# -- compaction


def compact(table: ArchiveTable, target_bytes: int, least: int) -> tuple[int, int]:
    """Rewrites neighbouring small files of one partition and day as large ones; how many went and how many came.

    Args:
        target_bytes: what files together may come to; a file of at least half of it is left alone.
        least: how many neighbours make it worth while.
    """
    went = came = 0
    for group in _small_neighbours(data_files(table), target_bytes, least):
        partition = group[0].partition[0]
        new = write_files(table.target, partition, _rows(table, group))
        try:
            table.attempt(table.replace(group, new))
        except ValidationException:
            # Retention has removed one of the files meanwhile; or the commit went through and its answer was lost, and
            # the new files are the table's. So none is deleted: `ketch archive expire` finds those that no table has.
            table.table.refresh()
            continue
        went, came = went + len(group), came + len(new)
    return went, came


def _small_neighbours(files: list[DataFile], target: int, least: int) -> Iterator[list[DataFile]]:
    for own in by_partition(files).values():
        group: list[DataFile] = []
        size = 0
        for file in own:
            small = file.file_size_in_bytes < target // 2
            fits = small and size + file.file_size_in_bytes <= target
            if group and (not fits or file.partition[1] != group[0].partition[1]):
                if len(group) >= least:
                    yield group
                group, size = [], 0
            if small:
                group.append(file)
                size += file.file_size_in_bytes
        if len(group) >= least:
            yield group


def _rows(table: ArchiveTable, files: list[DataFile]) -> Iterator[pa.RecordBatch]:
    for file in files:
        with table.table.io.new_input(file.file_path).open() as source:
            parquet = pq.ParquetFile(source)
            for number in range(parquet.num_row_groups):
                yield from parquet.read_row_group(number, use_threads=False).combine_chunks().to_batches()


# -- snapshots and files


def expire_snapshots(table: ArchiveTable, older_than_s: float) -> Removed:
    """Forgets old snapshots and deletes the files that only they refer to; the current snapshot stays."""
    before = datetime.fromtimestamp(time.time() - older_than_s, UTC)
    known = table.table.metadata.snapshots
    held = _Reachable()
    held.add(table, [snapshot.snapshot_id for snapshot in known if snapshot.timestamp_ms < before.timestamp() * 1000])
    if not held.lists:
        return Removed()

    def step(transaction: Transaction) -> bool:
        ExpireSnapshots(transaction).older_than(before).commit()
        return True

    table.attempt(step)
    still = _Reachable()
    still.add(table, _witnesses(table))
    files = held.data.keys() - still.data.keys()
    remove(table.table.io, [*files, *(held.manifests - still.manifests), *(held.lists - still.lists)])
    return Removed(
        snapshots=len(held.lists - still.lists),
        files=len(files) + len(held.manifests - still.manifests) + len(held.lists - still.lists),
        bytes=sum(held.data[path] for path in files),
    )


def _witnesses(table: ArchiveTable) -> list[int]:
    """Snapshots that together refer to every file which both a remaining and an expired snapshot refer to.

    A file that was removed from a table does not come back. So where each snapshot is the child of the one before, the
    oldest is enough: it saves reading the manifest list of each later one.
    """
    metadata = table.table.metadata
    line = sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    chained = all(child.parent_snapshot_id == parent.snapshot_id for parent, child in pairwise(line))
    if chained and metadata.refs.keys() <= {MAIN_BRANCH}:
        line = [line[0], line[-1]]
    return [snapshot.snapshot_id for snapshot in line]


class _Reachable:
    """The files that snapshots refer to; data files with their size."""

    def __init__(self) -> None:
        self.lists: set[str] = set()
        self.manifests: set[str] = set()
        self.data: dict[str, int] = {}

    def add(self, table: ArchiveTable, snapshot_ids: Iterable[int]) -> None:
        for snapshot_id in snapshot_ids:
            snapshot = table.table.metadata.snapshot_by_id(snapshot_id)
            if snapshot is None:
                continue
            self.lists.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.table.io):
                if manifest.manifest_path not in self.manifests:
                    self.manifests.add(manifest.manifest_path)
                    self.data.update((file.file_path, file.file_size_in_bytes) for file in _files(table, manifest))


def remove_orphans(table: ArchiveTable, older_than_s: float) -> Removed:
    """Deletes data files that no snapshot refers to: those of tasks and jobs that were killed.

    Args:
        older_than_s: younger files are spared, for their commit may be on its way.
    """
    listed = dict(_listed(table, older_than_s))
    table.table.refresh()  # a listed file that is still needed is in the table by now
    held = _Reachable()
    held.add(table, [snapshot.snapshot_id for snapshot in table.table.metadata.snapshots])
    wanted = {_path(path) for path in held.data}
    orphans = {path: size for path, size in listed.items() if _path(path) not in wanted}
    remove(table.table.io, orphans)
    return Removed(files=len(orphans), bytes=sum(orphans.values()))


def _listed(table: ArchiveTable, older_than_s: float) -> Iterator[tuple[str, int]]:
    """URL and size of each old file in the table's data directory; none where FileIO cannot list."""
    io, directory = table.table.io, table.target.directory
    if not isinstance(io, PyArrowFileIO):
        return
    parts = urlsplit(directory)
    scheme, netloc, path = io.parse_location(directory, io.properties)
    filesystem = io.fs_by_scheme(scheme, netloc)
    selector = pafs.FileSelector(path, recursive=True, allow_not_found=True)
    for info in filesystem.get_file_info(selector):
        if info.type == pafs.FileType.File and info.mtime_ns / 1e9 < time.time() - older_than_s:
            inner = info.path[len(path) :].lstrip("/")
            yield f"{parts.geturl().rstrip('/')}/{inner}", info.size


def _path(url: str) -> str:
    """Without the scheme: `s3a://` and `s3://`, `file:/` and `file:///` are the same."""
    return url.partition(":")[2].lstrip("/") if ":" in url else url.lstrip("/")


def drop(catalog: Catalog, table: ArchiveTable) -> None:
    """Removes a table with everything that was written for it."""
    metadata = table.table.metadata
    held = _Reachable()
    held.add(table, [snapshot.snapshot_id for snapshot in metadata.snapshots])
    data = {path for path, _ in _listed(table, 0)} or held.data
    with contextlib.suppress(NoSuchTableError):
        catalog.drop_table(identifier(table.topic))
    locations = [entry.metadata_file for entry in metadata.metadata_log]
    remove(table.table.io, [*data, *held.manifests, *held.lists, *locations, table.metadata_location])
