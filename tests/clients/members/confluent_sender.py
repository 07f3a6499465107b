"""A producer on confluent-kafka in the middle of a transaction; see tests/clients/test_zombie.py."""

from __future__ import annotations

import sys
import threading

from confluent_kafka import KafkaError, KafkaException, Producer

FLUSHED_FIRST = 100


def main() -> None:
    bootstrap, id, topic, partitions = sys.argv[1:]
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": id, "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    try:
        count = 0
        while not stop.wait(0.002):
            producer.produce(topic, f"{id} {count}", partition=count % int(partitions))
            producer.poll(0)
            count += 1
            if count == FLUSHED_FIRST:
                producer.flush()
                print("open", flush=True)
        producer.commit_transaction(30)
        print("committed", flush=True)
    except KafkaException as failure:
        error: KafkaError = failure.args[0]
        if error.txn_requires_abort():
            producer.abort_transaction(30)
        # Where the fence was met in the background, produce() says that there was a fatal error, not which one.
        fenced = error.code() in (KafkaError._FENCED, KafkaError._FATAL)
        print("fenced" if fenced else error.name(), flush=True)


main()
