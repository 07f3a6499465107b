"""Topics to be copied: records of every kind, and what a consumer sees of a topic and of a copy of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType  # type: ignore[attr-defined]

from tests.support.ketch import eventually

LIMIT = 60.0  # s

Row = tuple[int, bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]
"""Offset, key, value, timestamp, headers."""


def make(bootstrap: str, topic: str, partitions: int, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    named = {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics([NewTopic(topic, partitions, -1, config=named)])[topic].result(LIMIT)
    # A broker of Kafka may learn of its partitions a moment later.
    eventually(lambda: _has_ends(bootstrap, topic, partitions), LIMIT, f"{topic} to be there")


def _has_ends(bootstrap: str, topic: str, partitions: int) -> bool:
    try:
        return len(ends(bootstrap, topic, partitions)) == partitions
    except KafkaException:
        return False


def produce_all_kinds(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    """Null and empty keys and values, headers that repeat, are empty or null, timestamps in the past."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for n in range(count):
        producer.produce(
            topic,
            None if n % 7 == 0 else b"" if n % 13 == 0 else b"value \xff %d" % n,
            None if n % 5 == 0 else b"" if n % 11 == 0 else b"key %d" % (n % 50),
            partition=n % partitions,
            timestamp=1_700_000_000_000 + 1000 * n,
            headers=[("a", b"1"), ("a", None), ("", b""), ("ü", b"\x00")] if n % 4 == 0 else None,
            on_delivery=_stored,
        )
        producer.poll(0)
    assert producer.flush(LIMIT) == 0


def _stored(error: object, _: object) -> None:
    assert error is None, error


def produce_many(bootstrap: str, topic: str, partitions: int, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for n in range(first, first + count):
        producer.produce(topic, b"%08d" % n + b"." * 90, b"%d" % (n % 1000), partition=n % partitions)
        if not n % 1000:
            producer.poll(0)
    assert producer.flush(LIMIT) == 0


def produce_transactions(bootstrap: str, topic: str, count: int) -> None:
    """Each third one is aborted; markers lie between."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"of-{topic}"})
    producer.init_transactions(LIMIT)
    for number in range(count):
        producer.begin_transaction()
        for n in range(5):
            producer.produce(topic, b"%d-%d" % (number, n), b"k", partition=0)
        (producer.abort_transaction if number % 3 == 2 else producer.commit_transaction)(LIMIT)


def commit(bootstrap: str, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]

    def committed() -> bool:
        try:
            consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:  # the first group of a broker waits for its coordinator
            if error.args[0].code() in (14, 15, 16):
                return False
            raise
        return True

    eventually(committed, LIMIT, "a coordinator")
    consumer.close()


def position(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    """The offset that a group has committed; below 0 where it has none."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, partition)], LIMIT)
    consumer.close()
    return int(found.offset)


@cache
def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})  # the broker may go before it


def ends(bootstrap: str, topic: str, partitions: int) -> list[int]:
    admin = _admin(bootstrap)
    asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(partitions)}
    level = IsolationLevel.READ_UNCOMMITTED
    return [each.result(LIMIT).offset for each in admin.list_offsets(asked, isolation_level=level).values()]


def config(bootstrap: str, topic: str, name: str) -> str | None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (found,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    entry = found.result(LIMIT).get(name)
    return None if entry is None else str(entry.value)


def read(bootstrap: str, topic: str, partitions: int) -> list[list[Row]]:
    """All committed records of each partition."""
    settings: dict[str, Any] = {"enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, **settings})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    rows: list[list[Row]] = [[] for _ in range(partitions)]
    left = set(range(partitions))
    while left:
        messages = consumer.consume(5000, 0.2)
        for message in messages:
            if message.error() is not None:
                assert message.error().code() == message.error()._PARTITION_EOF, message.error()
                left.discard(message.partition())
                continue
            row = message.offset(), message.key(), message.value(), message.timestamp()[1], message.headers() or []
            rows[message.partition()].append(row)
    consumer.close()
    return rows


def contents(rows: list[list[Row]]) -> list[list[tuple[Any, ...]]]:
    """The records without their offsets."""
    return [[row[1:] for row in partition] for partition in rows]


def copy_with_kills(arguments: list[str], environment: dict[str, str], reached: Callable[[], int], kills: int) -> int:
    """Runs `ketch topics copy` and kills it whenever it has come further, so often; then lets it come to its end.

    Args:
        reached: gives how far the copy has come.

    Returns:
        how often it was killed before it was through.
    """
    command = [sys.executable, "-m", "ketch", "topics", "copy", *arguments]
    killed = 0
    for _ in range(kills):
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
            eventually(partial(_further, process, reached, reached()), LIMIT, "the copy to go on")
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                killed += 1
    subprocess.run(command, env=environment, check=True, timeout=LIMIT, stdout=subprocess.DEVNULL)
    return killed


def _further(process: subprocess.Popen[bytes], reached: Callable[[], int], before: int) -> bool:
    return reached() > before or process.poll() is not None
