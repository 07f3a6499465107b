"""Produces or consumes with confluent-kafka and prints the seconds between the first record and the last.

Arguments: produce|consume, host:port, topic, records, their size.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition


def produce(server: str, topic: str, count: int, size: int) -> float:
    failed: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": server,
            "queue.buffering.max.messages": 500_000,
            "error_cb": failed.append,
            # Reports of the records that were stored cost more than sending them; those of the others count.
            "delivery.report.only.error": True,
        }
    )
    value = b"v" * size
    report = lambda error, _: failed.append(error)  # noqa: E731
    begin = time.monotonic()
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=0, on_delivery=report)
                break
            except BufferError:
                producer.poll(0.01)
    left = producer.flush(120)
    seconds = time.monotonic() - begin
    if left or failed:
        sys.exit(f"{left} records not sent, errors: {failed[:3]}")
    return seconds


def consume(server: str, topic: str, count: int) -> float:
    consumer = Consumer(
        {"bootstrap.servers": server, "group.id": "bench", "enable.auto.commit": False, "auto.offset.reset": "error"}
    )
    begin = time.monotonic()
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    seen = 0
    while seen < count:
        messages = consumer.consume(min(10_000, count - seen), timeout=30)
        if not messages:
            sys.exit(f"{seen} records instead of {count}")
        bad = next((message.error() for message in messages if message.error()), None)
        if bad:
            sys.exit(str(bad))
        seen += len(messages)
    seconds = time.monotonic() - begin
    consumer.close()
    return seconds


def main() -> None:
    verb, server, topic, count, size = sys.argv[1:]
    run = produce(server, topic, int(count), int(size)) if verb == "produce" else consume(server, topic, int(count))
    print(json.dumps({"seconds": run}))


if __name__ == "__main__":
    main()
