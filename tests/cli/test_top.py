"""`ketch top`: what it shows is what clients did between two looks."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from pathlib import Path

import pytest

from ketch.cli import client
from ketch.cli.byte_rates import ByteRates, Rates
from ketch.redis.blocking import Connection
from ketch.redis.server import Server
from ketch.store.keys import Keyspace
from ketch.views import moving
from ketch.views.kafka import cluster
from tests.support import http
from tests.support.cli import Ketch, send
from tests.support.ketch import KetchServer

EVERY_LAYOUT = pytest.mark.storage("record", "batch", "record-dense", "batch-dense")


@pytest.fixture
def ketch(broker: KetchServer) -> Ketch:
    return Ketch(broker)


@EVERY_LAYOUT
def test_rates_are_those_of_the_clients(ketch: Ketch, broker: KetchServer, topic: str) -> None:
    ketch("topics", "create", topic, "--partitions", "1")
    group = f"{topic}-group"
    send(broker, topic, *({"value": b"%d" % n} for n in range(10)))
    ketch("consume", topic, "--group", group, "--max", "1")
    keys, connection = Keyspace("korvet"), Connection(Server(broker.redis_url, timeout=20))
    before = connection.ask(moving.look(keys))
    send(broker, topic, *({"value": b"%d" % n} for n in range(25)))
    ketch("consume", topic, "--group", group, "--max", "14")
    now = connection.ask(moving.look(keys, before))
    connection.close()
    topics, groups = moving.rates(before, now)
    passed = now.at - before.at
    (own,) = [each for each in topics if each.topic == topic]
    assert (round(own.in_per_s * passed), round(own.out_per_s * passed), own.partitions) == (25, 14, 1)
    (reader,) = [each for each in groups if each.group == group]
    assert (reader.lag, round(reader.out_per_s * passed)) == (20, 14)
    assert reader.age is not None


def test_it_is_shown_once(ketch: Ketch, broker: KetchServer, topic: str) -> None:
    ketch("topics", "create", topic)
    lines = ketch("top", "--once", "--interval", "0.1", "--count", "1000").stdout.decode().splitlines()
    shown = [line.split("\t") for line in lines]
    assert {line[0] for line in shown} >= {"topic", "broker", "redis"}
    assert ["topic", topic, "1", "0", "0", "0", "0b", "", ""] in shown
    assert ["broker", "1", broker.bootstrap] in [line[:3] for line in shown]
    found = json.loads(ketch("top", "--once", "--interval", "0.1", "--json").stdout)
    assert found.keys() == {"topics", "total", "groups", "brokers", "redis", "left_out", "uncounted"}


def test_bytes_are_those_that_brokers_count(tmp_path: Path, topic: str) -> None:
    """By the page of a broker with a token; what is fetched without a group counts, too."""
    (tmp_path / "token").write_text("let-me-in")
    token = ("--http-token-file", str(tmp_path / "token"))
    server = KetchServer(tmp_path / "ketch", "--http-port", "0", *token).start()
    admin = client.admin(server.bootstrap)
    brokers = cluster.cluster(admin).brokers
    ketch = Ketch(server)
    ketch("topics", "create", topic)
    (why,) = ByteRates(admin, None).look(brokers).uncounted
    assert "wants its token" in why
    rates = ByteRates(admin, tmp_path / "token")
    assert rates.look(brokers) == Rates({}, None, ())
    begun = time.monotonic()
    before = counted(server, topic)
    send(server, topic, *({"value": b"x" * 1000} for _ in range(50)))
    ketch("consume", topic, "--max", "50")
    now, found, passed = counted(server, topic), rates.look(brokers), time.monotonic() - begun
    for rate, came in zip(found.topics[topic], (b - a for a, b in zip(before, now, strict=True)), strict=True):
        assert came >= 50_000
        assert rate * passed >= came * 0.99  # the two looks were no further apart than that
    assert found.total == found.topics[topic]
    shown = json.loads(ketch("top", "--once", "--interval", "0.1", "--json", *token).stdout)
    (row,) = [each for each in shown["topics"] if each["topic"] == topic]
    assert (row["bytes_in_per_s"], row["bytes_out_per_s"]) == (0, 0)
    assert (shown["total"]["bytes_in_per_s"], shown["uncounted"]) == (0, [])
    assert server.stop() == 0


def counted(server: KetchServer, topic: str) -> list[float]:
    """The broker's counters of bytes in and out."""
    request = urllib.request.Request(f"{http.url(server)}/metrics", headers={"Authorization": "Bearer let-me-in"})
    with urllib.request.urlopen(request, timeout=http.LIMIT) as answer:
        text = answer.read().decode()
    found = [re.search(rf'^ketch_bytes_{way}_total{{topic="{topic}"}} (\S+)$', text, re.M) for way in ("in", "out")]
    return [float(match[1]) if match else 0.0 for match in found]


def test_brokers_that_are_not_counted(ketch: Ketch, broker: KetchServer, tmp_path: Path) -> None:
    done = ketch("top", "--once", "--interval", "0.1")
    assert b"bytes per second are without broker 1: it has no http_port" in done.stderr
    unreadable = ketch("top", "--http-token-file", str(tmp_path / "no"), code=2)
    assert b"cannot be read: No such file" in unreadable.stderr


def test_a_broker_that_is_not_there(ketch: Ketch) -> None:
    assert b"No Kafka broker" in ketch("top", "--once", "-b", "127.0.0.1:1", code=1).stderr
