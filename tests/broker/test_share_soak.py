"""Members of a share group take, settle, keep, close and die, and so do brokers and Valkey: for seconds, or minutes.

All members are raw ones in one thread, over two brokers on one Valkey. So for each record is known who may have it and
how often it was delivered, and a plain model judges every answer:

- a record that is settled never comes again;
- one that a member has comes to nobody else before its lock has expired;
- each delivery has the next count, of which the limit is the last; what is given back by a close does not count;
- an acknowledgement is refused only where a lock may have expired.

What a killed server had not answered is in doubt until it is seen again. In the end every record is settled, or was
delivered as often as may be, and the group stands at the end of each partition.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ketch.embedded.valkey import server_binary
from tests.support.batches import batch, records
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually
from tests.support.redis_servers import RedisServer
from tests.support.share import ACCEPT, REJECT, RELEASE, SHARE_ACKNOWLEDGE, Member, acquired, begins
from tests.support.share_members import ShareAdmin

TOPIC = GROUP = "soak"
PARTITIONS, MEMBERS = 3, 6
LOCK_S, LIMIT, SLACK_S = 1.0, 5, 0.05  # the clocks of Valkey and of this test may differ by that
INVALID_RECORD_STATE, SESSION_NOT_FOUND = 121, 122
SETTINGS = tuple(
    f"--group-share-{name}-ms={round(LOCK_S * 1000)}" for name in ("record-lock-duration", "min-record-lock-duration")
)


@dataclass(slots=True)
class Record:
    """What is known of a record.

    Attributes:
        low, high: how often it was delivered, at least and at most.
        holder: the id of the member that has it; "" where nobody needs to have it.
        taken: when that was asked for, s of the monotonic clock.
        doubtful: it may be settled.
    """

    low: int = 0
    high: int = 0
    holder: str = ""
    taken: float = 0.0
    settled: bool = False
    doubtful: bool = False

    def free(self, now: float) -> bool:
        """Whether another member may be given it."""
        return not self.holder or now - self.taken >= LOCK_S - SLACK_S


Place = tuple[int, int]  # partition and offset


class Worker:
    """A member: its connection, and what it believes to have."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.member = Member(Kafka(port), GROUP)
        self.has: set[Place] = set()


class Soak:
    """Brokers, members, and the model."""

    def __init__(self, valkey: RedisServer, brokers: list[KetchServer], seed: int) -> None:
        self.valkey, self.brokers, self.random = valkey, brokers, random.Random(seed)
        self.records: dict[Place, Record] = {}
        self.workers: list[Worker] = []
        self.produced = self.faults = self.accepted = 0

    def produce(self) -> None:
        with Kafka(self.random.choice(self.brokers).port) as client:
            count = self.random.randrange(1, 30)
            values = [b"%d" % (self.produced + n) for n in range(count)]
            client.stored(TOPIC, batch(records(values)), partition=self.random.randrange(PARTITIONS))
            self.produced += count

    def turn(self) -> None:
        """One member does something."""
        if len(self.workers) < MEMBERS:
            self.workers.append(Worker(self.random.choice(self.brokers).port))
        worker, what = self.random.choice(self.workers), self.random.random()
        try:
            if what < 0.5 or not worker.has:
                self.fetch(worker)
            elif what < 0.94:
                self.acknowledge(worker)
            elif what < 0.97:
                self.close(worker)
            else:
                self.drop(worker)
        except (OSError, EOFError):
            self.drop(worker)

    # -- members

    def fetch(self, worker: Worker) -> None:
        index, begun = self.random.randrange(PARTITIONS), time.monotonic()
        for record in self.records.values():  # where there is no answer it may have got any of them
            record.high += 1
        answer = worker.member.ask(partitions={(TOPIC, index): ()}, max_records=self.random.choice((3, 20, 100)))
        if answer.error_code == SESSION_NOT_FOUND:
            worker.member.epoch = 0
        elif answer.error_code == 0 and not any(p.error_code for t in answer.responses for p in t.partitions):
            for record in self.records.values():
                record.high -= 1
            parts = [part for topic in answer.responses for part in topic.partitions]
            for part in parts:
                for first, last, count in acquired(part):
                    for offset in range(first, last + 1):
                        self.given(worker, (part.partition_index, offset), count, begun)

    def given(self, worker: Worker, place: Place, count: int, begun: float) -> None:
        record, now = self.records.setdefault(place, Record()), time.monotonic()
        assert not record.settled, f"{place} is settled, and comes again"
        assert record.free(now), f"{place} is {record.holder}'s for {now - record.taken:.2f} s"
        assert record.low < count <= min(record.high + 1, LIMIT), (place, count, record)
        self.records[place] = Record(count, count, worker.member.id, begun)
        worker.has.add(place)

    def acknowledge(self, worker: Worker) -> None:
        """Says something of some of what the member has of one partition; it keeps the rest, perhaps for too long."""
        index = self.random.choice([place[0] for place in worker.has])
        mine = sorted(place for place in worker.has if place[0] == index and self.random.random() < 0.9)
        said = [(place, self.random.choices((ACCEPT, RELEASE, REJECT), (90, 8, 2))[0]) for place in mine]
        if not said:
            return
        worker.has.difference_update(mine)
        for place in mine:
            self.records[place].doubtful |= self.records[place].holder == worker.member.id
        acks = {(TOPIC, index): [(offset, offset, (what,)) for (_, offset), what in said]}
        if worker.member.epoch == 0:
            worker.member.ask()  # a session begins with a fetch
        answer = worker.member.ask(SHARE_ACKNOWLEDGE, acks)
        now = time.monotonic()
        if answer.error_code == SESSION_NOT_FOUND:
            worker.member.epoch = 0
        codes = [part.error_code for topic in answer.responses for part in topic.partitions]
        if answer.error_code == 0 and codes == [INVALID_RECORD_STATE]:
            late = [place for place in mine if self.late(worker, place, now)]
            assert late, f"{worker.member.id} had {mine}"
            for place in mine:
                self.records[place].doubtful = False
        elif answer.error_code == 0 and codes == [0]:
            for place, what in said:
                self.said(worker, place, what)

    def late(self, worker: Worker, place: Place, now: float) -> bool:
        record = self.records[place]
        return record.holder != worker.member.id or now - record.taken >= LOCK_S - SLACK_S

    def said(self, worker: Worker, place: Place, what: int) -> None:
        """The broker has taken the member's word; that of one who has come too late changes nothing."""
        record = self.records[place]
        if record.holder != worker.member.id:
            return
        record.doubtful, record.holder = False, ""
        record.settled = what != RELEASE
        self.accepted += what == ACCEPT

    def close(self, worker: Worker) -> None:
        """It closes its session: what it has is given back, and the delivery does not count."""
        self.gone(worker, counts=-1)
        worker.member.close()
        self.workers.remove(worker)
        worker.member.client.close()

    def drop(self, worker: Worker) -> None:
        """Its connection closes, or its broker is dead: what it has is given back, or its lock expires."""
        self.gone(worker, counts=0)
        self.workers.remove(worker)
        worker.member.client.close()

    def gone(self, worker: Worker, counts: int) -> None:
        for place in worker.has:
            record = self.records[place]
            if record.holder == worker.member.id:
                record.low -= 1
                record.holder = ""

    # -- faults

    def break_something(self) -> None:
        """kill -9 of a broker or of Valkey, and its start."""
        self.faults += 1
        victim = self.random.choice([self.valkey, *self.brokers])
        if isinstance(victim, KetchServer):
            victim.kill()
            for worker in [each for each in self.workers if each.port == victim.port]:
                self.drop(worker)
        else:
            victim.kill()
        victim.start()
        for broker in self.brokers:
            eventually(lambda broker=broker: self.serves(broker), 60.0, "the broker to serve")

    def serves(self, broker: KetchServer) -> bool:
        with Kafka(broker.port) as client:
            return all(client.list_offsets(TOPIC, -1, partition=n).error_code == 0 for n in range(PARTITIONS))

    # -- the end

    def stands_at_the_end(self, admin: ShareAdmin) -> bool:
        for _ in range(20):
            self.turn()
        for worker in self.workers:
            while worker.has:
                self.acknowledge(worker)
        (found,) = admin.offsets({TOPIC: range(PARTITIONS)}).topics
        starts = {part.partition_index: part.start_offset for part in found.partitions}
        return all(starts[n] == admin.list_offsets(TOPIC, -1, partition=n).offset for n in range(PARTITIONS))

    def check(self) -> None:
        assert len(self.records) == self.produced, "every record was delivered"
        lost = {
            place: record
            for place, record in self.records.items()
            if not (record.settled or record.doubtful or record.high >= LIMIT)
        }
        assert not lost


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(str(server_binary()), tmp_path / "valkey")
    yield server
    server.kill()


@pytest.mark.storage("record", "batch")
@pytest.mark.parametrize("seconds", [5, pytest.param(600, marks=pytest.mark.long(minutes=10.5))])
def test_members_brokers_and_valkey_die(
    start_ketch: Callable[..., KetchServer], valkey: RedisServer, seconds: int
) -> None:
    brokers = [
        start_ketch(*SETTINGS, "--redis", valkey.url, "--append", "multi", "--node-id", str(n), name=f"b{n}")
        for n in (1, 2)
    ]
    soak = Soak(valkey, brokers, seed=seconds)
    with Kafka(brokers[0].port) as client:
        client.create(TOPIC, PARTITIONS, retention_ms=-1)
        begins(client, GROUP)
    end = time.monotonic() + seconds
    fault = time.monotonic() + seconds / 4
    while time.monotonic() < end:
        soak.produce()
        for _ in range(10):
            soak.turn()
        if time.monotonic() >= fault:
            soak.break_something()
            fault = time.monotonic() + min(seconds / 4, 10.0)
    with ShareAdmin(brokers[0].port, GROUP) as admin:
        eventually(lambda: soak.stands_at_the_end(admin), 120.0, "every record to be settled")
    soak.check()
    for worker in soak.workers:
        worker.member.client.close()
    print(f"{soak.produced} records, {soak.accepted} accepted, {soak.faults} faults")
