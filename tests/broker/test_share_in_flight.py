"""100,000 records in flight, over 10 members: all of them are one member's each, and work goes on as with few.

`pytest -s` shows the records/s that the members take and accept, with few and with all that may be in flight.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.support.batches import batch, records
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer
from tests.support.share import ACCEPT, Member, acquired, begins

TOPIC = GROUP = "queue"
PARTITIONS = MEMBERS = 10
LOCKS = 10_000  # in flight on a partition: the most that can be set
BATCH = 500
Range = tuple[int, int, int]  # partition, first and last offset

pytestmark = [pytest.mark.storage("record", "batch"), pytest.mark.long(minutes=1)]


class Worker:
    """A member of all partitions, and what it has, oldest first."""

    def __init__(self, port: int) -> None:
        self.member = Member(Kafka(port), GROUP)
        self.has: deque[Range] = deque()

    def take(self) -> int:
        """How many records it is given."""
        partitions = {} if self.member.epoch else {(TOPIC, n): () for n in range(PARTITIONS)}
        answer = self.member.ask(partitions=partitions, max_records=BATCH, max_bytes=1 << 24)
        assert answer.error_code == 0
        taken = 0
        for topic in answer.responses:
            for part in topic.partitions:
                assert part.error_code == 0
                for first, last, count in acquired(part):
                    assert count == 1
                    self.has.append((part.partition_index, first, last))
                    taken += last - first + 1
        return taken

    def accept(self, seen: set[tuple[int, int]]) -> int:
        """Accepts what it has had for longest: how many records."""
        partition, first, last = self.has.popleft()
        assert self.member.acknowledge(TOPIC, [(first, last, (ACCEPT,))], partition).error_code == 0
        places = {(partition, offset) for offset in range(first, last + 1)}
        assert seen.isdisjoint(places), "a record is accepted once"
        seen |= places
        return len(places)


def test_work_goes_on_as_with_few(start_ketch: Callable[..., KetchServer]) -> None:
    server = start_ketch(f"--group-share-partition-max-record-locks={LOCKS}")
    with Kafka(server.port) as kafka, ExitStack() as stack:
        kafka.create(TOPIC, PARTITIONS, retention_ms=-1)
        begins(kafka, GROUP, share_record_lock_duration_ms="60000")
        fill(kafka, 2)
        workers = [Worker(server.port) for _ in range(MEMBERS)]
        for worker in workers:
            stack.callback(worker.member.client.close)
        seen = set[tuple[int, int]]()
        few = turns(workers, seen)
        left = in_flight(workers)
        fill(kafka, 3)
        while sum(worker.take() for worker in workers):
            """Until nobody is given anything."""
        assert in_flight(workers) == PARTITIONS * LOCKS > left
        many = turns(workers, seen)
        assert in_flight(workers) == PARTITIONS * LOCKS
        while any(worker.has for worker in workers):
            for worker in workers:
                if worker.has:
                    worker.accept(seen)
                worker.take()
        assert len(seen) == 5 * PARTITIONS * LOCKS // 2
    print(f"{few:,.0f} records/s with {left:,} in flight, {many:,.0f} with {PARTITIONS * LOCKS:,}")


def fill(kafka: Kafka, halves: int) -> None:
    """So many times half of what may be in flight, in batches, for each partition."""
    data = batch(records([b"x" * 100] * BATCH))
    for n in range(PARTITIONS):
        for _ in range(halves * LOCKS // 2 // BATCH):
            kafka.stored(TOPIC, data, partition=n)


def in_flight(workers: list[Worker]) -> int:
    return sum(last - first + 1 for worker in workers for _, first, last in worker.has)


def turns(workers: list[Worker], seen: set[tuple[int, int]], count: int = 10) -> float:
    """Each member takes a batch and accepts one, so many times: records/s."""
    begun, done = time.monotonic(), 0
    for _ in range(count):
        for worker in workers:
            while not worker.has:
                assert worker.take()
            done += worker.accept(seen)
            worker.take()
    return done / (time.monotonic() - begun)
