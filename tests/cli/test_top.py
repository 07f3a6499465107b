"""`ketch top`: what it shows is what clients did between two looks."""

from __future__ import annotations

import json

import pytest

from ketch.redis.blocking import Connection
from ketch.redis.server import Server
from ketch.store.keys import Keyspace
from ketch.views import moving
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
    assert ["topic", topic, "1", "0", "0", "0", "0b"] in shown
    assert ["broker", "1", broker.bootstrap] in [line[:3] for line in shown]
    found = json.loads(ketch("top", "--once", "--interval", "0.1", "--json").stdout)
    assert found.keys() == {"topics", "groups", "brokers", "redis", "left_out"}


def test_a_broker_that_is_not_there(ketch: Ketch) -> None:
    assert b"No Kafka broker" in ketch("top", "--once", "-b", "127.0.0.1:1", code=1).stderr
