"""A member of a consumer group until it is killed: prints JSON lines, for each assignment and each record's partition.

Argument: JSON with `server`, `topic`, `group`, `session` (ms), `heartbeat` (ms).
"""

from __future__ import annotations

import json
import sys
from typing import Any

from confluent_kafka import Consumer


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def main() -> None:
    options = json.loads(sys.argv[1])
    consumer = Consumer(
        {
            "bootstrap.servers": options["server"],
            "group.id": options["group"],
            "session.timeout.ms": options["session"],
            "heartbeat.interval.ms": options["heartbeat"],
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(
        [options["topic"]], on_assign=lambda _, given: say(assigned=[partition.partition for partition in given])
    )
    while True:
        message = consumer.poll(60)
        if message is None or message.error():
            sys.exit(str(message.error()) if message else "no record for a minute")
        say(record=message.partition())


if __name__ == "__main__":
    main()
