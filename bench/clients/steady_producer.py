"""A confluent-kafka producer at a steady rate; prints the ms from send to acknowledgement: {"p50": ..., "p99": ...,
"p99.9": ...}.

Argument: JSON with `server`, `topic`, `size` (bytes), `rate` (records a second), `warm` (records sent before the count)
and `count`. Ends with 1 where a record was refused, or where the client fell more than a second behind the rate.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from statistics import quantiles
from typing import Any

from confluent_kafka import Producer

_PATIENCE = 60.0
# Batches of 16 KB and five requests in flight, as the Java client has them. With librdkafka's default of a million
# requests in flight each record becomes a request of its own.
_SETTINGS = {"acks": "all", "linger.ms": 0, "batch.size": 16_384, "max.in.flight.requests.per.connection": 5}
_PERCENTILES = {"p50": 500, "p99": 990, "p99.9": 999}  # thousandths


def main() -> None:
    options = json.loads(sys.argv[1])
    producer = Producer({"bootstrap.servers": options["server"], **_SETTINGS})
    producer.list_topics(options["topic"], _PATIENCE)
    ended = threading.Event()
    poller = threading.Thread(target=poll, args=(producer, ended), daemon=True)
    poller.start()
    latencies = send(producer, **{name: options[name] for name in ("topic", "size", "rate", "warm", "count")})
    unsent = producer.flush(_PATIENCE)
    ended.set()
    poller.join()
    if unsent or len(latencies) < options["count"]:
        sys.exit(f"{options['count'] - len(latencies)} records were not acknowledged")
    thousandths = quantiles(latencies, n=1000)
    print(json.dumps({name: thousandths[place - 1] * 1000 for name, place in _PERCENTILES.items()}))


def poll(producer: Producer, ended: threading.Event) -> None:
    """Takes each acknowledgement as it comes: a record's latency is read at that moment."""
    while not ended.is_set():
        producer.poll(0.1)


def send(producer: Producer, topic: str, size: int, rate: float, warm: int, count: int) -> list[float]:
    """Seconds that each of the `count` records took; the list fills up as they are acknowledged."""
    latencies: list[float] = []

    def acknowledged(error: Any, message: Any) -> None:
        if error is None:
            latencies.append(message.latency())

    value, begin = b"v" * size, time.monotonic()
    for place in range(warm + count):
        early = begin + place / rate - time.monotonic()
        if early > 0:
            time.sleep(early)
        elif early < -1:
            sys.exit(f"the client is {-early:.1f} s behind {rate} records/s")
        producer.produce(topic, value, on_delivery=acknowledged if place >= warm else None)
    return latencies


if __name__ == "__main__":
    main()
