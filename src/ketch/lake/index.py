"""Which file of an archive table holds which offsets: an index in memory, built from the table's manifests; and which
snapshots a table keeps.

A manifest is immutable, so each is read once, however many snapshots list it; a refresh costs the manifests that are
new. Looking up a range is a bisection, where planning a scan would read every manifest again. Row-level delete files
are passed over: Ketch writes none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from pyiceberg.manifest import ManifestContent, read_manifest_list
from pyiceberg.serializers import FromInputFile

from ketch.lake.schema import OFFSET, TIMESTAMP

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestEntry, ManifestFile
    from pyiceberg.table.snapshots import Snapshot as TableSnapshot


class File(NamedTuple):
    """A data file of one topic partition.

    ``low`` and ``high`` are its first and last offset, ``latest`` is the latest timestamp in it in ms; None where not
    all timestamps are in the column, or the file has no statistics. ``snapshot`` is the id of the one that added it.
    """

    low: int
    high: int
    path: str
    size: int
    records: int
    latest: int | None
    snapshot: int | None


class Snapshot(NamedTuple):
    """A state of a table, and what it has beyond the one before; None where its summary does not say.

    ``at`` is in ms, ``operation`` what Iceberg calls it: append, overwrite, delete, replace.
    """

    id: int
    at: int
    operation: str
    files_added: int | None
    files_removed: int | None
    records_added: int | None
    files: int | None
    records: int | None


class Index:
    """The files of one snapshot by topic partition.

    Not to be changed by two threads at a time; reading while another refreshes sees the old snapshot or the new one.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._manifests: dict[str, dict[int, list[File]]] = {}
        self._files: dict[int, list[File]] = {}

    def refresh(self, metadata_location: str, manifest_list: str | None = None) -> None:
        """Goes to the current snapshot of a table's metadata file.

        Args:
            manifest_list: where that snapshot's is, empty where the table has none. With it the metadata is not read,
                which lists every snapshot: to parse those of a busy day holds Python's lock for 80 ms.

        Raises:
            OSError: the metadata or one of its manifests cannot be read.
            ValueError: a file has no statistics of its offsets.
        """
        if manifest_list is None:
            snapshot = FromInputFile.table_metadata(self._io.new_input(metadata_location)).current_snapshot()
            manifest_list = snapshot.manifest_list if snapshot else ""
        manifests = read_manifest_list(self._io.new_input(manifest_list)) if manifest_list else ()
        listed = {m.manifest_path: m for m in manifests if m.content == ManifestContent.DATA}
        self._manifests = {path: self._manifests.get(path) or self._read(m) for path, m in listed.items()}
        self._files = _merged(self._manifests.values())

    def _read(self, manifest: ManifestFile) -> dict[int, list[File]]:
        files: dict[int, list[File]] = {}
        for entry in manifest.fetch_manifest_entry(self._io, discard_deleted=True):
            if entry.data_file.record_count:
                files.setdefault(int(entry.data_file.partition[0]), []).append(_file(entry))
        return files

    def sizes(self) -> dict[int, int]:
        """Bytes of the files by partition."""
        return {partition: sum(file.size for file in files) for partition, files in self._files.items()}

    def some(self, first: int, count: int, partition: int | None = None) -> tuple[int, list[tuple[int, File]]]:
        """How many files there are, and `count` of them from number `first` on, each with its partition; in the order
        of partitions and offsets.

        Args:
            partition: its files alone.
        """
        files = self._files
        wanted = sorted(files) if partition is None else [partition] if partition in files else []
        total, found = 0, list[tuple[int, File]]()
        for each in wanted:
            own = files[each]
            if len(found) < count:
                low = max(0, first - total)
                found += [(each, file) for file in own[low : low + count - len(found)]]
            total += len(own)
        return total, found

    def overlapping(self, partition: int, start: int, end: int) -> list[File]:
        """The files that hold offsets from `start` up to `end`, exclusive; offsets rise from one to the next."""
        files = self._files.get(partition, [])
        first = bisect_left(files, start, key=lambda file: file.high)
        after = bisect_left(files, end, lo=first, key=lambda file: file.low)
        return files[first:after]


def snapshots(io: FileIO, metadata_location: str) -> list[Snapshot]:
    """The snapshots that a table's metadata file lists, the newest first.

    Raises:
        OSError: the file cannot be read.
    """
    listed = FromInputFile.table_metadata(io.new_input(metadata_location)).snapshots
    return [_snapshot(each) for each in sorted(listed, key=lambda each: -(each.sequence_number or 0))]


def _snapshot(of: TableSnapshot) -> Snapshot:
    told = of.summary.additional_properties if of.summary is not None else {}
    names = ("added-data-files", "deleted-data-files", "added-records", "total-data-files", "total-records")
    added, removed, records, files, total = (int(told[name]) if name in told else None for name in names)
    operation = of.summary.operation.value if of.summary is not None else ""
    return Snapshot(of.snapshot_id, of.timestamp_ms, operation, added, removed, records, files, total)


def _merged(manifests: Iterable[dict[int, list[File]]]) -> dict[int, list[File]]:
    merged: dict[int, list[File]] = {}
    for files in manifests:
        for partition, some in files.items():
            merged.setdefault(partition, []).extend(some)
    for some in merged.values():
        some.sort()
    return merged


def _file(entry: ManifestEntry) -> File:
    data = entry.data_file
    lower, upper = data.lower_bounds or {}, data.upper_bounds or {}
    if OFFSET not in lower or OFFSET not in upper:
        raise ValueError(f"{data.file_path} has no statistics of its offsets")
    nulls = (data.null_value_counts or {}).get(TIMESTAMP)
    latest = number(upper[TIMESTAMP]) // 1000 if TIMESTAMP in upper and nulls == 0 else None
    low, high = number(lower[OFFSET]), number(upper[OFFSET])
    return File(low, high, data.file_path, data.file_size_in_bytes, data.record_count, latest, entry.snapshot_id)


def number(bound: bytes) -> int:
    """A bound of a column of longs or times, as manifests have it (Iceberg's appendix D)."""
    return int.from_bytes(bound, "little", signed=True)
