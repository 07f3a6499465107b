"""Clients of the time, which no one here wrote: npm's kafka 0.2.3 and brod 0.4.3, alone and with clients of today."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer
from kazoo.client import KazooClient

from tests.legacy07.conftest import legacy_port
from tests.support import brod, cache, programs, zookeeper
from tests.support.ketch import KetchServer, eventually
from tests.support.zookeeper import ZooKeeperServer

NO_NODE = cache.missing("node", "npm")
needs_node = pytest.mark.skipif(NO_NODE is not None, reason=str(NO_NODE))
needs_brod = pytest.mark.skipif(brod.MISSING is not None, reason=str(brod.MISSING))
needs_zookeeper = pytest.mark.skipif(zookeeper.MISSING is not None, reason=str(zookeeper.MISSING))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    server = KetchServer(tmp_path_factory.mktemp("legacy"), "--legacy-port", "0", "--default-partitions", "2").start()
    yield server
    assert server.stop() == 0, server.log


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    """Serves today's records to clients of Kafka 0.6, which is what npm's kafka and brod are: they know no magic 1."""
    server = KetchServer(tmp_path_factory.mktemp("older"), "--legacy-port", "0", "--legacy-magic", "0").start()
    yield server
    assert server.stop() == 0, server.log


@pytest.fixture
def port(server: KetchServer) -> str:
    return str(legacy_port(server))


def produce_today(server: KetchServer, topic: str, *messages: str, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for message in messages:
        producer.produce(topic, message.encode(), partition=partition)
    assert producer.flush(30) == 0


def consume_today(server: KetchServer, topic: str, count: int) -> list[str]:
    """So many messages, in their order within each partition."""
    options = {"bootstrap.servers": server.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(options)
    consumer.subscribe([topic])
    found: list[str] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None, found
        assert not message.error(), message.error()
        found.append(message.value().decode())
    consumer.close()
    return found


@needs_node
class TestNode:
    @staticmethod
    def run(*arguments: str) -> list[object]:
        done = subprocess.run([*programs.node_legacy(), *arguments], stdout=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode == 0
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_it_reads_what_it_wrote(self, port: str, server: KetchServer, topic: str) -> None:
        self.run("produce", port, topic, "1", "one", "two", "three")
        assert consume_today(server, topic, 3) == ["one", "two", "three"]
        # 9 bytes around each message of magic 0
        assert self.run("consume", port, topic, "1", "0", "3") == [["one", 12], ["two", 24], ["three", 38]]
        assert self.run("consume", port, topic, "1", "12", "1") == [["two", 24]]
        assert self.run("offsets", port, topic, "1") == [38]

    def test_it_reads_what_today_s_producers_write(self, older: KetchServer, topic: str) -> None:
        port = str(legacy_port(older))
        self.run("produce", port, topic, "0", "old")
        consume_today(older, topic, 1)
        produce_today(older, topic, "new", "newer")
        assert [message for message, _ in self.run("consume", port, topic, "0", "0", "3")] == ["old", "new", "newer"]  # type: ignore[misc]


@needs_brod
class TestBrod:
    def test_it_reads_what_it_wrote(self, port: str, server: KetchServer, topic: str) -> None:
        brod.run("produce", port, topic, "1", "one", "two", "three")
        assert consume_today(server, topic, 3) == ["one", "two", "three"]
        assert brod.run("fetch", port, topic, "1", "0", "1000") == [[0, "one"], [12, "two"], [24, "three"]]
        assert brod.run("fetch", port, topic, "1", "12", "14") == [[12, "two"]]  # and two bytes of the next one
        assert brod.run("fetch", port, topic, "1", "38", "1000") == []
        assert brod.run("offsets", port, topic, "1", "-1")[0] == 38  # type: ignore[index]
        assert brod.run("offsets", port, topic, "1", "-2") == [0]

    def test_it_knows_the_error_codes(self, port: str, topic: str) -> None:
        brod.run("produce", port, topic, "0", "one")
        assert brod.run("fetch", port, topic, "0", "999", "1000") == "OffsetOutOfRange"
        assert brod.run("fetch", port, topic, "2", "0", "1000") == "WrongPartitionCode"
        assert brod.run("fetch", port, topic, "0", "0", "5") == "InvalidFetchSizeCode"

    def test_it_reads_what_today_s_producers_write(self, older: KetchServer, topic: str) -> None:
        port = str(legacy_port(older))
        brod.run("produce", port, topic, "0", "old")
        consume_today(older, topic, 1)
        produce_today(older, topic, "new", "newer")
        found = brod.run("fetch", port, topic, "0", "0", "1000")
        assert [message for _, message in found] == ["old", "new", "newer"]  # type: ignore[attr-defined]

    @needs_zookeeper
    @pytest.mark.long(minutes=1)
    def test_a_group_balances_by_itself(
        self,
        start_legacy: Callable[..., KetchServer],
        zoo: ZooKeeperServer,
        chroot: str,
        registry: KazooClient,
        topic: str,
    ) -> None:
        first = start_legacy("--default-partitions", "4")
        second = start_legacy("--redis", first.redis_url, "--node-id", "2", "--default-partitions", "4", name="second")
        eventually(lambda: registry.exists("/brokers/ids/1") and registry.exists("/brokers/ids/2"))
        hosts = zoo.hosts + chroot
        brod.run("send", hosts, topic, "0")
        eventually(lambda: sum(int(registry.get(f"/brokers/topics/{topic}/{b}")[0]) for b in ids(registry, topic)) == 4)

        with contextlib.ExitStack() as members:
            one = members.enter_context(Member(hosts, topic))
            eventually(lambda: one.found == [("1-0", "0")] or one.found == [("2-0", "0")], 60.0)
            two = members.enter_context(Member(hosts, topic))  # brod's members must not make /consumers both
            eventually(lambda: len(registry.get_children(f"/consumers/{topic}/ids")) == 2)
            sent = [str(n) for n in range(1, 200)]
            where = brod.run("send", hosts, topic, *sent)
            assert len({(broker, partition) for broker, partition in where}) == 4  # type: ignore[attr-defined]
            eventually(lambda: len(one.found) + len(two.found) >= 200, 60.0)
            assert sorted(map(int, one.messages + two.messages)) == list(range(200))
            # Each read two partitions; what came before the second one joined may be of any.
            late = [{where for where, message in member.found if int(message) > 0} for member in (one, two)]
            assert [len(each) for each in late] == [2, 2]
            assert not late[0] & late[1]

            two.stop()  # its partitions go to the first, at the offsets that it left in ZooKeeper
            brod.run("send", hosts, topic, *(str(n) for n in range(200, 300)))
            eventually(lambda: len(one.found) + len(two.found) >= 300, 60.0)
            assert sorted(map(int, one.messages + two.messages)) == list(range(300))
        assert second.stop() == 0


def ids(registry: KazooClient, topic: str) -> list[str]:
    path = f"/brokers/topics/{topic}"
    return list(registry.get_children(path)) if registry.exists(path) else []


class Member:
    """A consumer of the group that is named as its topic, a process."""

    def __init__(self, hosts: str, topic: str) -> None:
        self._process = brod.start("member", hosts, topic, topic)
        self.found: list[tuple[str, str]] = []  # broker-partition, message
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def messages(self) -> list[str]:
        return [message for _, message in self.found]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            where, message = json.loads(line)
            self.found.append((where, message))

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._reader.join(30)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.stop()
