"""A group member on confluent-kafka; see tests/support/members.py."""

from __future__ import annotations

import sys
import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

AGAIN = (KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.STALE_MEMBER_EPOCH)


def say(verb: str, words: list[str]) -> None:
    print(verb, *words, flush=True)


def report(verb: str) -> object:
    return lambda _, partitions: say(verb, [str(p.partition) for p in partitions])


def commit(consumer: Consumer) -> None:
    """A cooperative member goes on reading through a rebalance, and its commit may have to wait for the end of it."""
    while True:
        try:
            done: list[TopicPartition] = consumer.commit(asynchronous=False)
            errors = [p.error for p in done if p.error]
        except KafkaException as failure:
            errors = [failure.args[0]]
        if not errors:
            return
        if errors[0].code() not in AGAIN:
            raise KafkaException(errors[0])
        time.sleep(0.02)


def protocol(strategy: str) -> dict[str, str | int]:
    """Classic, or that of KIP-848, where the broker knows the timeouts."""
    if strategy.startswith("remote-"):
        return {"group.protocol": "consumer", "group.remote.assignor": strategy.removeprefix("remote-")}
    return {"partition.assignment.strategy": strategy, "session.timeout.ms": 6000, "heartbeat.interval.ms": 300}


def main() -> None:
    bootstrap, group, topic, strategy = sys.argv[1:]
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            **protocol(strategy),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic], on_assign=report("assigned"), on_revoke=report("revoked"), on_lost=report("lost"))
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    while not stop.is_set():
        messages: list[Message] = consumer.consume(100, 0.1)
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
        if messages:
            say("read", [f"{m.partition()}:{m.value().decode()}" for m in messages])
            commit(consumer)
            say("committed", [])
    consumer.close()


main()
