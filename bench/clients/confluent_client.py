"""A load through confluent-kafka, timed between its first record and its last; prints {"seconds": ...}.

Argument: JSON with `verb` (produce, consume, commit), `server`, `topic`, `count`, and
    produce: `size`, `partitions` (1)
    consume: `group` (none: partitions are assigned), `partitions` (1), `offset` (of partition 0, else the beginning)
    commit: `group`
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

_WAIT = 60.0
_NO_COORDINATOR = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


def produce(server: str, topic: str, count: int, size: int, partitions: int = 1) -> float:
    failed: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": server,
            "queue.buffering.max.messages": 500_000,
            "error_cb": failed.append,
            # Reports of stored records take more time than sending them; only those of failed records are needed.
            "delivery.report.only.error": True,
        }
    )
    producer.list_topics(topic, _WAIT)
    value = b"v" * size
    report = lambda error, _: failed.append(error)  # noqa: E731
    begin = time.monotonic()
    for i in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=i % partitions, on_delivery=report)
                break
            except BufferError:
                producer.poll(0.01)
    left = producer.flush(120)
    seconds = time.monotonic() - begin
    if left or failed:
        sys.exit(f"{left} records not sent, errors: {failed[:3]}")
    return seconds


def consume(
    server: str, topic: str, count: int, group: str = "", partitions: int = 1, offset: int = OFFSET_BEGINNING
) -> float:
    settings: dict[str, Any] = {
        "bootstrap.servers": server,
        "group.id": group or "bench",
        "enable.auto.commit": False,
        # With the default of 1000 a client with a full queue pauses for a second, whatever the server.
        "fetch.queue.backoff.ms": 10,
    }
    if group:
        settings |= {"enable.auto.commit": True, "auto.offset.reset": "earliest"}  # a commit every five seconds
    consumer = Consumer(settings)
    if group:
        consumer.subscribe([topic])
    else:
        consumer.assign([TopicPartition(topic, partition, offset) for partition in range(partitions)])
    seconds = _read(consumer, count)
    consumer.close()
    return seconds


def _read(consumer: Consumer, count: int) -> float:
    first = _wait_first(consumer)
    begin = time.monotonic()
    seen = first
    while seen < count:
        messages = consumer.consume(min(10_000, count - seen), timeout=_WAIT)
        if not messages:
            sys.exit(f"{seen} records instead of {count}")
        bad = next((message.error() for message in messages if message.error()), None)
        if bad:
            sys.exit(str(bad))
        seen += len(messages)
    return time.monotonic() - begin


def _wait_first(consumer: Consumer) -> int:
    message = consumer.poll(_WAIT)
    if message is None or message.error():
        sys.exit(str(message.error()) if message else "no record")
    return 1


def commit(server: str, topic: str, count: int, group: str) -> float:
    """Seconds of `count` synchronous commits, one after the other."""
    consumer = Consumer({"bootstrap.servers": server, "group.id": group, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    _find_coordinator(consumer, topic)
    begin = time.monotonic()
    for offset in range(1, count + 1):
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    seconds = time.monotonic() - begin
    consumer.close()
    return seconds


def _find_coordinator(consumer: Consumer, topic: str) -> None:
    """Commits once; a Kafka that has just been started first makes the topic that holds commits."""
    deadline = time.monotonic() + _WAIT
    while True:
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
            return
        except KafkaException as error:
            if error.args[0].code() not in _NO_COORDINATOR or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def main() -> None:
    options = json.loads(sys.argv[1])
    run = {"produce": produce, "consume": consume, "commit": commit}[options.pop("verb")]
    print(json.dumps({"seconds": run(**options)}))


if __name__ == "__main__":
    main()
