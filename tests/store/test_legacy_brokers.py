"""Which broker a partition has its number on, for clients of Kafka 0.7: decided once."""

from __future__ import annotations

from ketch.redis.blocking import Connection
from ketch.redis.server import Server
from ketch.store.cluster.legacy import assign_brokers
from ketch.store.keys import Keyspace
from tests.support.cli import Ketch
from tests.support.ketch import KetchServer

KEYS = Keyspace("legacy-brokers")


def test_the_first_answer_stands(broker: KetchServer, topic: str) -> None:
    connection = Connection(Server(broker.redis_url), "test")
    assert connection.ask(assign_brokers(KEYS, topic, {})) == {}
    assert connection.ask(assign_brokers(KEYS, topic, {0: 1, 1: 2})) == {0: 1, 1: 2}
    assert connection.ask(assign_brokers(KEYS, topic, {0: 3, 1: 3, 2: 3})) == {0: 1, 1: 2, 2: 3}
    connection.close()


def test_a_topic_takes_it_along(broker: KetchServer, topic: str) -> None:
    ketch, redis = Ketch(broker), broker.redis()
    ketch("topics", "create", topic)
    redis.hset(f"korvet:legacy07-brokers:{topic}", "0", "1")
    ketch("topics", "delete", topic, "--yes")
    assert not redis.exists(f"korvet:legacy07-brokers:{topic}")
