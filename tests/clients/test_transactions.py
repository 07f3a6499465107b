"""Real clients' transactions: confluent-kafka (librdkafka) and aiokafka, which speak version 1 of the protocol."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.ketch import KetchServer

pytestmark = pytest.mark.storage("record", "batch")


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def made(broker: KetchServer) -> str:
    name = unique("t")
    AdminClient({"bootstrap.servers": broker.bootstrap}).create_topics([NewTopic(name, 3)])[name].result()
    return name


def transactional(broker: KetchServer, id: str, **settings: object) -> Producer:
    config = {"bootstrap.servers": broker.bootstrap, "transactional.id": id, "linger.ms": 0, **settings}
    producer = Producer(config)
    producer.init_transactions(20)
    return producer


def test_commit_and_abort(broker: KetchServer, made: str) -> None:
    producer = transactional(broker, unique("id"))
    for n in range(4):
        producer.begin_transaction()
        for index in range(3):
            producer.produce(made, b"%d" % n, partition=index)
        producer.flush()
        producer.commit_transaction(20) if n % 2 == 0 else producer.abort_transaction(20)
    assert broker.redis.keys("*:transactions:*") == []
    assert broker.redis.xlen(f"{broker.keyspace}:aborted:{{{broker.keyspace}:stream:{made}:0}}") == 2
