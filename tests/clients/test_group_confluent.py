"""Group consumers of confluent-kafka: members come, go and die, a cooperative rebalance goes on, the broker dies."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import members
from tests.support.ketch import KetchServer, eventually

PROGRAM = [sys.executable, str(Path(__file__).parent / "members" / "confluent_member.py")]
MEMBERS = 20


def test_members_come_go_and_die(broker: KetchServer, topic: str, tmp_path: Path) -> None:
    members.come_go_and_die(PROGRAM, broker.bootstrap, topic, tmp_path, "range")


def test_a_cooperative_rebalance_goes_on_reading(broker: KetchServer, topic: str, tmp_path: Path) -> None:
    members.keep_going(PROGRAM, broker.bootstrap, topic, tmp_path, "cooperative-sticky")


class Reader:
    """One of many members in this process, a partition each; it commits what it has read when it is told to."""

    def __init__(self, server: KetchServer, topic: str) -> None:
        self.assignments: list[list[int]] = []
        self.read: list[bytes] = []
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": server.bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 500,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._assigned)

    def _assigned(self, _: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.assignments.append([place.partition for place in partitions])

    def poll(self) -> None:
        message = self._consumer.poll(0.005)
        if message is not None and message.error() is None:
            self.read.append(message.value())

    def commit(self) -> None:
        if self.read:
            self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


def test_a_killed_broker_comes_back_to_the_group_as_it_was(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    """Nobody rebalances, and nobody sees a record twice."""
    server = start_ketch()
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, MEMBERS, 1)])[topic].result(10)
    readers = [Reader(server, topic) for _ in range(MEMBERS)]
    produced: list[bytes] = []

    def produce(count: int) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
        for n in range(len(produced), len(produced) + count):
            produced.append(b"%d" % n)
            producer.produce(topic, produced[-1], partition=n % MEMBERS)
        assert producer.flush(30) == 0

    def all_read() -> bool:
        for reader in readers:
            reader.poll()
        return sum(len(reader.read) for reader in readers) >= len(produced)

    def settled() -> bool:
        all_read()
        return all(reader.assignments and len(reader.assignments[-1]) == 1 for reader in readers)

    eventually(settled, 60, "a partition for each member")
    produce(400)
    eventually(all_read, 30, "the first records")
    for reader in readers[::2]:
        reader.commit()
    before = [list(reader.assignments) for reader in readers]
    produce(200)
    for _ in range(3):
        all_read()
    server.kill()
    server.start()
    produce(400)
    eventually(all_read, 60, "all records")
    assert Counter(value for reader in readers for value in reader.read) == Counter(produced)
    assert [reader.assignments for reader in readers] == before
    for reader in readers:
        reader.commit()
    for reader in readers:
        reader.close()


class Groups:
    """Consumers of groups that share client id and host, on a topic with one partition."""

    def __init__(self, broker: KetchServer, topic: str) -> None:
        self.broker, self.topic = broker, topic
        self.redis, self.stream = broker.redis(), f"korvet:stream:{topic}:0"
        self._producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)

    def produce(self, count: int) -> None:
        for n in range(count):
            self._producer.produce(self.topic, b"%d" % n, partition=0)
        assert self._producer.flush(30) == 0

    def consumer(self, group: str, **callbacks: Any) -> confluent_kafka.Consumer:
        config = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        made = confluent_kafka.Consumer({"bootstrap.servers": self.broker.bootstrap, **config})
        made.subscribe([self.topic], **callbacks)
        return made

    def native(self, group: str) -> tuple[int, int]:
        """Deliveries pending, and the lag in records."""
        rows = {row["name"].decode(): row for row in self.redis.xinfo_groups(self.stream)}
        return (rows[group]["pending"], rows[group]["lag"]) if group in rows else (-1, -1)


def read(consumer: confluent_kafka.Consumer, count: int) -> None:
    """So many records, and no more."""
    found = 0

    def more() -> bool:
        nonlocal found
        found += len(consumer.consume(count - found, 0.1))
        return found == count

    eventually(more)


@pytest.mark.only_storage("record", "record-dense")
def test_groups_that_start_together_with_one_client_id_are_both_shown(broker: KetchServer, topic: str) -> None:
    """Both are assigned before either fetches: nobody can tell whose fetches are whose, and nobody has committed."""
    groups, first, second = Groups(broker, topic), f"first-{topic}", f"second-{topic}"
    groups.produce(25)
    assigned: list[str] = []

    def consumer(group: str) -> confluent_kafka.Consumer:
        def hold(consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
            assigned.append(group)
            consumer.assign(partitions)
            consumer.pause(partitions)

        return groups.consumer(group, on_assign=hold)

    a, b = consumer(first), consumer(second)

    def both() -> bool:
        assert [*a.consume(1, 0.05), *b.consume(1, 0.05)] == []
        return sorted(assigned) == [first, second]

    eventually(both)
    eventually(lambda: groups.native(first) == groups.native(second) == (0, 25))
    for one in (a, b):
        one.resume(one.assignment())
    read(a, 25)
    read(b, 25)
    assert groups.native(first) == groups.native(second) == (0, 25), "commits alone move them"
    a.commit(asynchronous=False)
    eventually(lambda: groups.native(first) == (0, 0))
    b.commit(asynchronous=False)
    eventually(lambda: groups.native(second) == (0, 0))
    a.close()
    b.close()


@pytest.mark.only_storage("record", "record-dense")
def test_groups_with_one_client_id_read_the_same_partition(broker: KetchServer, topic: str) -> None:
    """The second group's consumer starts while the first one reads: the native groups of both follow."""
    groups, first, second = Groups(broker, topic), f"first-{topic}", f"second-{topic}"
    native, produce = groups.native, groups.produce
    produce(10)
    a = groups.consumer(first)
    read(a, 10)
    assert native(first) == (10, 0)
    b = groups.consumer(second)
    read(b, 10)
    assert native(second) == (0, 10), "its first fetch may have been the first group's, through a new connection"
    a.commit(asynchronous=False)
    eventually(lambda: native(first) == (0, 0))

    def follows() -> bool:
        produce(1)
        read(a, 1)
        read(b, 1)
        return native(second)[0] > 0

    eventually(follows)
    b.commit(asynchronous=False)
    eventually(lambda: native(second) == (0, 0))
    a.commit(asynchronous=False)
    eventually(lambda: native(first) == (0, 0))
    produce(5)
    read(a, 5)
    read(b, 5)
    assert native(first) == native(second) == (5, 0)
    a.close()
    b.close()
