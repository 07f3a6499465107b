"""A member of a group that copies records in transactions, on confluent-kafka; see tests/clients/test_copiers.py."""

from __future__ import annotations

import sys
import threading

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

AT_A_TIME = 20


def copy(consumer: Consumer, producer: Producer, messages: list[Message], target: str, stop: threading.Event) -> None:
    """One transaction, drawn out, that rebalances come in the middle of some."""
    producer.begin_transaction()
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
        producer.produce(target, message.value(), partition=message.partition())
    producer.flush()
    stop.wait(0.05)
    at = [place for place in consumer.position(consumer.assignment()) if place.offset >= 0]
    producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), 30)
    stop.wait(0.05)
    producer.commit_transaction(30)


def rewind(consumer: Consumer) -> None:
    """Goes on behind what is committed."""
    for place in consumer.committed(consumer.assignment(), 30):
        begin = place.offset if place.offset >= 0 else 0
        consumer.seek(TopicPartition(place.topic, place.partition, begin))


def main() -> None:
    bootstrap, group, source, target, id = sys.argv[1:]
    common = {"bootstrap.servers": bootstrap, "log_level": 3}
    session = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300}
    offsets = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**common, **session, **offsets, "group.id": group})
    producer = Producer({**common, "transactional.id": id, "linger.ms": 0})
    producer.init_transactions(30)
    consumer.subscribe([source])
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    while not stop.is_set():
        messages = consumer.consume(AT_A_TIME, 0.2)
        if not messages:
            continue
        try:
            copy(consumer, producer, messages, target, stop)
            print("copied", len(messages), flush=True)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            print("aborted", failure.args[0].name(), flush=True)
            producer.abort_transaction(30)
            rewind(consumer)
    consumer.close()


main()
