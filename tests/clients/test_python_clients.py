"""confluent-kafka, aiokafka, kafka-python and kcat: what one of them writes, and each of them reads, byte for byte."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.ketch import KetchServer, eventually

pytestmark = pytest.mark.storage("record", "batch-dense")

PARTITIONS = 3
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@dataclass(frozen=True)
class Record:
    """A record as every client can write and read it."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


RECORDS = [
    Record(n % PARTITIONS, key, value, headers, 1_700_000_000_000 + n)
    for n, (key, value, headers) in enumerate(
        [
            (b"k", b"v", ()),
            (None, b"no key", ()),
            (b"", b"", ()),
            (b"tombstone", None, ()),
            (
                b"\xff\x00\r\n$5",
                bytes(range(256)),
                (("a", b"1"), ("a", b"2"), ("", b"")),
            ),
            (b"big", b"x" * 990_000, (("h", b"\x00\xff"),)),
            *((b"k%d" % n, b"value %d" % n * 20, (("n", b"%d" % n),)) for n in range(60)),
        ]
    )
]


def create(server: KetchServer, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(10)


# -- writers: (server, topic, codec, idempotent)


def write_confluent(server: KetchServer, topic: str, codec: str, idempotent: bool) -> None:
    failures: list[object] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": server.bootstrap, "compression.type": codec, "enable.idempotence": idempotent}
    )
    for r in RECORDS:
        producer.produce(
            topic, r.value, r.key, r.partition, timestamp=r.timestamp, headers=list(r.headers),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(30) == 0
    assert not failures


def write_aiokafka(server: KetchServer, topic: str, codec: str, idempotent: bool) -> None:
    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=server.bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
        )
        async with producer:
            for r in RECORDS:
                await producer.send(
                    topic, r.value, r.key, r.partition, timestamp_ms=r.timestamp, headers=list(r.headers)
                )

    asyncio.run(write())


def write_kafka_python(server: KetchServer, topic: str, codec: str, idempotent: bool) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=server.bootstrap,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=idempotent,
    )
    sent = [
        producer.send(topic, r.value, r.key, list(r.headers), r.partition, timestamp_ms=r.timestamp) for r in RECORDS
    ]
    for future in sent:
        future.get(30)
    producer.close()


# -- readers


def read_confluent(server: KetchServer, topic: str) -> list[Record]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign(
        [confluent_kafka.TopicPartition(topic, p, confluent_kafka.OFFSET_BEGINNING) for p in range(PARTITIONS)]
    )
    found: list[Record] = []
    while len(found) < len(RECORDS):
        for m in consumer.consume(len(RECORDS) - len(found), 10):
            assert m.error() is None, m.error()
            found.append(Record(m.partition(), m.key(), m.value(), tuple(m.headers() or ()), m.timestamp()[1]))
    consumer.close()
    return found


def read_aiokafka(server: KetchServer, topic: str) -> list[Record]:
    async def read() -> list[Record]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=server.bootstrap, auto_offset_reset="earliest")
        found: list[Record] = []
        async with consumer:
            consumer.assign([aiokafka.TopicPartition(topic, p) for p in range(PARTITIONS)])
            while len(found) < len(RECORDS):
                m = await asyncio.wait_for(consumer.getone(), 10)
                found.append(Record(m.partition, m.key, m.value, tuple(m.headers), m.timestamp))
        return found

    return asyncio.run(read())


def read_kafka_python(server: KetchServer, topic: str) -> list[Record]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=server.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=10_000
    )
    consumer.assign([kafka.TopicPartition(topic, p) for p in range(PARTITIONS)])
    found = []
    for m in consumer:
        found.append(Record(m.partition, m.key, m.value, tuple(m.headers), m.timestamp))
        if len(found) == len(RECORDS):
            break
    consumer.close()
    return found


WRITERS = [write_confluent, write_aiokafka, write_kafka_python]
READERS = [read_confluent, read_aiokafka, read_kafka_python]


def by_partition(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda r: r.partition)  # stable: the order within a partition stays


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("write", WRITERS)
def test_round_trip(
    broker: KetchServer,
    topic: str,
    write: Callable[[KetchServer, str, str, bool], None],
    codec: str,
    idempotent: bool,
) -> None:
    create(broker, topic)
    write(broker, topic, codec, idempotent)
    for read in READERS:
        assert by_partition(read(broker, topic)) == by_partition(RECORDS), read.__name__
    noted = broker.redis().hget(f"korvet:topic:{topic}", "producerCompression") or b"none"
    # librdkafka sends lz4 only to a broker that has the group APIs, too.
    assert noted == codec.encode() or (codec, write) == ("lz4", write_confluent)


@pytest.mark.parametrize(
    "config", [{"offset.ids": "dense"}, {"offsetSequenceBits": "16"}, {"compression.type": "zstd"}]
)
def test_round_trip_with_config(broker: KetchServer, topic: str, config: dict[str, str]) -> None:
    create(broker, topic, **config)
    write_confluent(broker, topic, "lz4", True)
    for read in READERS:
        assert by_partition(read(broker, topic)) == by_partition(RECORDS), read.__name__


def kcat(*arguments: str, stdin: bytes = b"") -> bytes:
    return subprocess.run(["kcat", *arguments], input=stdin, stdout=subprocess.PIPE, check=True, timeout=60).stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])  # Debian's librdkafka 2.0.2; zstd works too
def test_kcat(broker: KetchServer, topic: str, codec: str, storage: str) -> None:
    lines = b"".join(b"key%d:value %d\n" % (n, n) for n in range(5_000))
    kcat("-P", "-b", broker.bootstrap, "-t", topic, "-K:", "-z", codec, "-H", "a=b", stdin=lines)
    assert kcat("-C", "-b", broker.bootstrap, "-t", topic, "-e", "-q", "-K:") == lines
    if storage != "record":
        return
    entries = broker.redis().xrange(f"korvet:stream:{topic}:0", count=2)
    assert [list(fields)[:2] for _, fields in entries] == [[b"key", b"value"]] * 2
    assert entries[1][1][b"value"] == b"value 1"
    assert entries[1][1][b"header.a"] == b"b"


def test_tail_sees_a_redis_cli_write(broker: KetchServer, topic: str) -> None:
    create(broker, topic)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    # librdkafka looks up OFFSET_END some time after `assign`: it might find the end behind the entry.
    _, end = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), 10)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, end)])
    assert consumer.poll(0.5) is None

    def written() -> confluent_kafka.Message | None:
        return consumer.poll(0.1)

    broker.redis().xadd(f"korvet:stream:{topic}:0", {"value": "hello"})
    message = eventually(written)
    assert (message.key(), message.value()) == (None, b"hello")
    consumer.close()


def test_a_response_is_never_larger_than_librdkafka_takes(broker: KetchServer, topic: str) -> None:
    """It drops a connection whose response is larger than receive.message.max.bytes, and asks the same again."""
    create(broker, topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(60):
        producer.produce(topic, bytes((90_000, 40_000, 10, 90_000)[n % 4]), partition=n % PARTITIONS)
        producer.flush(10)  # so that each is a batch
    errors: list[confluent_kafka.KafkaError] = []
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "receive.message.max.bytes": 100_512,  # the least that it takes beside fetch.max.bytes
            "fetch.max.bytes": 100_000,
            "max.partition.fetch.bytes": 100_000,
            "message.max.bytes": 100_000,
            "error_cb": errors.append,
        }
    )
    consumer.assign(
        [confluent_kafka.TopicPartition(topic, p, confluent_kafka.OFFSET_BEGINNING) for p in range(PARTITIONS)]
    )
    found = 0
    while found < 60:
        messages = consumer.consume(60, 5)
        assert messages, errors
        found += len(messages)
    consumer.close()
    assert not errors
