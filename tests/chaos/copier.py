"""Copies one topic to another in transactions, with its offsets in them, until it is killed: exactly once.

    python -m tests.chaos.copier BOOTSTRAP SOURCE TARGET ID

It exits with an error it cannot go on with; whoever started it starts it again.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, Producer

_QUICK = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "log_level": 3}
# librdkafka 2.16 starts again from its bootstrap servers when its only broker goes (KIP-899). A TxnOffsetCommit may
# then wait for ever for the connection of a broker that it has let go of; no timeout ends send_offsets_to_transaction.
_NO_REBOOTSTRAP = {"metadata.recovery.strategy": "none"}
_AT_A_TIME = 20


def main(bootstrap: str, source: str, target: str, id: str) -> None:
    common = {"bootstrap.servers": bootstrap, **_QUICK, **_NO_REBOOTSTRAP}
    consumer = Consumer(
        {
            **common,
            "group.id": id,
            "group.instance.id": id,  # a copier that was killed is replaced at once
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    producer = Producer({**common, "transactional.id": id, "transaction.timeout.ms": 20_000, "linger.ms": 0})
    producer.init_transactions(60)
    consumer.subscribe([source])
    while True:
        messages = consumer.consume(_AT_A_TIME, 0.5)
        if any(message.error() for message in messages):
            sys.exit(f"reading: {[message.error() for message in messages if message.error()]}")
        if messages:
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, message.value(), partition=message.partition())
            at = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), 60)
            producer.commit_transaction(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
