"""Engines that are not Ketch's read and count its tables; an object store holds them, and other catalogs name them."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="the spark extra is not installed")

from ketch.lake.catalog import open_catalog
from ketch.lake.cold import Cold
from ketch.lake.files import write_files
from ketch.lake.maintenance import compact, drop, expire_snapshots, remove_orphans
from ketch.lake.parquet import io_properties
from ketch.lake.schema import to_lake
from ketch.lake.table import ArchiveTable, Source, Written
from ketch.records.arrow import to_arrow
from tests.support.archives import Row, records
from tests.support.ketch import eventually

T0 = 1_700_006_400_000
ROWS = [
    Row(0, T0, b"k", b"v", ((b"h", b"1"), (b"h", None))),
    Row(1, -1, None, None),
    Row(2, 2**62, b"", b"", ((b"\xff", b""),)),
    Row(7, T0 + 1, "ключ".encode(), b"\x00\xff"),
]


def fill(table: ArchiveTable) -> None:
    """Three commits: an odd lot of records, and two times a hundred."""
    table.commit([written(table, ROWS, 0, 10)])
    for start in (10, 110):
        rows = [Row(n, T0 + n, b"k%d" % (n % 7), b"v%d" % n) for n in range(start, start + 100)]
        table.commit([written(table, rows, start, start + 100)])


def written(table: ArchiveTable, rows: list[Row], start: int, end: int) -> Written:
    return Written(0, start, end, write_files(table.target, 0, [to_lake(records(rows), 0, T0)]))


# -- DuckDB


@pytest.fixture
def local(tmp_path: Path) -> Iterator[ArchiveTable]:
    catalog = open_catalog("test-of-ketch", tmp_path)
    yield ArchiveTable.open(catalog, Source("orders.v1", "id", "dense", 10))
    catalog.engine.dispose()  # type: ignore[attr-defined]


@pytest.fixture
def duck() -> Any:
    """A connection with the Iceberg extension, as the packages duckdb-extension-* bring it."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    connection = duckdb.connect()
    for name in ("avro", "iceberg"):
        spec = importlib.util.find_spec(f"duckdb_extension_{name}")
        if spec is None or spec.origin is None:
            pytest.skip(f"duckdb-extension-{name} is not installed")
        file = Path(spec.origin).parent / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
        if not file.exists():
            pytest.skip(f"duckdb-extension-{name} is for another DuckDB than {duckdb.__version__}")
        connection.execute(f"LOAD '{file}'")
    return connection


def test_duckdb_reads_and_counts(local: ArchiveTable, duck: Any) -> None:
    fill(local)
    scan = f"iceberg_scan('{local.metadata_location}')"
    assert duck.execute(f'SELECT count(*), count(DISTINCT "offset") FROM {scan}').fetchall() == [(204, 204)]
    columns = '"offset", epoch_ms(timestamp), key, value, headers, exact.timestamp_ms, epoch_ms(append_time)'
    assert duck.execute(f'SELECT {columns} FROM {scan} WHERE "offset" < 10 ORDER BY 1').fetchall() == [
        (0, T0, b"k", b"v", [{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None, T0),
        (1, None, None, None, [], None, T0),
        (2, None, b"", b"", [{"key": "\ufffd", "value": b""}], 2**62, T0),
        (7, T0 + 1, "ключ".encode(), b"\x00\xff", [], None, T0),
    ]
    compact(local, 1 << 20, 2)
    scan = f"iceberg_scan('{local.metadata_location}')"
    assert duck.execute(f"SELECT count(*) FROM {scan} WHERE partition = 0").fetchall() == [(204,)]


# -- S3 and Glue


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a server on loopback that is S3, with a bucket, and Glue."""
    for module in ("moto", "flask"):
        if importlib.util.find_spec(module) is None:
            pytest.skip("moto[server] is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("s3") / "moto.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=output, stderr=output
        )
    endpoint = f"http://127.0.0.1:{port}"

    def bucket() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/lake", method="PUT")):
                return True
        except urllib.error.URLError:
            return False

    try:
        eventually(bucket, 60, "moto")
        yield endpoint
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("kind", ["sql", "glue"])
def test_an_object_store_holds_a_table(s3: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "TYPE": kind,
        "URI": f"sqlite:///{tmp_path}/catalog.db",
        "GLUE__ENDPOINT": s3,
        "GLUE__REGION": "us-east-1",
        "GLUE__ACCESS_KEY_ID": "id",
        "GLUE__SECRET_ACCESS_KEY": "secret",
        "WAREHOUSE": "s3://lake/warehouse",
        "S3__ENDPOINT": s3,
        "S3__ACCESS_KEY_ID": "id",
        "S3__SECRET_ACCESS_KEY": "secret",
        "S3__REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__OBJECTS__{name}", value)
    monkeypatch.setitem(os.environ, "AWS_EC2_METADATA_DISABLED", "true")
    catalog = open_catalog("objects", tmp_path / "data")
    table = ArchiveTable.open(catalog, Source("orders.v1", "id", "dense", 10))
    assert table.target.directory.startswith("s3://lake/warehouse/")
    fill(table)
    orphan = written(table, [Row(500)], 500, 501)
    assert compact(table, 1 << 20, 2) == (3, 1)
    assert expire_snapshots(table, 0).snapshots == 3
    assert remove_orphans(table, 0).files == len(orphan.files)
    cold = Cold(table.metadata_location, io_properties("objects"))
    read = to_arrow(cold.read(0, 0, 1 << 20, 210)).to_pylist()
    assert len(read) == 204
    assert (read[2]["timestamp"], read[2]["headers"]) == (2**62, [{"key": b"\xff", "value": b""}])
    drop(catalog, table)
    with urllib.request.urlopen(f"{s3}/lake?list-type=2") as answer:
        assert re.findall(rb"<Key>(.*?[^/])</Key>", answer.read()) == []  # markers of directories may stay
    if kind == "sql":
        catalog.engine.dispose()  # type: ignore[attr-defined]
