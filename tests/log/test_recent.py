"""Reading ahead: what it keeps, and that a consumer sees every record once however the stream changes meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from ketch.log.recent import ReadAhead
from tests.support.batches import batch, records
from tests.support.kafka import DELETE_TOPICS, Kafka, split
from tests.support.ketch import KetchServer

pytestmark = pytest.mark.storage("record", "batch")


def test_slots() -> None:
    async def keep() -> None:
        loop = asyncio.get_running_loop()
        ahead = ReadAhead()
        replies = [loop.create_future() for _ in range(20)]
        for n, reply in enumerate(replies):
            ahead.ask(b"s", n, lambda reply=reply: reply)  # type: ignore[misc]
        assert ahead.take(b"s", 3) is replies[3]
        assert ahead.take(b"s", 3) is None  # once
        assert ahead.take(b"t", 4) is None
        assert ahead.take(b"s", 19) is None  # there was no slot left

    asyncio.run(keep())


@pytest.mark.parametrize("consumers", [1, 3])
def test_every_record_once_while_more_are_written(broker: KetchServer, topic: str, consumers: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    read: list[list[bytes | None]] = [[] for _ in range(consumers)]
    readers = []
    written = 0
    for turn in range(6):
        for _ in range(20_000):
            producer.produce(topic, b"%d" % written)
            written += 1
        assert producer.flush(20) == 0
        if turn == 0:
            for _ in range(consumers):
                settings = {"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False}
                readers.append(Consumer({**settings, "fetch.message.max.bytes": 50_000}))
                readers[-1].assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        for reader, values in zip(readers, read, strict=True):
            values += [message.value() for message in reader.consume(7_000, 1)]
    for reader, values in zip(readers, read, strict=True):
        while len(values) < written:
            messages = reader.consume(written - len(values), 10)
            assert messages
            values += [message.value() for message in messages]
        reader.close()
    assert all(values == [b"%d" % n for n in range(written)] for values in read)


def test_nothing_of_a_topic_is_for_readers_of_the_next_one_of_its_name(broker: KetchServer, topic: str) -> None:
    with Kafka(broker.port) as kafka:
        for value in (b"old", b"new"):
            kafka.create(topic, offset_ids="dense")
            for _ in range(3):
                kafka.stored(topic, batch(records([value + b"." * 10_000] * 40)))
            found = split(kafka.fetch(topic, 40, partition_max_bytes=400_000).records)
            assert {record.value[:3] for one in found for record in one.records if record.value} == {value}
            kafka.fetch(topic, 0, partition_max_bytes=400_000)  # what comes behind it is asked for now
            answer = kafka.ask(DELETE_TOPICS, 4, topic_names=[topic], timeout=10_000)
            assert answer.responses[0].error_code == 0
