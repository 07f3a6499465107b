"""Transactional producers and consumers of committed records, end to end with Kafka's clients (KIP-98)."""

from __future__ import annotations

import asyncio
import random

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer

pytestmark = pytest.mark.storage("record", "batch-dense")


def consumed(broker: KetchServer, topic: str, level: str) -> list[bytes | None]:
    """What librdkafka's consumer gets up to the end."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": level, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = []
    while not (message := consumer.poll(20)).error():
        found.append(message.value())
    consumer.close()
    return found


def test_librdkafka(broker: KetchServer, topic: str) -> None:
    chance = random.Random(3)
    with Kafka(broker.port) as client:
        client.create(topic)
    producers = [
        Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-{n}", "linger.ms": 0})
        for n in range(2)
    ]
    for producer in producers:
        producer.init_transactions(30)
    committed: list[bytes] = []
    everything: list[bytes] = []
    pending: list[list[bytes]] = [[], []]
    for n in range(40):
        which = chance.randrange(2)
        producer = producers[which]
        if not pending[which]:
            producer.begin_transaction()
        value = b"%d" % n
        producer.produce(topic, value)
        assert producer.flush(20) == 0
        everything.append(value)
        pending[which].append(value)
        if chance.random() < 0.4:
            if chance.random() < 0.5:
                producer.commit_transaction(30)
                committed += pending[which]
            else:
                producer.abort_transaction(30)
            pending[which] = []
    for which, producer in enumerate(producers):
        if pending[which]:
            producer.commit_transaction(30)
            committed += pending[which]
    assert consumed(broker, topic, "read_uncommitted") == everything
    found = consumed(broker, topic, "read_committed")
    assert found == [value for value in everything if value in set(committed)]


def test_aiokafka(broker: KetchServer, topic: str) -> None:
    async def run() -> list[bytes]:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
        )
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic)
        await producer.start()
        await consumer.start()
        try:
            for n in range(6):
                await producer.begin_transaction()
                for part in range(3):
                    await producer.send_and_wait(topic, b"%d.%d" % (n, part))
                await (producer.abort_transaction() if n % 2 else producer.commit_transaction())
            return [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in range(9)]
        finally:
            await producer.stop()
            await consumer.stop()

    with Kafka(broker.port) as client:
        client.create(topic)
    assert asyncio.run(run()) == [b"%d.%d" % (n, part) for n in (0, 2, 4) for part in range(3)]
