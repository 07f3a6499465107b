"""Consumers at the end of one partition: "ready" when each has read the topic's first record.

Argument: JSON with `server`, `topic`, `consumers`, `count`: each reads that many more and the program ends.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

_PATIENCE = 60.0


def main() -> None:
    options = json.loads(sys.argv[1])
    settings = {"bootstrap.servers": options["server"], "group.id": "bench", "enable.auto.commit": False}
    consumers = [Consumer(settings) for _ in range(options["consumers"])]
    for consumer in consumers:
        consumer.assign([TopicPartition(options["topic"], 0, OFFSET_BEGINNING)])
    read_each(consumers, 1)
    print("ready", flush=True)
    read_each(consumers, options["count"])
    print("done", flush=True)


def read_each(consumers: list[Consumer], count: int) -> None:
    left = dict.fromkeys(consumers, count)
    deadline = time.monotonic() + _PATIENCE
    while left:
        for consumer in list(left):
            left[consumer] -= sum(not message.error() for message in consumer.consume(100, 0))
            if left[consumer] <= 0:
                del left[consumer]
        if time.monotonic() > deadline:
            sys.exit(f"{len(left)} consumers wait for records")
        time.sleep(0.01)  # the consumers take turns: none may wait for long


if __name__ == "__main__":
    main()
