"""A group member on kafka-python; see tests/support/members.py."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import IllegalGenerationError, RebalanceInProgressError

STRATEGIES = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}


def say(verb: str, words: list[str]) -> None:
    print(verb, *words, flush=True)


class Member(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, consumer: KafkaConsumer) -> None:
        self.consumer = consumer
        self.uncommitted = False

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self.commit()
        say("revoked", [str(p.partition) for p in revoked])

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        say("assigned", [str(p.partition) for p in assigned])

    def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        say("lost", [str(p.partition) for p in lost])

    def commit(self) -> None:
        """In a rebalance that goes on while a cooperative member reads, the next poll comes first."""
        if not self.uncommitted:
            return
        try:
            self.consumer.commit()
        except (RebalanceInProgressError, IllegalGenerationError):
            return
        self.uncommitted = False
        say("committed", [])


def main() -> None:
    bootstrap, group, topic, strategy = sys.argv[1:]
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        partition_assignment_strategy=[STRATEGIES[strategy]],
        session_timeout_ms=6000,
        heartbeat_interval_ms=300,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    member = Member(consumer)
    consumer.subscribe([topic], listener=member)
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    while not stop.is_set():
        # kafka-python 3.0.12 may never take up an assignment that comes in just when its poll's time is up, so this one
        # is longer than a rebalance here takes; records end it early.
        records = [record for batch in consumer.poll(3000).values() for record in batch]
        if records:
            say("read", [f"{r.partition}:{r.value.decode()}" for r in records])
            member.uncommitted = True
        member.commit()
    member.commit()
    consumer.close()


main()
