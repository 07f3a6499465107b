"""`ketch topics copy` from Apache Kafka to Ketch and back: what comes out is what went in, also where it was killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support import copies
from tests.support.apache_kafka import ApacheKafka, missing_tools
from tests.support.cli import Ketch
from tests.support.copies import contents, ends, read
from tests.support.ketch import KetchServer

MISSING = missing_tools()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    with ApacheKafka() as running:
        yield running.bootstrap


@pytest.fixture
def ketch(broker: KetchServer) -> Ketch:
    return Ketch(broker)


def test_there_and_back(ketch: Ketch, broker: KetchServer, kafka: str) -> None:
    copies.make(kafka, "plain", 3, retention_ms="-1", max_message_bytes="2000000")
    # Positions are counted: compaction, which leaves one record of all with a key, is not to come in between.
    copies.make(kafka, "transactions", 1, cleanup_policy="compact,delete", min_compaction_lag_ms="3600000")
    copies.produce_all_kinds(kafka, "plain", 3, 600)
    copies.produce_transactions(kafka, "transactions", 6)
    plain, transactions = read(kafka, "plain", 3), read(kafka, "transactions", 1)
    (end,) = ends(kafka, "transactions", 1)
    copies.commit(kafka, "readers", "plain", {0: 17, 1: 200, 2: 0})
    copies.commit(kafka, "readers", "transactions", {0: transactions[0][10][0]})

    ketch("topics", "copy", "plain", "trans*", "--from", kafka)
    assert read(broker.bootstrap, "plain", 3) == plain
    assert read(broker.bootstrap, "transactions", 1) == transactions
    assert ends(broker.bootstrap, "transactions", 1) == [end]
    found = {name: copies.config(broker.bootstrap, "plain", name) for name in ("retention.ms", "max.message.bytes")}
    assert found == {"retention.ms": "-1", "max.message.bytes": "2000000"}
    assert copies.config(broker.bootstrap, "transactions", "cleanup.policy") == "compact,delete"
    assert copies.position(broker.bootstrap, "readers", "plain", 1) == 200
    assert copies.position(broker.bootstrap, "readers", "transactions") == transactions[0][10][0]

    for topic in ("plain", "transactions"):
        ketch("topics", "copy", topic, "--as", f"{topic}-back", "--from", broker.bootstrap, "-b", kafka)
    assert read(kafka, "plain-back", 3) == plain
    assert copies.config(kafka, "transactions-back", "cleanup.policy") == "compact,delete"
    assert copies.position(kafka, "readers", "plain-back", 1) == 200
    back = read(kafka, "transactions-back", 1)  # gaps are closed, so positions are counted
    assert contents(back) == contents(transactions)
    assert copies.position(kafka, "readers", "transactions-back") == 10


@pytest.mark.long(minutes=0.7)
def test_killed_there_and_back(ketch: Ketch, broker: KetchServer, kafka: str) -> None:
    copies.make(kafka, "killed", 2)
    copies.produce_many(kafka, "killed", 2, 0, 80_000)
    copies.make(broker.bootstrap, "killed", 2, offset_ids="dense")
    there = ["killed", "--from", kafka]
    assert copies.copy_with_kills(there, ketch.environment, lambda: sum(ends(broker.bootstrap, "killed", 2)), 2)
    wanted = read(kafka, "killed", 2)
    assert read(broker.bootstrap, "killed", 2) == wanted

    copies.make(kafka, "killed-back", 2)
    back = ["killed", "--as", "killed-back", "--from", broker.bootstrap, "-b", kafka]
    assert copies.copy_with_kills(back, ketch.environment, lambda: sum(ends(kafka, "killed-back", 2)), 2)
    assert read(kafka, "killed-back", 2) == wanted


def test_bench_of_kafka(ketch: Ketch, kafka: str) -> None:
    command = [sys.executable, "-m", "ketch", "bench", "-n", "200", "--partitions", "3", "-b", kafka]
    done = subprocess.run(command, env=ketch.environment, check=True, capture_output=True, text=True, timeout=120)
    assert [line.split("\t")[:2] for line in done.stdout.splitlines()] == [
        ["produce", "200"],
        ["consume", "200"],
        ["end-to-end", "200"],
    ]
