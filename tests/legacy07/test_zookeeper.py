"""The broker's entries in a real ZooKeeper: what they hold, when they come, go and come back."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.legacy07.conftest import legacy_port
from tests.support import cli, zookeeper
from tests.support.kafka import CREATE_TOPICS, Kafka
from tests.support.ketch import KetchServer, eventually
from tests.support.legacy07 import Legacy, fetch, message, messages, produce
from tests.support.quick import commands
from tests.support.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.skipif(zookeeper.MISSING is not None, reason=str(zookeeper.MISSING))

Start = Callable[..., KetchServer]
A = message(b"a", magic=0)


def node(registry: KazooClient, path: str) -> str | None:
    """What a node holds; None where it is not there."""
    try:
        value: bytes = registry.get(path)[0]
    except NoNodeError:
        return None
    return value.decode()


def ids(registry: KazooClient) -> list[str]:
    try:
        return sorted(registry.get_children("/brokers/ids"))
    except NoNodeError:
        return []


def counts(registry: KazooClient, topic: str) -> dict[str, str | None]:
    """Partition counts by broker."""
    try:
        brokers = sorted(registry.get_children(f"/brokers/topics/{topic}"))
    except NoNodeError:
        return {}
    return {broker: node(registry, f"/brokers/topics/{topic}/{broker}") for broker in brokers}


def told(server: KetchServer) -> list[str]:
    """What the log says of ZooKeeper, in order."""
    return re.findall("is out of reach|registered in ZooKeeper", server.log)


def send(server: KetchServer, topic: str, number: int = 0, data: bytes = A) -> None:
    with Legacy(legacy_port(server)) as client:
        client.send(produce(topic, number, data))


class TestEntries:
    def test_what_a_broker_registers(self, start_legacy: Start, registry: KazooClient, topic: str) -> None:
        server = start_legacy("--node-id", "7", "--default-partitions", "3")
        eventually(lambda: ids(registry) == ["7"])
        creator, host, port = str(node(registry, "/brokers/ids/7")).split(":")
        assert creator.startswith("127.0.0.1-")
        assert (host, int(port)) == ("127.0.0.1", legacy_port(server))
        assert counts(registry, topic) == {}

        send(server, topic)
        eventually(lambda: counts(registry, topic) == {"7": "3"})
        for path in ("/brokers", "/brokers/ids", "/brokers/topics", f"/brokers/topics/{topic}"):
            assert node(registry, path) == "7", path
            assert registry.get(path)[1].ephemeralOwner == 0
        for path in ("/brokers/ids/7", f"/brokers/topics/{topic}/7"):
            assert registry.get(path)[1].ephemeralOwner != 0

        assert server.stop() == 0, server.log
        assert ids(registry) == []
        assert counts(registry, topic) == {}

    def test_topics_that_grow_and_go(self, start_legacy: Start, registry: KazooClient, topic: str) -> None:
        ketch = cli.Ketch(start_legacy())
        ketch("topics", "create", topic, "--partitions", "2")
        eventually(lambda: counts(registry, topic) == {"1": "2"})
        ketch("topics", "alter", topic, "--partitions", "5")
        eventually(lambda: counts(registry, topic) == {"1": "5"})
        ketch("topics", "alter", topic, "--config", "cleanup.policy=compact")  # which is nothing for 0.7
        eventually(lambda: counts(registry, topic) == {})
        ketch("topics", "alter", topic, "--config", "cleanup.policy=delete")
        eventually(lambda: counts(registry, topic) == {"1": "5"})
        ketch("topics", "delete", topic, "--yes")
        eventually(lambda: counts(registry, topic) == {})

    def test_topics_appear_and_go_without_a_heartbeat(
        self, start_legacy: Start, registry: KazooClient, topic: str
    ) -> None:
        """Redis pushes what another client changes: the broker does not find out by asking again and again."""
        hours = str(3_600_000)
        beats = ("--broker-heartbeat-interval-ms", hours, "--broker-session-timeout-ms", hours)
        server = start_legacy(*beats)
        eventually(lambda: ids(registry) == ["1"])
        with Kafka(server.port) as kafka:
            kafka.create(topic, partitions=2)
        eventually(lambda: counts(registry, topic) == {"1": "2"})
        server.redis().hset(f"korvet:topic:{topic}", "partitions", 3)
        eventually(lambda: counts(registry, topic) == {"1": "3"})
        server.redis().srem("korvet:topics", topic)
        eventually(lambda: counts(registry, topic) == {})

    def test_more_topics_than_are_registered_at_one_time(
        self, start_legacy: Start, registry: KazooClient, topic: str
    ) -> None:
        server, names = start_legacy(), [f"{topic}-{n}" for n in range(250)]
        with Kafka(server.port, timeout=60.0) as kafka:
            made = [{"name": name, "num_partitions": 2, "replication_factor": -1} for name in names]
            answer = kafka.ask(CREATE_TOPICS, 7, topics=made, timeout=60_000)
            assert {each.error_code for each in answer.topics} == {0}
            eventually(lambda: all(counts(registry, name) == {"1": "2"} for name in names))
            assert {node(registry, f"/brokers/topics/{name}") for name in names} == {"1"}
            server.redis().srem("korvet:topics", *names)
            eventually(lambda: not any(counts(registry, name) for name in names))

    def test_a_refused_produce_registers_nothing(self, start_legacy: Start, registry: KazooClient, topic: str) -> None:
        server = start_legacy("--default-partitions", "3")
        damaged = message(b"no gzip", compression=1)
        for number, data in ((3, A), (0, damaged)):
            with Legacy(legacy_port(server)) as client:
                client.send(produce(topic, number, data))
                assert client.closed()
        send(server, f"{topic}-behind")  # what was refused would have been registered with it
        eventually(lambda: counts(registry, f"{topic}-behind") == {"1": "3"})
        assert counts(registry, topic) == {}

    def test_a_host_with_a_colon_is_refused(self, tmp_path: Path) -> None:
        options = ("serve", "--host", "::1", "--legacy-port", "0", "--zookeeper", "127.0.0.1:1")
        done = subprocess.run([*commands.program(), *options], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode != 0
        (line,) = done.stderr.strip().splitlines()
        assert "advertised_host should be a name or an IPv4 address" in line

    def test_a_chroot_that_is_not_there(self, start_legacy: Start, zoo: ZooKeeperServer, registry: KazooClient) -> None:
        start_legacy(zookeeper=f"{zoo.hosts}{registry.chroot}/not/there")
        eventually(lambda: node(registry, "/not/there/brokers/ids/1"))


@pytest.mark.long(minutes=1)
class TestRuns:
    def test_a_previous_run_is_waited_out(self, start_legacy: Start, registry: KazooClient, topic: str) -> None:
        server = start_legacy()
        send(server, topic)
        eventually(lambda: counts(registry, topic) == {"1": "1"})
        before = node(registry, "/brokers/ids/1")
        server.kill()
        server.start()
        eventually(lambda: node(registry, "/brokers/ids/1") not in (None, before))
        eventually(lambda: counts(registry, topic) == {"1": "1"})
        _, _, port = str(node(registry, "/brokers/ids/1")).split(":")
        assert int(port) == legacy_port(server)
        waited = re.findall(r"/brokers/ids/1 in ZooKeeper is of an earlier run", server.log)
        assert len(waited) <= 1  # none where its session has ended before the new run looked

    def test_another_broker_has_the_id(self, start_legacy: Start, registry: KazooClient) -> None:
        first = start_legacy()
        eventually(lambda: ids(registry) == ["1"])
        before = node(registry, "/brokers/ids/1")
        second = start_legacy()
        eventually(lambda: "is kept by another broker" in second.log)
        assert node(registry, "/brokers/ids/1") == before
        first.stop()
        eventually(lambda: node(registry, "/brokers/ids/1") not in (None, before))

    def test_a_lost_session(self, start_legacy: Start, registry: KazooClient, topic: str) -> None:
        server = start_legacy()
        send(server, topic)
        eventually(lambda: counts(registry, topic) == {"1": "1"})
        assert server.process is not None
        os.kill(server.process.pid, signal.SIGSTOP)
        eventually(lambda: ids(registry) == [] and counts(registry, topic) == {})
        os.kill(server.process.pid, signal.SIGCONT)
        eventually(lambda: ids(registry) == ["1"] and counts(registry, topic) == {"1": "1"})


@pytest.mark.long(minutes=1)
class TestWithoutZooKeeper:
    def test_it_may_come_later_and_go(self, start_legacy: Start, tmp_path: Path, topic: str) -> None:
        own = ZooKeeperServer(tmp_path / "zoo")
        own.port = zookeeper.free_port()
        server = start_legacy(zookeeper=own.hosts)
        send(server, topic)
        eventually(lambda: server.log.count("is out of reach") == 1)
        try:
            own.start()
            registry = KazooClient(own.hosts)
            registry.start(timeout=30)
            eventually(lambda: counts(registry, topic) == {"1": "1"})
            eventually(lambda: told(server)[-1] == "registered in ZooKeeper")
            own.kill()
            eventually(lambda: told(server)[-1] == "is out of reach")
            with Legacy(legacy_port(server)) as client:  # who knows the address is served
                client.send(produce(topic, 0, A))
                (start,) = client.positions(topic, 0, -2)
                assert client.call(fetch(topic, 0, start, 100)) == (0, A + A)
            own.start()
            eventually(lambda: node(registry, "/brokers/ids/1") is not None, 60.0)
            registry.stop()
            registry.close()
            eventually(lambda: told(server)[-1] == "registered in ZooKeeper")
        finally:
            own.kill()
        lines = told(server)
        assert all(one != next_ for one, next_ in pairwise(lines)), lines  # one line for each time

    def test_an_address_that_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(AssertionError, match="zookeeper = 'a:b:c' is not allowed"):
            KetchServer(tmp_path, "--legacy-port", "0", "--zookeeper", "a:b:c").start()


@pytest.mark.long(minutes=1)
class TestSeveralBrokers:
    def test_each_has_partitions_of_its_own(self, start_legacy: Start, registry: KazooClient, topic: str) -> None:
        first = start_legacy("--node-id", "1", "--default-partitions", "8")
        options = ("--redis", first.redis_url, "--node-id", "2", "--default-partitions", "8")
        second = start_legacy(*options, name="second")
        eventually(lambda: ids(registry) == ["1", "2"])
        eventually(lambda: all("brokers: 1 at" in server.log and "2 at" in server.log for server in (first, second)))
        send(second, topic)  # whoever it belongs to: nobody can know yet
        eventually(lambda: sum(int(count or 0) for count in counts(registry, topic).values()) == 8)
        have = {broker: int(count or 0) for broker, count in counts(registry, topic).items()}
        assert set(have) == {"1", "2"}

        for broker, server in (("1", first), ("2", second)):
            for number in range(have[broker]):
                send(server, topic, number, message(f"{broker}-{number}".encode()))
        before = {broker: contents(server, topic, have[broker]) for broker, server in (("1", first), ("2", second))}
        for broker, found in before.items():
            for number, data in enumerate(found):
                assert f"{broker}-{number}".encode() in data
        with Legacy(legacy_port(second)) as client:
            assert client.call(fetch(topic, have["2"], 0, 100)) == (3, b"")

        second.kill()  # its share is the other's now, for clients of today
        eventually(lambda: ids(registry) == ["1"])
        eventually(lambda: counts(registry, topic) == {"1": str(have["1"])})
        assert contents(first, topic, have["1"]) == before["1"]
        again = start_legacy(*options, name="again")  # on another machine, as it were
        eventually(lambda: counts(registry, topic) == {broker: str(count) for broker, count in have.items()})
        assert contents(again, topic, have["2"]) == before["2"]


def contents(server: KetchServer, topic: str, numbers: int) -> list[bytes]:
    """All messages of each partition that a broker has."""
    found = []
    with Legacy(legacy_port(server)) as client:
        for number in range(numbers):
            (start,) = client.positions(topic, number, -2)
            code, chunk = client.call(fetch(topic, number, start, 1 << 20))
            assert code == 0
            found.append(b"".join(whole for _, whole in messages(chunk)))
    return found


@pytest.mark.long(minutes=1)
def test_each_worker_has_a_port_and_an_id(start_legacy: Start, registry: KazooClient, topic: str) -> None:
    first = zookeeper.free_port(2)
    server = start_legacy("--workers", "2", "--legacy-port", str(first), "--default-partitions", "6")
    eventually(lambda: ids(registry) == ["1", "2"], 60.0)
    ports = [int(str(node(registry, f"/brokers/ids/{broker}")).rpartition(":")[2]) for broker in (1, 2)]
    assert ports == [first, first + 1]
    with Legacy(ports[1]) as client:
        client.send(produce(topic, 0, A))
        eventually(lambda: sum(int(count or 0) for count in counts(registry, topic).values()) == 6)
    assert server.stop() == 0
    assert ids(registry) == []
