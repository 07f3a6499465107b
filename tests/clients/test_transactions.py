"""Transactions of real clients: confluent-kafka (librdkafka) and aiokafka. Both speak version 1 of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually

pytestmark = pytest.mark.storage("record", "batch")

PARTITIONS = 3


@pytest.fixture
def made(broker: KetchServer, topic: str) -> str:
    with Kafka(broker.port) as client:
        client.create(topic, PARTITIONS)
    return topic


def transactional(broker: KetchServer, id: str, **settings: object) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": id, "linger.ms": 0, **settings})
    producer.init_transactions(30)
    return producer


@pytest.fixture
def reader(broker: KetchServer, made: str) -> Iterator[Consumer]:
    config = {"bootstrap.servers": broker.bootstrap, "group.id": f"reader-{made}", "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, "isolation.level": "read_committed", "enable.auto.commit": False})
    yield consumer
    consumer.close()


def committed(reader: Consumer, topic: str, count: int) -> list[bytes]:
    """The values of all committed records, sorted, once there are so many and nothing more comes."""
    reader.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    values: list[bytes] = []

    def enough() -> bool:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
        return message is None and len(values) >= count

    eventually(enough, 30)
    return sorted(values)


def test_commit_and_abort(broker: KetchServer, made: str, reader: Consumer) -> None:
    producer = transactional(broker, made)
    for n in range(4):
        producer.begin_transaction()
        for index in range(PARTITIONS):
            producer.produce(made, b"%d" % n, partition=index)
        producer.flush()
        if n % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    assert committed(reader, made, 6) == [b"0"] * 3 + [b"2"] * 3
    redis = broker.redis()
    assert redis.keys(f"korvet:transactions:*{made}*") == []
    assert [redis.xlen(f"korvet:aborted:{{korvet:stream:{made}:{index}}}") for index in range(3)] == [2, 2, 2]


def test_a_second_producer_fences_the_first(broker: KetchServer, made: str, reader: Consumer) -> None:
    first = transactional(broker, made)
    first.begin_transaction()
    first.produce(made, b"lost")
    first.flush()
    second = transactional(broker, made)  # it aborts what is open
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(30)
    assert fenced.value.args[0].code() == KafkaError._FENCED
    second.begin_transaction()
    second.produce(made, b"kept")
    second.commit_transaction(30)
    assert committed(reader, made, 1) == [b"kept"]


def test_a_transaction_that_is_open_for_too_long_is_aborted(broker: KetchServer, made: str, reader: Consumer) -> None:
    producer = transactional(broker, made, **{"transaction.timeout.ms": 1000})
    producer.begin_transaction()
    producer.produce(made, b"late", partition=0)
    producer.flush()
    redis, key = broker.redis(), f"korvet:transactions:{{korvet:stream:{made}:0}}"
    assert redis.exists(key)
    eventually(lambda: not redis.exists(key))
    producer.produce(made, b"later", partition=1)
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)
    assert committed(reader, made, 0) == []


def test_offsets_in_a_transaction(broker: KetchServer, made: str, reader: Consumer) -> None:
    producer, place = transactional(broker, made), [TopicPartition(made, 0)]

    def commit(offset: int, keep: bool) -> None:
        producer.begin_transaction()
        producer.produce(made, b"%d" % offset)
        at = [TopicPartition(made, 0, offset)]
        producer.send_offsets_to_transaction(at, reader.consumer_group_metadata(), 30)
        if keep:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)

    for offset, keep, then in ((5, False, -1001), (7, True, 7), (9, False, 7), (11, True, 11)):
        commit(offset, keep)
        assert [each.offset for each in reader.committed(place, 30)] == [then]
    assert not broker.redis().exists(f"korvet:pending-offsets:reader-{made}")


def test_markers_take_their_turn(broker: KetchServer, made: str) -> None:
    """A marker through the partition's own queue is no foreign write: nothing is refused, and ids are chosen here."""
    producer = transactional(broker, made)
    for n in range(30):
        producer.begin_transaction()
        for _ in range(20):
            producer.produce(made, b"%d" % n, partition=0)
        producer.commit_transaction(30)
    redis = broker.redis()
    assert not redis.keys(f"korvet:fence:*{made}*")
    # It is stored after the producer was answered.
    eventually(lambda: redis.hget(f"korvet:transaction:{made}", "state") == b"CompleteCommit")


def test_aiokafka(broker: KetchServer, made: str, reader: Consumer) -> None:
    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=f"aio-{made}")
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait(made, b"kept", partition=0)
                place = aiokafka.TopicPartition(made, 1)
                await producer.send_offsets_to_transaction({place: 3}, f"aio-{made}")
            await producer.begin_transaction()
            await producer.send_and_wait(made, b"lost", partition=0)
            await producer.abort_transaction()
        finally:
            await producer.stop()

    asyncio.run(run())
    assert committed(reader, made, 1) == [b"kept"]
    assert broker.redis().get(f"korvet:commit:korvet:stream:{made}:1:aio-{made}") == b"3"
