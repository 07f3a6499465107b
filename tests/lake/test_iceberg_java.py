"""Apache Iceberg's own Java reads what `ketch archive run` wrote, and keeps its catalog.

Spark 4.0.0 with `iceberg-spark-runtime` reads and counts the tables, from the default catalog in SQLite through JDBC
and from a REST catalog, and finds what pyiceberg finds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench.model import Unavailable
from bench.spark_kafka import spark_kafka
from ketch.lake.catalog import open_catalog
from tests.spark.conftest import create
from tests.support.iceberg_java import jars, missing_tools, rest_catalog
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually

pytestmark = [
    pytest.mark.long(minutes=3),  # and it fetches a second Spark (400 MB)
    pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools())),
]

RECORDS = 2000
DAYS = (1_700_006_400_000, 1_700_092_800_000)  # of entries put in by hand, below the topic's creation
TOPICS = {
    "by.time": {"retention.ms": "-1"},
    "by-count": {"retention.ms": "-1", "offset.ids": "dense", "storage.layout": "batch"},
}


@pytest.fixture
def python() -> str:
    try:
        return spark_kafka().python
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def server(start_ketch: Callable[..., KetchServer], rest: dict[str, str]) -> KetchServer:
    server = start_ketch("--retention-check-interval-ms", "100", "--archive-catalog", "rest", env=rest)
    with server.redis() as client:
        for name, configs in TOPICS.items():
            create(server, name, 2, configs)
        stream = "korvet:stream:by.time:0"
        client.xadd(stream, {"value": "by hand", "timestamp": DAYS[0]}, f"{DAYS[0]}-0")
        client.xadd(stream, {"value": "", b"header.\xff": b"\xff", "timestamp": 2**62}, f"{DAYS[1]}-5")
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 20, "compression.type": "lz4"})
    for name in TOPICS:
        for n in range(RECORDS):
            key = None if n % 3 == 0 else b"" if n % 7 == 0 else b"\x00k%d" % n
            value = None if n % 5 == 0 else "wert ü".encode() + b"%d" % n
            headers: list[tuple[str, Any]] = [("a", b"%d" % n), ("a", None), ("ü", b"")] if n % 2 else []
            timestamp = DAYS[0] + 37 * n
            producer.produce(name, value, key, n % 2, timestamp=timestamp, headers=headers)
    assert producer.flush(30) == 0
    return server


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[dict[str, str]]:
    """pyiceberg's configuration of a REST catalog under the name `rest`, for all processes."""
    directory = tmp_path / "rest"
    directory.mkdir()
    with rest_catalog(directory) as url:
        yield {"PYICEBERG_CATALOG__REST__URI": url}


def by_pyiceberg(catalog: str, data: Path, topic: str) -> list[list[Any]]:
    """The rows as the job prints them."""
    opened = open_catalog(catalog, data)
    rows = opened.load_table(("ketch", topic)).scan().to_arrow().to_pylist()
    if hasattr(opened, "engine"):
        opened.engine.dispose()
    return sorted((row_of(row) for row in rows), key=lambda row: row[:2])


def row_of(row: dict[str, Any]) -> list[Any]:
    exact = row["exact"] or {"timestamp_ms": None, "header_keys": None}
    keys = exact["header_keys"]
    headers = [[header["key"], hexed(header["value"])] for header in row["headers"]]
    times = [None if row[name] is None else micros(row[name]) for name in ("timestamp", "append_time")]
    odd = [exact["timestamp_ms"], None if keys is None else [hexed(key) for key in keys]]
    return [row["partition"], row["offset"], times[0], hexed(row["key"]), hexed(row["value"]), headers, times[1], *odd]


def hexed(value: bytes | None) -> str | None:
    return None if value is None else value.hex().upper()


def micros(moment: Any) -> int:
    return round(moment.timestamp() * 1_000_000)


def archive(server: KetchServer, data: Path, catalog: str, env: dict[str, str]) -> None:
    command = [sys.executable, "-m", "ketch", "archive", "run", "--once", "--catalog", catalog]
    command += ["--redis", server.redis_url, "--data-dir", str(data), "--interval", "0"]
    done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_icebergs_own_java(
    server: KetchServer, rest: dict[str, str], python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in rest.items():
        monkeypatch.setenv(name, value)
    for catalog in ("ketch", "rest"):
        archive(server, tmp_path, catalog, rest)
    found = read(python, tmp_path, rest)
    for catalog in ("ketch", "rest"):
        for topic in TOPICS:
            check(found[catalog][topic], by_pyiceberg(catalog, tmp_path, topic), topic)
    check_cold(server)


def check(found: dict[str, Any], rows: list[list[Any]], topic: str) -> None:
    """What Spark found in a table of which pyiceberg has these rows."""
    by_hand = 2 if topic == "by.time" else 0
    assert len(rows) == RECORDS + by_hand
    assert found["rows"] == rows
    assert found["counts"] == [[0, *[RECORDS // 2 + by_hand] * 2], [1, *[RECORDS // 2] * 2]]
    days = [day for _, day, _ in found["partitions"]]
    assert days[:by_hand] == ["2023-11-15", "2023-11-16"][:by_hand]
    assert [[part, count] for part, _, count in found["partitions"][by_hand:]] == [[n, RECORDS // 2] for n in (0, 1)]
    assert found["files with rows"] == found["files"] < found["all files"]
    assert found["snapshots"] >= 1
    if by_hand:
        assert rows[1][2:] == [None, None, "", [["\ufffd", "FF"]], DAYS[1] * 1000, 2**62, ["FF"]]


def check_cold(server: KetchServer) -> None:
    """The broker serves what only the REST catalog's tables hold."""
    with server.redis() as client:
        for topic in TOPICS:
            client.hset(f"korvet:topic:{topic}", "local.retention.ms", 0)
    with Kafka(server.port) as kafka:

        def hot(topic: str, index: int) -> int:
            start, end = (kafka.list_offsets(topic, at, partition=index).offset for at in (-4, -1))
            return int(end - start)

        for topic, index in product(TOPICS, range(2)):
            eventually(lambda t=topic, i=index: not hot(t, i), 60, "the trim")  # type: ignore[misc]
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "none", "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for topic in TOPICS for index in range(2)])
    wanted = len(TOPICS) * RECORDS + 2
    messages: list[Any] = []
    while len(messages) < wanted:
        messages += consumer.consume(wanted - len(messages), 60) or pytest.fail(f"{len(messages)} of {wanted} came")
    consumer.close()
    assert not any(message.error() for message in messages)
    assert len({(m.topic(), m.partition(), m.offset()) for m in messages}) == wanted


def read(python: str, home: Path, rest: dict[str, str]) -> dict[str, Any]:
    lake = home / "lake"
    catalogs = {
        "ketch": {"type": "jdbc", "uri": f"jdbc:sqlite:{lake}/catalog.db", "warehouse": f"file://{lake}/warehouse"},
        "rest": {"type": "rest", "uri": rest["PYICEBERG_CATALOG__REST__URI"]},
    }
    job = str(Path(__file__).with_name("iceberg_job.py"))
    pairs = [word for name, properties in catalogs.items() for word in (name, json.dumps(properties))]
    command = [python, job, ",".join(str(jar) for jar in jars("spark")), *pairs]
    left = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    env = {**left, "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])
