"""A group member on aiokafka; see tests/support/members.py."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

STRATEGIES = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


def say(verb: str, words: list[str]) -> None:
    print(verb, *words, flush=True)


class Report(ConsumerRebalanceListener):  # type: ignore[misc]
    """aiokafka rebalances beside the program: the lock lets a batch be committed before its partitions go."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self.lock = lock

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        async with self.lock:
            say("revoked", [str(p.partition) for p in revoked])

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        say("assigned", [str(p.partition) for p in assigned])


async def main() -> None:
    bootstrap, group, topic, strategy = sys.argv[1:]
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        partition_assignment_strategy=[STRATEGIES[strategy]],
        session_timeout_ms=6000,
        heartbeat_interval_ms=300,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    lock = asyncio.Lock()
    consumer.subscribe([topic], listener=Report(lock))
    await consumer.start()
    stop = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    while not stop.done():
        batches = await consumer.getmany(timeout_ms=100)  # not in the lock: it may wait for the end of a rebalance
        records = [record for batch in batches.values() for record in batch]
        if records:
            async with lock:
                say("read", [f"{r.partition}:{r.value.decode()}" for r in records])
                await consumer.commit()
                say("committed", [])
    await consumer.stop()


asyncio.run(main())
