"""Reads a partition from its beginning at a steady rate, again and again; "ready" with the first record.

Argument: JSON with `server`, `topic`, `count`, the partition's records, and `rate`, of them a second. Ends when stdin
closes, with 1 where it fell more than a second behind that rate.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

_CHUNK = 2000
_PATIENCE = 30.0
_QUEUE_KB = 2048  # without a bound the client would read all of it at once


def main() -> None:
    options = json.loads(sys.argv[1])
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    settings = {"group.id": "bench", "enable.auto.commit": False, "queued.max.messages.kbytes": _QUEUE_KB}
    consumer = Consumer({"bootstrap.servers": options["server"], **settings, "fetch.queue.backoff.ms": 10})
    due, left = 0.0, 0
    while not ended.is_set():
        if not left:
            consumer.assign([TopicPartition(options["topic"], 0, OFFSET_BEGINNING)])
            left = options["count"]
        messages = consumer.consume(min(_CHUNK, left), _PATIENCE)
        if not messages or any(message.error() for message in messages):
            sys.exit("no records" if not messages else str(messages[-1].error()))
        left -= len(messages)
        now = time.monotonic()
        if not due:
            print("ready", flush=True)
            due = now
        due += len(messages) / options["rate"]
        if now > due + 1:
            sys.exit(f"{now - due:.1f} s behind {options['rate']} records/s")
        ended.wait(max(0.0, due - now))
    consumer.close()


if __name__ == "__main__":
    main()
