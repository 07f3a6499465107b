"""Redis at `maxmemory`: writes get KAFKA_STORAGE_ERROR and one line a minute, reads go on, and so do writes later."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer

from tests.support.batches import batch, records
from tests.support.kafka import CREATE_TOPICS, DELETE_RECORDS, Kafka
from tests.support.ketch import KetchServer

pytestmark = pytest.mark.storage("record", "batch")

STORAGE_ERROR = 56
DATA = batch(records([bytes(1000)] * 100))
ALERT = "Redis refuses writes, reads go on: it uses "


@pytest.fixture
def server(start_ketch: Callable[..., KetchServer]) -> Iterator[KetchServer]:
    server = start_ketch()
    yield server
    limit(server, None)


def limit(server: KetchServer, room: int | None) -> None:
    """Gives each node of Redis so many bytes more than it uses; any number for None."""
    for node in server.redis_nodes():
        node.config_set("maxmemory", 0 if room is None else node.info("memory")["used_memory"] + room)


def fill(kafka: Kafka, server: KetchServer, topic: str) -> int:
    """Leaves little room and writes until it is gone; how many batches were stored."""
    limit(server, 4 << 20)
    for stored in range(1000):
        answer = kafka.produce(topic, DATA)
        if answer.error_code:
            assert answer.error_code == STORAGE_ERROR
            limit(server, -(1 << 20))  # not a byte more
            return stored
    raise AssertionError("Redis takes whatever it is given")


def test_full(server: KetchServer) -> None:
    with Kafka(server.port) as kafka, Kafka(server.port) as other:
        kafka.create("full")
        stored = fill(kafka, server, "full")
        assert stored > 10
        for client in (kafka, other, kafka):
            assert client.produce("full", DATA).error_code == STORAGE_ERROR
        idempotent = batch(records([bytes(1000)] * 9), producer_id=7, producer_epoch=0, base_sequence=0)
        assert kafka.produce("full", idempotent).error_code == STORAGE_ERROR
        assert len(other.read_all("full")) == 100 * stored, "whole batches, and they can be read"
        asked = {"name": "more", "num_partitions": 1, "replication_factor": -1}
        assert kafka.ask(CREATE_TOPICS, 7, topics=[asked], timeout=5000).topics[0].error_code == STORAGE_ERROR
        assert server.log.count(ALERT) == 1, server.log
        assert "refused with KAFKA_STORAGE_ERROR" not in server.log, "a line for each connection"

        partition = {"partition_index": 0, "offset": -1}
        gone = kafka.ask(DELETE_RECORDS, 2, topics=[{"name": "full", "partitions": [partition]}], timeout=5000)
        assert gone.topics[0].partitions[0].error_code == 0
        assert kafka.stored("full", idempotent) >= 0
        assert kafka.stored("full", DATA) >= 0
        assert len(kafka.read_all("full")) == 109


def test_a_client_goes_on_where_there_is_room_again(server: KetchServer) -> None:
    with Kafka(server.port) as kafka:
        kafka.create("full")
        stored = fill(kafka, server, "full")
    producer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True, "retry.backoff.ms": 50})
    errors: list[object] = []
    for n in range(200):
        producer.produce("full", b"%d" % n, on_delivery=lambda error, _: errors.append(error))
    producer.poll(1)
    assert not errors, "it tries again"
    group = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": server.bootstrap, **group})
    limit(server, None)
    assert producer.flush(30) == 0
    assert errors == [None] * 200
    consumer.subscribe(["full"])
    found = []
    while len(found) < 100 * stored + 200:
        found += consumer.consume(500, 1)
    consumer.close()
    assert [message.value() for message in found[100 * stored :]] == [b"%d" % n for n in range(200)]
