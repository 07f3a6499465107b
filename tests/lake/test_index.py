"""The index of a table's files, and reading by offset and by time through it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg", reason="the spark extra is not installed")

from ketch.lake.cold import Cold
from ketch.lake.index import Index
from ketch.lake.parquet import Cache
from ketch.records import DecodedBatch
from ketch.records.arrow import to_arrow
from tests.support.archives import Archive, Row

T0 = 1_700_000_000_000


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    made = Archive(tmp_path)
    yield made
    made.close()


def rows(*offsets: int) -> list[Row]:
    return [Row(offset, T0 + offset, b"k%d" % offset, b"v" * 10, ((b"h", None),)) for offset in offsets]


def offsets(batches: list[DecodedBatch]) -> list[int]:
    return to_arrow(batches).column("offset").to_pylist()


def bounds(cold: Cold, partition: int) -> tuple[int, int] | None:
    ranges = cold.ranges(partition, 0, 1 << 62)
    return (ranges[0].start, ranges[-1].end) if ranges else None


def test_reads_across_files_and_row_groups(archive: Archive) -> None:
    archive.append(0, rows(*range(0, 20, 2)))
    archive.append(1, rows(1, 2, 3))
    archive.append(0, rows(*range(30, 50)))
    cold = Cold(archive.location, {})
    assert bounds(cold, 0) == (0, 50)
    assert bounds(cold, 1) == (1, 4)
    assert bounds(cold, 2) is None
    assert offsets(cold.read(0, 3, 1 << 20, 100)) == [*range(4, 20, 2), *range(30, 50)]
    assert offsets(cold.read(0, 19, 1 << 20, 32)) == [30, 31]
    assert offsets(cold.read(1, 0, 1 << 20, 100)) == [1, 2, 3]
    assert cold.read(0, 20, 1 << 20, 30) == []
    assert cold.read(0, 50, 1 << 20, 100) == []
    assert cold.read(2, 0, 1 << 20, 100) == []


def test_a_record_comes_back_as_it_was(archive: Archive) -> None:
    odd = [
        Row(1, -1, None, b""),
        Row(2, 2**62, b"", None, ((b"", b""), (b"\xff", None), (b"a", b"1"), (b"a", b"2"))),
        Row(3, -(2**62), b"\x00", b"\xff" * 1000),
    ]
    archive.append(0, odd)
    batches = Cold(archive.location, {}).read(0, 0, 1 << 20, 100)
    found = to_arrow(batches).to_pylist()
    assert [Row(**{**r, "headers": tuple((h["key"], h["value"]) for h in r["headers"])}) for r in found] == odd


@pytest.mark.parametrize("max_bytes", [0, 1, 100, 250])
def test_max_bytes_and_at_least_one(archive: Archive, max_bytes: int) -> None:
    archive.append(0, rows(*range(30)))
    cold = Cold(archive.location, {})
    read: list[int] = []
    while read[-1:] != [29]:
        batches = cold.read(0, len(read), max_bytes, 100)
        some = offsets(batches)
        assert some
        assert len(some) == 1 or sum(len(batch.records) for batch in batches) <= max_bytes
        read += some
    assert read == list(range(30))


def test_log_append_time_splits_by_timestamp(archive: Archive) -> None:
    archive.append(0, [Row(n, T0 + n // 3) for n in range(9)])
    batches = Cold(archive.location, {}).read(0, 0, 1 << 20, 100, split_timestamps=True)
    assert all(batch.base_timestamp == batch.max_timestamp for batch in batches)
    assert offsets(batches) == list(range(9))


def test_first_at_or_after(archive: Archive) -> None:
    stamps = [5, 3, -1, 9, 4, 7, 2, 8, 1, 9]
    archive.append(0, [Row(n, T0 + stamp if stamp >= 0 else -1) for n, stamp in enumerate(stamps)])
    archive.append(0, [Row(10, T0 + 12), Row(11, 2**61), Row(12, T0 + 20)])
    cold = Cold(archive.location, {})
    assert cold.first_at_or_after(0, T0) == (0, T0 + 5)
    assert cold.first_at_or_after(0, T0 + 6) == (3, T0 + 9)
    assert cold.first_at_or_after(0, T0 + 10) == (10, T0 + 12)
    assert cold.first_at_or_after(0, T0 + 13) == (11, 2**61)
    assert cold.first_at_or_after(0, 2**62) is None
    assert cold.first_at_or_after(0, T0, 4, 6) == (4, T0 + 4)
    assert cold.first_at_or_after(0, T0 + 9, 4, 9) is None
    assert cold.first_at_or_after(1, T0) is None


def test_latest_timestamp(archive: Archive) -> None:
    archive.append(0, [Row(n, T0 + stamp) for n, stamp in enumerate([5, 9, 3, 9, 1])])
    archive.append(0, [Row(n, T0 + stamp) for n, stamp in enumerate([2, 9, 8], 10)])
    cold = Cold(archive.location, {})
    assert cold.latest_timestamp(0) == (1, T0 + 9)
    assert cold.latest_timestamp(0, 2) == (3, T0 + 9)
    assert cold.latest_timestamp(0, 4, 11) == (10, T0 + 2)
    assert cold.latest_timestamp(0, 20) is None


def test_a_refresh_reads_new_manifests_only(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.append(0, rows(0, 1))
    cold = Cold(archive.location, {})
    read: list[str] = []
    plain = Index._read
    monkeypatch.setattr(Index, "_read", lambda self, m: read.append(m.manifest_path) or plain(self, m))
    archive.append(0, rows(2, 3))
    archive.append(1, rows(7))
    cold.refresh(archive.location)
    assert len(read) == 2
    assert offsets(cold.read(0, 0, 1 << 20, 100)) == [0, 1, 2, 3]
    cold.refresh(archive.location)
    assert len(read) == 2


def test_a_manifest_list_spares_the_metadata(archive: Archive) -> None:
    cold = Cold("file:///nowhere/0.metadata.json", {}, manifest_list="")
    assert bounds(cold, 0) is None
    archive.append(0, rows(0, 1))
    cold.refresh("file:///nowhere/1.metadata.json", archive.table.current_snapshot().manifest_list)
    assert offsets(cold.read(0, 0, 1 << 20, 100)) == [0, 1]


def test_files_that_were_deleted_are_not_read(archive: Archive) -> None:
    archive.append(0, rows(0, 1))
    archive.append(0, rows(2, 3))
    archive.table.delete("offset < 2")
    cold = Cold(archive.location, {})
    assert bounds(cold, 0) == (2, 4)
    archive.table.delete("offset < 4")
    cold.refresh(archive.location)
    assert bounds(cold, 0) is None


def test_ranges(archive: Archive) -> None:
    archive.append(0, rows(*range(10)))
    archive.append(0, rows(*range(20, 30)))
    assert Cold(archive.location, {}).ranges(0, 5, 22) == [(5, 10, 10), (20, 22, 10)]


def test_an_empty_table(archive: Archive) -> None:
    cold = Cold(archive.location, {})
    assert bounds(cold, 0) is None
    assert cold.ranges(0, 0, 100) == []
    assert cold.latest_timestamp(0) is None


def test_a_file_that_is_gone(archive: Archive, tmp_path: Path) -> None:
    archive.append(0, rows(0))
    cold = Cold(archive.location, {})
    for file in tmp_path.rglob("*.parquet"):
        file.unlink()
    with pytest.raises(OSError, match="parquet"):
        cold.read(0, 0, 100, 10)


def test_the_cache_keeps_to_its_size() -> None:
    cache: Cache[int, int] = Cache(10_000)
    for n in range(20):
        cache.put(n, n, 1500)
    assert [n for n in range(20) if cache.get(n) is not None] == [15, 16, 17, 18, 19]
    cache.put(99, 99, 1 << 20)
    assert cache.get(99) == 99
    assert cache.get(19) is None
