"""Transactions of one record, and a consumer of committed records: prints the ms from the beginning of a transaction to
its record's arrival: {"p50": ..., "p99": ...}.

Argument: JSON with `server`, `topic`, `warm` (transactions before the count) and `count`. Each begins when the record
of the one before has arrived. Ends with 1 where a record does not arrive.
"""

from __future__ import annotations

import json
import sys
import time
from statistics import quantiles
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

_PATIENCE = 60.0


def main() -> None:
    options = json.loads(sys.argv[1])
    server, topic = options["server"], options["topic"]
    producer = Producer({"bootstrap.servers": server, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(_PATIENCE)
    settings = {"bootstrap.servers": server, "group.id": topic, "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "fetch.wait.max.ms": 500})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    taken = [one(producer, consumer, topic) for _ in range(options["warm"] + options["count"])][options["warm"] :]
    consumer.close()
    hundredths = quantiles(taken, n=100)
    print(json.dumps({"p50": hundredths[49] * 1000, "p99": hundredths[98] * 1000}))


def one(producer: Producer, consumer: Consumer, topic: str) -> float:
    """Seconds that one record took."""
    begin = time.monotonic()
    producer.begin_transaction()
    producer.produce(topic, b"v" * 100)
    producer.commit_transaction(_PATIENCE)
    message: Any = consumer.poll(_PATIENCE)
    if message is None or message.error():
        sys.exit("a committed record did not arrive")
    return time.monotonic() - begin


if __name__ == "__main__":
    main()
