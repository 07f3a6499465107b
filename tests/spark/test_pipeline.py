"""The example pipeline from end to end: every figure as plain Python computes it from the records that went in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from confluent_kafka import Consumer, TopicPartition

from examples.orders import expected, generate
from tests.support.ketch import KetchServer

pytest.importorskip("pyspark", reason="the extra spark is not installed")
pytest.importorskip("pyiceberg", reason="the extra spark is not installed")

ROOT = Path(__file__).parent.parent.parent
ORDERS, SEED = 2000, 7
needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="java is missing: Spark runs on it")


def figures() -> expected.Figures:
    customers = generate.customers(generate.customer_count(ORDERS), SEED)
    return expected.expected(generate.waves(ORDERS, SEED), customers)


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`make pipeline` without make."""
    command = [sys.executable, "-m", "examples.orders", "--orders", str(ORDERS), "--seed", str(SEED)]
    command += ["--data-dir", str(home), *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=600)


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")]))
    # A short run: compiling twice costs more than it brings.
    java = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "SPARK_LOCAL_IP": "127.0.0.1"}
    return {**os.environ, **java, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}


def consumed(bootstrap: str, topic: str) -> list[Any]:
    """Everything in a topic, in the order of its partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    messages: list[Any] = []
    for partition in consumer.list_topics(topic, 10).topics[topic].partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)
        consumer.assign([TopicPartition(topic, partition, low)])
        count = len(messages) + high - low
        while len(messages) < count:
            messages += [message for message in consumer.consume(count - len(messages), 1.0) if not message.error()]
    consumer.close()
    return messages


def table(home: Path, name: str) -> list[dict[str, Any]]:
    from ketch.lake.catalog import open_catalog

    rows: list[dict[str, Any]] = open_catalog("ketch", home).load_table(("shop", name)).scan().to_arrow().to_pylist()
    return rows


def sums(row: dict[str, Any]) -> expected.Sums:
    return row["orders"], row["units"], row["cents"]


def test_orders_are_what_the_example_says() -> None:
    wanted = figures()
    assert len({reason for _, reason in wanted.dead}) == 5
    assert wanted.late > 10
    assert wanted.duplicates > 10
    assert wanted.revenue
    assert wanted.sessions
    assert any(order["region"] == "unknown" for order in wanted.orders)
    assert len(wanted.dead) + wanted.late + wanted.duplicates + len(wanted.orders) == ORDERS


def check(home: Path) -> None:
    """Compares what a run has left in its directory, the topics through a broker that is started on it anew."""
    wanted = figures()
    broker = KetchServer(home).start()
    try:
        clean = [json.loads(message.value()) for message in consumed(broker.bootstrap, "orders.clean")]
        dead, revenue = consumed(broker.bootstrap, "orders.dead-letter"), consumed(broker.bootstrap, "revenue")
    finally:
        assert broker.stop() == 0
    check_topics(dead, revenue, wanted)
    assert sorted(order["order"] for order in clean) == sorted(order["order"] for order in wanted.orders)
    check_tables(lambda name: table(home, name), wanted)
    left_out = json.loads((home / "left-out.json").read_text())
    assert left_out == {"dead": expected.reasons(wanted), "duplicates": wanted.duplicates, "late": wanted.late}


def check_topics(dead: list[Any], revenue: list[Any], wanted: expected.Figures) -> None:
    found = sorted((message.value(), dict(message.headers())["reason"].decode()) for message in dead)
    assert found == sorted(wanted.dead)
    assert len({dict(message.headers())["source"] for message in dead}) == len(dead)
    rows = [json.loads(message.value()) for message in revenue]
    check_revenue([row | {"minute": datetime.fromisoformat(row["minute"])} for row in rows], wanted)


def check_tables(table: Callable[[str], list[dict[str, Any]]], wanted: expected.Figures) -> None:
    by_name = sorted(wanted.orders, key=lambda order: order["order"])
    assert sorted(table("orders"), key=lambda row: row["order"]) == by_name
    check_revenue(table("revenue"), wanted)
    rows = table("sessions")
    assert {(row["customer"], row["begin"], row["end"]): sums(row) for row in rows} == wanted.sessions
    assert len(rows) == len(wanted.sessions)


def check_revenue(rows: list[dict[str, Any]], wanted: expected.Figures) -> None:
    assert {(row["minute"], row["region"]): sums(row) for row in rows} == wanted.revenue
    assert len(rows) == len(wanted.revenue)


@pytest.mark.long(minutes=2)
@needs_java
def test_every_figure(tmp_path: Path) -> None:
    done = run(tmp_path / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "/s  lag " in done.stdout
    assert "Revenue of closed minutes" in done.stdout
    words = {
        text.text
        for text in ElementTree.parse(tmp_path / "run" / "revenue.svg").iter("{http://www.w3.org/2000/svg}text")
    }
    assert {"Revenue of closed minutes", "revenue per minute", "minute of the shop's day", "north"} <= words
    check(tmp_path / "run")


@needs_java
@pytest.mark.long(minutes=3)
def test_every_figure_on_a_cluster(tmp_path: Path) -> None:
    done = run(tmp_path / "run", "--cluster")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Spark spark://" in done.stdout
    check(tmp_path / "run")


@needs_java
@pytest.mark.long(minutes=3)
def test_every_figure_declared(tmp_path: Path) -> None:
    home = tmp_path / "run"
    done = run(home, "--declarative")
    log = home / "pipeline.log"
    assert done.returncode == 0, done.stdout + done.stderr + (log.read_text() if log.exists() else "")
    waves = [record for wave in generate.waves(ORDERS, SEED) for record in wave]
    wanted = expected.expected([waves], generate.customers(generate.customer_count(ORDERS), SEED))
    assert wanted.late == 0

    def table(name: str) -> list[dict[str, Any]]:
        from examples.orders import declarative

        rows: list[dict[str, Any]] = declarative.read(home / "pipeline", name).to_pylist()
        return rows

    check_tables(table, wanted)
    broker = KetchServer(home).start()
    try:
        dead, revenue = consumed(broker.bootstrap, "orders.dead-letter"), consumed(broker.bootstrap, "revenue")
    finally:
        assert broker.stop() == 0
    check_topics(dead, revenue, wanted)


def test_missing_java_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    done = run(tmp_path / "run")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("orders: Spark needs Java")
    assert len(done.stderr.splitlines()) == 1


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run(tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "is not empty" in done.stderr or "needs Java" in done.stderr
