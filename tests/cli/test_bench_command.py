"""`ketch bench` from end to end; how fast is nobody's business here."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from ketch.cli.benching.figures import Figures
from tests.support import copies
from tests.support.cli import Ketch
from tests.support.ketch import KetchServer, eventually


@pytest.fixture
def ketch(broker: KetchServer) -> Ketch:
    return Ketch(broker)


def topics(broker: KetchServer) -> set[str]:
    return set(AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=20).topics)


def bench(ketch: Ketch, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ketch("bench", "--json", *options).stdout)
    return found


def test_all_phases_on_a_topic_of_its_own(ketch: Ketch, broker: KetchServer) -> None:
    before = topics(broker)
    options = ("-n", "300", "--size", "1kb", "--producers", "3", "--partitions", "2", "--compression", "lz4")
    produced, consumed, through = bench(ketch, *options, "--config", "offset.ids=dense")
    assert [each["phase"] for each in (produced, consumed, through)] == ["produce", "consume", "end-to-end"]
    for each in (produced, consumed, through):
        assert (each["complete"], each["records"], each["bytes"]) == (True, 300, 300 * 1024)
        assert each["records_per_second"] > 0
    for each in (produced, through):
        latency = each["latency_ms"]
        assert list(latency) == ["p50", "p95", "p99", "p99.9", "max"]
        assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["p99.9"] <= latency["max"]
    assert topics(broker) == before


def test_a_topic_that_is_there_stays(ketch: Ketch, broker: KetchServer, topic: str) -> None:
    copies.make(broker.bootstrap, topic, 1, offset_ids="dense")
    (produced,) = bench(ketch, "--topic", topic, "-n", "50", "--only", "produce", "--rate", "1000", "--acks", "1")
    assert produced["records"] == 50
    (consumed,) = bench(ketch, "--topic", topic, "--only", "consume")
    assert consumed["records"] == 50
    assert copies.ends(broker.bootstrap, topic, 1) == [50]


def test_ctrl_c_prints_what_was_measured(ketch: Ketch, broker: KetchServer) -> None:
    before = topics(broker)
    with ketch.start("bench", "-n", "1000000", "--rate", "500", "--config", "offset.ids=dense") as process:
        (made,) = eventually(lambda: topics(broker) - before, what="the topic")
        eventually(lambda: copies.ends(broker.bootstrap, made, 1) > [0], what="records")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stdout is not None
        (line,) = process.stdout.read().decode().splitlines()
    phase, records, *_ = line.split("\t")
    assert phase == "produce (ended early)"
    assert 0 < int(records) < 1_000_000
    assert topics(broker) == before


def test_mistakes(ketch: Ketch, broker: KetchServer, topic: str) -> None:
    def told(*words: str, code: int) -> str:
        return ketch("bench", *words, code=code).stderr.decode()

    assert "--only consume needs --topic" in told("--only", "consume", code=2)
    assert "--size 'x' should be bytes" in told("--size", "x", code=2)
    assert "it takes no --partitions" in told("--topic", "t", "--partitions", "2", code=2)
    assert "there is no such topic" in told("--topic", f"{topic}-not", code=1)
    before = topics(broker)
    refused = told("--size", "2mb", "-n", "3", "--config", "max.message.bytes=1mb", "--only", "produce", code=1)
    assert "records were not stored: Message size too large" in refused
    assert topics(broker) == before


def test_percentiles() -> None:
    figures = Figures("produce", latencies=[n / 1000 for n in range(1000, 0, -1)])
    assert figures.percentiles() == {"p50": 500.0, "p95": 950.0, "p99": 990.0, "p99.9": 999.0, "max": 1000.0}
    assert Figures("produce", latencies=[0.25]).percentiles()["p99.9"] == 250.0
    assert Figures("produce").percentiles() == {}
