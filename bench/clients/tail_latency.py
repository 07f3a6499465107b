"""A record to one partition every 5 ms, and a consumer that waits for it; prints {"ms": [...]}, produce() to poll().

Argument: JSON with `server`, `topic`, `count`.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

_PERIOD = 0.005  # s
_EARLY = 100  # records that are passed over
_PATIENCE = 30.0


def main() -> None:
    options = json.loads(sys.argv[1])
    topic, count = options["topic"], options["count"] + _EARLY
    consumer = Consumer({"bootstrap.servers": options["server"], "group.id": "bench", "enable.auto.commit": False})
    begin = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_PATIENCE) or (0, OFFSET_BEGINNING)
    consumer.assign([TopicPartition(topic, 0, begin[1])])
    sender = threading.Thread(target=send, args=(options["server"], topic, count), daemon=True)
    sender.start()
    found: list[float] = []
    while len(found) < count:
        message = consumer.poll(_PATIENCE)
        if message is None or message.error():
            sys.exit(str(message.error()) if message else "no record")
        found.append((time.time_ns() - int(message.value())) / 1e6)
    sender.join()
    consumer.close()
    print(json.dumps({"ms": found[_EARLY:]}))


def send(server: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": server, "linger.ms": 0})
    for _ in range(count):
        producer.produce(topic, b"%d" % time.time_ns(), partition=0)
        producer.poll(0)
        time.sleep(_PERIOD)
    producer.flush(_PATIENCE)


if __name__ == "__main__":
    main()
