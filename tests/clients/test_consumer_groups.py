"""Consumers with group.protocol=consumer (KIP-848): confluent-kafka, Java and franz-go clients join, leave and die."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import cache, members, programs
from tests.support.ketch import KetchServer, eventually

CONFLUENT = [sys.executable, str(Path(__file__).parent / "members" / "confluent_member.py")]
NO_JAVA = cache.missing("java", "javac", "mvn")
# A killed member is gone after 6 s, and one is told of a new target within 300 ms.
SETTINGS = (
    *("--group-consumer-session-timeout-ms", "6000", "--group-consumer-min-session-timeout-ms", "6000"),
    *("--group-consumer-heartbeat-interval-ms", "300", "--group-consumer-min-heartbeat-interval-ms", "300"),
)


NEEDS_JAVA = pytest.mark.skipif(NO_JAVA is not None, reason=str(NO_JAVA))
JAVA = pytest.param("java", marks=NEEDS_JAVA)
# It takes half a minute of CPU time. Of the short tests the next one has the Java client join and leave, and
# test_group_java.py kills members of it.
JAVA_LONG = pytest.param("java", marks=[NEEDS_JAVA, pytest.mark.long(minutes=0.5)])
NO_GO = cache.missing("go")
NEEDS_GO = pytest.mark.skipif(NO_GO is not None, reason=str(NO_GO))
GO = pytest.param("go", marks=NEEDS_GO)
GO_LONG = pytest.param("go", marks=[NEEDS_GO, pytest.mark.long(minutes=0.5)])


@pytest.fixture
def program(request: pytest.FixtureRequest) -> list[str]:
    if request.param == "go":
        return programs.go("member")
    return CONFLUENT if request.param == "confluent" else programs.java_member()


@pytest.fixture
def quick(start_ketch: Callable[..., KetchServer]) -> KetchServer:
    return start_ketch(*SETTINGS)


@pytest.mark.parametrize("program", ["confluent", JAVA_LONG, GO], indirect=True)
def test_members_come_go_and_die(program: list[str], quick: KetchServer, topic: str, tmp_path: Path) -> None:
    members.come_go_and_die(program, quick.bootstrap, topic, tmp_path, "remote-range")


@pytest.mark.parametrize("program", ["confluent", JAVA, GO_LONG], indirect=True)
def test_a_rebalance_takes_no_more_than_it_must(
    program: list[str], quick: KetchServer, topic: str, tmp_path: Path
) -> None:
    members.keep_going(program, quick.bootstrap, topic, tmp_path, "remote-uniform")


@pytest.mark.parametrize("program", ["confluent", JAVA_LONG, GO_LONG], indirect=True)
def test_a_rolling_upgrade_and_back(program: list[str], quick: KetchServer, topic: str, tmp_path: Path) -> None:
    members.change_protocol(program, quick.bootstrap, topic, tmp_path, "range")
    converted(quick)


@NEEDS_JAVA
@pytest.mark.long(minutes=0.5)
def test_a_rolling_upgrade_of_cooperative_members(quick: KetchServer, topic: str, tmp_path: Path) -> None:
    """Java's alone: librdkafka's put data of their own into the assignments, which Kafka and Ketch refuse to lose."""
    members.change_protocol(programs.java_member(), quick.bootstrap, topic, tmp_path, "cooperative-sticky")
    converted(quick)


def converted(quick: KetchServer) -> None:
    types = re.findall(r"converted to a (\w+) group", quick.log)
    assert types[:2] == ["consumer", "classic"]
    assert types[-1] == "classic", "the last member of the new protocol was killed"


class Reader:
    """A consumer in this process."""

    def __init__(self, server: KetchServer, *topics: str, **config: str) -> None:
        named = {"bootstrap.servers": server.bootstrap, "group.id": "readers", "group.protocol": "consumer"}
        self.consumer = confluent_kafka.Consumer({**named, "auto.offset.reset": "earliest", **config})
        self.consumer.subscribe(list(topics))

    def reads(self, *partitions: tuple[str, int]) -> bool:
        """Whether it has exactly these, after another poll."""
        self.consumer.poll(0.05)
        return sorted((p.topic, p.partition) for p in self.consumer.assignment()) == sorted(partitions)


@pytest.fixture
def admin(quick: KetchServer) -> AdminClient:
    return AdminClient({"bootstrap.servers": quick.bootstrap})


def test_a_regular_expression_and_a_new_topic(quick: KetchServer, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("orders-eu", 2)])["orders-eu"].result()
    reader = Reader(quick, "^orders-.*")
    eventually(lambda: reader.reads(("orders-eu", 0), ("orders-eu", 1)))
    admin.create_topics([NewTopic("orders-us", 1), NewTopic("other", 1)])["orders-us"].result()
    eventually(lambda: reader.reads(("orders-eu", 0), ("orders-eu", 1), ("orders-us", 0)))
    described = admin.describe_consumer_groups(["readers"])["readers"].result()
    assert (described.state, described.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    reader.consumer.close()
    described = admin.describe_consumer_groups(["readers"])["readers"].result()
    assert described.state is ConsumerGroupState.EMPTY
    assert admin.delete_consumer_groups(["readers"])["readers"].result() is None


def test_a_static_member_that_restarts(quick: KetchServer, admin: AdminClient) -> None:
    """It has its partitions again, and the other one never lost or got any."""
    admin.create_topics([NewTopic("t", 4)])["t"].result()
    first, second = (Reader(quick, "t", **{"group.instance.id": name}) for name in ("one", "two"))
    eventually(lambda: _halves(first, second))
    had = [(p.topic, p.partition) for p in first.consumer.assignment()]
    kept = [(p.topic, p.partition) for p in second.consumer.assignment()]
    first.consumer.close()
    again = Reader(quick, "t", **{"group.instance.id": "one"})
    eventually(lambda: again.reads(*had))
    assert second.reads(*kept)
    for reader in (again, second):
        reader.consumer.close()


def _halves(*readers: Reader) -> bool:
    """Whether two share four partitions, after another poll of each."""
    for reader in readers:
        reader.consumer.poll(0.01)
    return [len(reader.consumer.assignment()) for reader in readers] == [2, 2]


def test_the_broker_dies(quick: KetchServer, admin: AdminClient) -> None:
    """Consumers go on with what they had."""
    admin.create_topics([NewTopic("t", 4)])["t"].result()
    lost: list[object] = []
    readers = [Reader(quick, "t") for _ in range(2)]
    eventually(lambda: _halves(*readers))
    for reader in readers:
        reader.consumer.subscribe(["t"], on_revoke=lambda _, p: lost.append(p), on_lost=lambda _, p: lost.append(p))
    had = [reader.consumer.assignment() for reader in readers]
    quick.kill()
    quick.start()
    producer = confluent_kafka.Producer({"bootstrap.servers": quick.bootstrap})
    for partition in range(4):
        producer.produce("t", b"after", partition=partition)
    assert producer.flush(20) == 0
    found = set[int]()

    def all_found() -> bool:
        for reader in readers:
            message = reader.consumer.poll(0.05)
            if message is not None and message.error() is None:
                found.add(message.partition() or 0)
        return found == {0, 1, 2, 3}

    eventually(all_found)
    assert [reader.consumer.assignment() for reader in readers] == had
    assert not lost
    for reader in readers:
        reader.consumer.close()
