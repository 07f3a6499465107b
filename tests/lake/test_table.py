"""Tables: files and how far a partition is archived in one commit, whatever else happens to the table meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="the spark extra is not installed")

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table

from ketch.errors import ConfigError
from ketch.lake.catalog import open_catalog
from ketch.lake.files import write_files
from ketch.lake.maintenance import (
    Retention,
    compact,
    contents,
    data_files,
    drop,
    expire_records,
    expire_snapshots,
    remove_orphans,
)
from ketch.lake.schema import DAY_MS, to_lake
from ketch.lake.table import ArchiveConflict, ArchiveTable, Progress, Source, Written
from tests.support.archives import Row, records

T0 = 1_700_006_400_000  # 2023-11-15T00:00Z
KEEP = -1
SOURCE = Source("orders.v1-eu", "11111111-2222-3333-4444-555555555555", "dense", 10)


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path / "none"))
    opened = open_catalog("test-of-ketch", tmp_path)
    yield opened
    close(opened)


def close(catalog: Catalog) -> None:
    catalog.engine.dispose()  # type: ignore[attr-defined]


@pytest.fixture
def table(catalog: Catalog) -> ArchiveTable:
    return ArchiveTable.open(catalog, SOURCE)


def part(
    table: ArchiveTable, start: int, end: int, partition: int = 0, appended: int = T0, value: bytes = b"v"
) -> Written:
    rows = records([Row(n, T0 + n, b"%d" % n, value) for n in range(start, end)])
    files = write_files(table.target, partition, [to_lake(rows, partition, appended)])
    return Written(partition, start, end, files)


def offsets(table: ArchiveTable, partition: int = 0) -> list[int]:
    table.table.refresh()
    found = table.table.scan(f"partition = {partition}", selected_fields=("offset",)).to_arrow()
    return sorted(found.column("offset").to_pylist())


def on_disk(table: ArchiveTable) -> set[str]:
    return {str(path) for path in Path(table.table.location().removeprefix("file://")).rglob("*.*") if path.is_file()}


# -- commits


def test_files_and_progress_move_together(table: ArchiveTable, catalog: Catalog) -> None:
    table.commit([part(table, 5, 10), part(table, 100, 102, partition=3)])
    again = ArchiveTable.open(catalog, SOURCE)
    assert again.progress() == {0: Progress(5, 10), 3: Progress(100, 102)}
    again.commit([part(again, 10, 12)])
    assert again.progress()[0] == Progress(5, 12)
    assert offsets(again) == list(range(5, 12))
    assert offsets(again, 3) == [100, 101]
    assert again.records == 9


def test_a_batch_that_is_repeated_adds_nothing(table: ArchiveTable, catalog: Catalog) -> None:
    written = [part(table, 0, 10)]
    table.commit(written)
    location = table.metadata_location
    table.commit(written)
    table.commit([part(table, 0, 10), part(table, 7, 9)])
    assert table.metadata_location == location
    assert offsets(ArchiveTable.open(catalog, SOURCE)) == list(range(10))


@pytest.mark.parametrize(("start", "end"), [(5, 15), (11, 15)])
def test_a_range_that_does_not_follow_is_refused(table: ArchiveTable, start: int, end: int) -> None:
    table.commit([part(table, 0, 10)])
    with pytest.raises(ArchiveConflict, match="Another job archives orders"):
        table.commit([part(table, start, end)])
    assert offsets(table) == list(range(10))


def test_the_second_of_two_writers_looks_again(table: ArchiveTable, catalog: Catalog) -> None:
    other = ArchiveTable.open(catalog, SOURCE)
    other.commit([part(other, 0, 5, partition=1)])
    table.commit([part(table, 0, 7)])  # on metadata that is no longer the newest
    assert offsets(table) == list(range(7))
    assert offsets(table, 1) == list(range(5))
    other.commit([part(other, 0, 7)])  # the very range that the first has committed
    assert offsets(other) == list(range(7))


@pytest.mark.parametrize(
    ("lost", "went_through"),
    [(CommitStateUnknownException, True), (CommitStateUnknownException, False), (CommitFailedException, False)],
)
def test_an_answer_that_was_lost(
    table: ArchiveTable, monkeypatch: pytest.MonkeyPatch, lost: type[Exception], went_through: bool
) -> None:
    plain: Callable[..., Any] = Table._do_commit
    calls: list[int] = []

    def commit(self: Table, updates: Any, requirements: Any) -> None:
        calls.append(1)
        if len(calls) > 1 or went_through:
            plain(self, updates, requirements)
        if len(calls) == 1:
            raise lost("no answer")

    monkeypatch.setattr(Table, "_do_commit", commit)
    table.commit([part(table, 0, 10)])
    assert offsets(table) == list(range(10))
    assert table.progress() == {0: Progress(0, 10)}


def test_a_range_without_records_moves_progress(table: ArchiveTable) -> None:
    table.commit([Written(0, 0, 50, [])])
    assert table.progress() == {0: Progress(0, 50)}
    table.commit([part(table, 50, 51)])
    assert offsets(table) == [50]


def test_another_topic_of_the_name_is_refused(table: ArchiveTable, catalog: Catalog) -> None:
    other = Source(SOURCE.topic, "99999999-2222-3333-4444-555555555555", "dense", 10)
    with pytest.raises(ArchiveConflict, match="rename it in the catalog, or remove it with `ketch archive drop"):
        ArchiveTable.open(catalog, other)
    catalog.rename_table(("ketch", SOURCE.topic), ("ketch", "old"))
    ArchiveTable.open(catalog, other)


# -- files


def test_a_file_for_each_day_of_append(table: ArchiveTable) -> None:
    rows = [Row(n, T0, b"k", None) for n in range(10)]
    times = pa.array([T0 + n * DAY_MS // 4 for n in range(10)])
    files = write_files(table.target, 0, [to_lake(records(rows), 0, times)])
    assert [(file.partition[1] - files[0].partition[1], file.record_count) for file in files] == [
        (0, 4),
        (1, 4),
        (2, 2),
    ]
    table.commit([Written(0, 0, 10, files)])
    assert offsets(table) == list(range(10))
    assert table.table.scan(f"append_time >= '{day(1)}' and append_time < '{day(2)}'").count() == 4


def day(n: int) -> str:
    return time.strftime("%Y-%m-%dT00:00:00+00:00", time.gmtime((T0 + n * DAY_MS) / 1000))


def test_a_file_that_fails_leaves_nothing(table: ArchiveTable) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        for n in range(3):
            yield to_lake(records([Row(n)]), 0, T0 + n * DAY_MS)
        raise OSError("gone")

    before = on_disk(table)
    with pytest.raises(OSError, match="gone"):
        write_files(table.target, 0, rows())
    assert on_disk(table) == before


def test_row_groups_are_small(table: ArchiveTable) -> None:
    import pyarrow.parquet as pq

    (file,) = part(table, 0, 20_000).files
    metadata = pq.read_metadata(file.file_path.removeprefix("file://"))
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [8192, 8192, 3616]
    assert metadata.row_group(0).column(1).statistics.max == 8191


# -- maintenance


def test_retention_by_time_takes_whole_files_from_the_front(table: ArchiveTable) -> None:
    for n in range(4):
        table.commit([part(table, n * 10, n * 10 + 10, appended=T0 + n * DAY_MS)])
    table.commit([part(table, 0, 5, partition=1, appended=T0 + 3 * DAY_MS)])
    removed = expire_records(table, Retention(DAY_MS, KEEP, False), {}, T0 + 3 * DAY_MS)
    assert (removed.records, removed.data_files) == (20, 2)
    assert offsets(table) == list(range(20, 40))
    assert table.progress() == {0: Progress(20, 40), 1: Progress(0, 5)}
    expire_records(table, Retention(0, KEEP, False), {}, T0 + 9 * DAY_MS)
    assert offsets(table) == []
    assert table.progress() == {0: Progress(40, 40), 1: Progress(5, 5)}
    table.commit([part(table, 40, 41)])
    assert offsets(table) == [40]


def test_retention_by_timestamp_for_dense_topics(table: ArchiveTable) -> None:
    table.commit([part(table, 0, 10, appended=T0 + 9 * DAY_MS)])
    table.commit([part(table, 10, 20, appended=T0 + 9 * DAY_MS)])
    expire_records(table, Retention(5, KEEP, True), {}, T0 + 15)
    assert offsets(table) == list(range(10, 20))


def test_retention_by_size(table: ArchiveTable) -> None:
    for n in range(3):
        table.commit([part(table, n * 10, n * 10 + 10)])
    size = contents(table)[0][2]
    expire_records(table, Retention(KEEP, size, False), {}, T0)
    assert len(offsets(table)) == 30
    expire_records(table, Retention(KEEP, size - 1, False), {}, T0)
    assert offsets(table) == list(range(10, 30))


def test_deleted_records_go_with_their_files(table: ArchiveTable) -> None:
    table.commit([part(table, 0, 10)])
    table.commit([part(table, 10, 20)])
    expire_records(table, Retention(KEEP, KEEP, False), {0: 15}, T0)
    assert offsets(table) == list(range(10, 20))
    assert table.progress() == {0: Progress(15, 20)}


def test_nothing_to_expire_is_no_commit(table: ArchiveTable) -> None:
    table.commit([part(table, 0, 10)])
    location = table.metadata_location
    expire_records(table, Retention(DAY_MS, KEEP, False), {}, T0)
    assert table.metadata_location == location


def test_compaction_keeps_every_record(table: ArchiveTable) -> None:
    for n in range(6):
        table.commit([part(table, n * 10, n * 10 + 10, appended=T0 + (n // 3) * DAY_MS)])
    table.commit([part(table, 0, 5, partition=1)])
    before = table.table.scan().to_arrow().sort_by([("partition", "ascending"), ("offset", "ascending")])
    progress = table.progress()
    assert compact(table, 1 << 20, 2) == (6, 2)  # one for each day
    assert sorted(file.record_count for file in data_files(table)) == [5, 30, 30]
    after = table.table.scan().to_arrow().sort_by([("partition", "ascending"), ("offset", "ascending")])
    assert after.equals(before)
    assert table.progress() == progress
    assert compact(table, 1 << 20, 2) == (0, 0)


def test_compaction_leaves_large_files(table: ArchiveTable) -> None:
    for n in range(4):
        table.commit([part(table, n * 10, n * 10 + 10)])
    size = min(file.file_size_in_bytes for file in data_files(table))
    assert compact(table, 2 * size, 2) == (0, 0)
    assert compact(table, 8 * size, 2) == (4, 1)


def test_compaction_while_the_job_and_retention_work(
    table: ArchiveTable, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        table.commit([part(table, n * 10, n * 10 + 10)])
    plain = table.replace
    other = ArchiveTable.open(catalog, SOURCE)

    def replace(*args: Any) -> Any:
        other.table.refresh()
        other.commit([part(other, 30, 40)])
        return plain(*args)

    monkeypatch.setattr(table, "replace", replace)
    assert compact(table, 1 << 20, 2) == (3, 1)
    assert offsets(table) == list(range(40))

    def expire(*args: Any) -> Any:
        expire_records(other, Retention(KEEP, KEEP, False), {0: 30}, T0)
        return plain(*args)

    other.table.refresh()
    monkeypatch.setattr(table, "replace", expire)
    assert compact(table, 1 << 20, 2) == (0, 0)
    assert offsets(table) == list(range(30, 40))


def test_compaction_whose_answer_was_lost(table: ArchiveTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(3):
        table.commit([part(table, n * 10, n * 10 + 10)])
    plain: Callable[..., Any] = Table._do_commit

    def commit(self: Table, updates: Any, requirements: Any) -> None:
        monkeypatch.setattr(Table, "_do_commit", plain)
        plain(self, updates, requirements)
        raise CommitStateUnknownException("no answer")

    monkeypatch.setattr(Table, "_do_commit", commit)
    compact(table, 1 << 20, 2)
    assert offsets(table) == list(range(30))


def test_files_of_forgotten_snapshots_are_removed(table: ArchiveTable) -> None:
    for n in range(4):
        table.commit([part(table, n * 10, n * 10 + 10)])
    compact(table, 1 << 20, 2)
    before = on_disk(table)
    assert expire_snapshots(table, 3600).snapshots == 0
    assert on_disk(table) == before
    removed = expire_snapshots(table, 0)
    assert removed.snapshots == 4
    assert removed.bytes > 0
    assert sum(path.endswith(".parquet") for path in on_disk(table)) == 1
    assert offsets(table) == list(range(40))
    assert len(table.table.metadata.snapshots) == 1
    table.commit([part(table, 40, 50)])
    assert offsets(table) == list(range(50))


def test_orphans_are_removed_and_young_files_spared(table: ArchiveTable) -> None:
    table.commit([part(table, 0, 10)])
    orphan = part(table, 10, 20).files[0]
    assert remove_orphans(table, 3600).files == 0
    assert remove_orphans(table, 0).files == 1
    assert not Path(orphan.file_path.removeprefix("file://")).exists()
    assert offsets(table) == list(range(10))


def test_drop_leaves_nothing(table: ArchiveTable, catalog: Catalog) -> None:
    for n in range(3):
        table.commit([part(table, n * 10, n * 10 + 10)])
    part(table, 30, 40)
    expire_records(table, Retention(KEEP, KEEP, False), {0: 10}, T0)
    drop(catalog, table)
    assert on_disk(table) == set()
    assert ArchiveTable.find(catalog, SOURCE.topic) is None


def test_many_commits_keep_few_metadata_files(table: ArchiveTable) -> None:
    for n in range(22):
        table.commit([part(table, n, n + 1)])
    assert sum(path.endswith(".metadata.json") for path in on_disk(table)) == 21


# -- catalogs


def test_pyicebergs_configuration_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__ELSEWHERE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__ELSEWHERE__URI", f"sqlite:///{tmp_path}/own.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__ELSEWHERE__WAREHOUSE", f"file://{tmp_path}/own")
    opened = open_catalog("elsewhere", tmp_path / "data")
    made = ArchiveTable.open(opened, SOURCE)
    made.commit([part(made, 0, 3)])
    assert made.metadata_location.startswith(f"file://{tmp_path}/own")
    assert not (tmp_path / "data").exists()
    close(opened)


def test_a_catalog_that_cannot_be_opened_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__BROKEN__TYPE", "sqll")
    with pytest.raises(ConfigError, match=r"^The Iceberg catalog broken cannot be opened: .*[^\n]$"):
        open_catalog("broken", tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used: Not a directory"):
        open_catalog("test-of-ketch", tmp_path / "file")
