"""Thousands of rebalances: members of both protocols come, go and die for seconds, or for ten minutes on demand.

All members are raw ones in one thread, so what they read at one moment is known: no partition is two members'. Each
goes on from the committed offset, processes, and commits what it has processed. No commit that is accepted is below an
earlier one, and in the end every record has been processed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from tests.support.batches import batch, records
from tests.support.consumer_members import REBALANCE, Beater, Classic
from tests.support.groups import Member
from tests.support.kafka import Kafka, split
from tests.support.ketch import KetchServer

PARTITIONS, MOST = 7, 6
SESSION_MS = "2000"
SETTINGS = {
    "KETCH_GROUP_CONSUMER_SESSION_TIMEOUT_MS": SESSION_MS,
    "KETCH_GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS": SESSION_MS,
    "KETCH_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": "500",
    "KETCH_GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS": "500",
    "KETCH_GROUP_MIN_SESSION_TIMEOUT_MS": SESSION_MS,
}
ILLEGAL_GENERATION, UNKNOWN_MEMBER, FENCED_EPOCH, STALE_EPOCH = 22, 25, 110, 113
LATE = {ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE, STALE_EPOCH}  # a commit of a member that has to come again


class Worker:
    """A member that reads what it may, processes and commits it."""

    def __init__(self, port: int, topic: str, new: bool) -> None:
        self.topic = topic
        self.member: Beater | Classic = Beater(port, "soak") if new else Classic(port, "soak", topic)
        self.positions: dict[int, int] = {}

    @property
    def owned(self) -> set[int]:
        """The partitions that it may read."""
        member = self.member
        return {index for _, index in member.assigned} if isinstance(member, Beater) else set(member.owned)

    def turn(self) -> None:
        """A heartbeat, and what follows from its answer."""
        if isinstance(self.member, Beater):
            self._beat(self.member)
        else:
            self._step(self.member)
        self.positions = {index: offset for index, offset in self.positions.items() if index in self.owned}

    def _beat(self, member: Beater) -> None:
        if member.generation <= 0:
            assert member.enters(self.topic).error_code == 0
        elif (code := member.beat().error_code) != 0:
            assert code in (UNKNOWN_MEMBER, FENCED_EPOCH)
            member.generation, member.assigned = 0, frozenset()

    def _step(self, member: Classic) -> None:
        if not member.id:
            assert member.enter(session_timeout=int(SESSION_MS)).error_code == 0
            assert member.gets()[0] in (0, REBALANCE)
            return
        codes = member.steps(session_timeout=int(SESSION_MS))
        if not {UNKNOWN_MEMBER, ILLEGAL_GENERATION}.isdisjoint(codes):
            member.id, member.owned = "", []

    def work(self, read: Callable[[int, int], tuple[int, list[bytes]]], done: set[bytes], committed: list[int]) -> None:
        """Processes what there is in its partitions; a commit is to be no lower than an earlier one."""
        for index in self.owned:
            if index not in self.positions:
                self.positions[index] = self.member.committed(self.topic, index)[0]
            end, values = read(index, self.positions[index])
            done.update(values)
            code = self.member.commit(self.topic, end, index) if values else 0
            if code:
                assert code in LATE
                return
            self.positions[index] = end
            assert end >= committed[index], "a commit goes back"
            committed[index] = end


class Soak:
    """The members, the records, and what has been done with them."""

    def __init__(self, server: KetchServer, seed: int) -> None:
        self.port, self.random = server.port, random.Random(seed)
        self.client = Kafka(server.port)
        self.client.create("t", PARTITIONS)
        self.workers: list[Worker] = [Worker(self.port, "t", True)]  # it stays: joins are answered at once
        self.produced, self.done = set[bytes](), set[bytes]()
        self.committed = [0] * PARTITIONS

    def read(self, index: int, start: int) -> tuple[int, list[bytes]]:
        """What there is from an offset on, -1 for the first one, and where that ends."""
        if start < 0:
            start = self.client.list_offsets("t", -2, partition=index).offset
        answer = self.client.fetch("t", start, partition=index)
        assert answer.error_code == 0
        batches = split(answer.records or b"")
        values = [record.value or b"" for each in batches for record in each.records if record.offset >= start]
        return (batches[-1].last_offset + 1 if batches else start), values

    def produce(self) -> None:
        values = [b"%d" % (len(self.produced) + n) for n in range(3)]
        self.client.stored("t", batch(records(values)), partition=self.random.randrange(PARTITIONS))
        self.produced.update(values)

    def change(self) -> None:
        """A member comes, goes or dies."""
        what = self.random.random()
        if what < 0.5 and len(self.workers) < MOST:
            self.workers.append(Worker(self.port, "t", self.random.random() < 0.5))
        elif len(self.workers) > 1:
            gone = self.workers.pop(self.random.randrange(1, len(self.workers))).member
            if what < 0.97 and gone.id:
                assert (gone.goes() if isinstance(gone, Beater) else gone.leave()).error_code in (0, UNKNOWN_MEMBER)
            gone.close()

    def round(self) -> None:
        for worker in self.workers:
            worker.turn()
            reading = [index for each in self.workers for index in each.owned]
            assert len(reading) == len(set(reading)), "two members read a partition"
            worker.work(self.read, self.done, self.committed)

    def is_done(self) -> bool:
        self.round()
        return self.done == self.produced and sorted(index for each in self.workers for index in each.owned) == [
            *range(PARTITIONS)
        ]


@pytest.mark.parametrize("seconds", [5, pytest.param(600, marks=pytest.mark.long(minutes=10.5))])
def test_members_come_and_go(start_ketch: Callable[..., KetchServer], seconds: int) -> None:
    soak = Soak(start_ketch(env=SETTINGS), seed=seconds)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        soak.produce()
        soak.change()
        soak.round()
    last = time.monotonic() + 60
    while not soak.is_done():  # without a pause, that no session ends
        assert time.monotonic() < last, (soak.produced - soak.done, [worker.owned for worker in soak.workers])
    anchor = soak.workers[0].member
    assert isinstance(anchor, Beater)
    assert anchor.shown().group_epoch > seconds, "there were rebalances"
    with Member(soak.port, "soak") as watch:
        ends = [soak.client.list_offsets("t", -1, partition=index).offset for index in range(PARTITIONS)]
        assert [watch.committed("t", index)[0] for index in range(PARTITIONS)] == [
            end if soak.committed[index] else -1 for index, end in enumerate(ends)
        ]
    for worker in soak.workers:
        worker.member.close()
    soak.client.close()
