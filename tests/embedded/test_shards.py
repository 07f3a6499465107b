"""`ketch serve --shards`: an embedded cluster, with a broker and real clients."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ketch.embedded import running_url
from ketch.redis.url import RedisAddress
from tests.support.ketch import KetchServer, eventually
from tests.support.quick import commands

PARTITIONS = 12
LIMIT = 60.0  # s for what must happen on a busy machine
SHARED = "has its share of the slots"


class Sharded:
    """A broker whose number of shards may be another one at each start."""

    def __init__(self, directory: Path) -> None:
        self.server = KetchServer(directory)
        self.data = directory / "data"

    def start(self, shards: int, *arguments: str) -> None:
        self.server.arguments = ("--shards", str(shards), *arguments)
        self.server.redis_port = 0  # other ports than before
        self.server.start()

    @property
    def ports(self) -> list[int]:
        url = running_url(self.data)
        assert url is not None
        return [port for _, port in RedisAddress.parse(url).seeds]

    def shard(self, number: int) -> redis.Redis:
        return redis.Redis(port=self.ports[number])

    def keys(self) -> list[int]:
        """How many keys of partitions each shard has."""
        return [len(self.shard(n).keys("korvet:stream:*")) for n in range(len(self.ports))]

    def kill_shard(self, number: int) -> None:
        os.kill(int(self.shard(number).info("server")["process_id"]), signal.SIGKILL)

    def refusal(self, shards: int) -> str:
        """What `ketch serve` says that does not start with so many shards."""
        command = [*commands.program(), "serve", "--port", "0", "--data-dir", str(self.data)]
        done = subprocess.run([*command, "--shards", str(shards)], capture_output=True, text=True, timeout=60)
        assert done.returncode != 0
        return done.stderr.strip()

    def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS)])["t"].result(LIMIT)

    def produce(self, values: range) -> None:
        producer = self.producer()
        for value in values:
            producer.produce("t", str(value), partition=value % PARTITIONS)
        assert producer.flush(LIMIT) == 0

    def producer(self) -> Producer:
        config = {"bootstrap.servers": self.server.bootstrap, "enable.idempotence": True, "linger.ms": 1}
        return Producer({**config, "message.timeout.ms": int(LIMIT * 1000), "log_level": 0})

    def read(self, count: int) -> Counter[int]:
        """How often each value is in the topic, once there are so many or none comes any more."""
        consumer = Consumer({"bootstrap.servers": self.server.bootstrap, "group.id": "g", "enable.partition.eof": True})
        consumer.assign([TopicPartition("t", n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
        found: Counter[int] = Counter()
        ends: set[int | None] = set()
        while len(ends) < PARTITIONS:
            message = consumer.poll(LIMIT)
            assert message is not None, f"{sum(found.values())} of {count} records were read"
            if message.error():
                ends.add(message.partition())
            else:
                found[int(message.value() or b"")] += 1
        consumer.close()
        return found


@pytest.fixture
def sharded(tmp_path: Path) -> Iterator[Sharded]:
    found = Sharded(tmp_path)
    yield found
    if found.server.process is not None:
        found.server.stop(timeout=30.0)


def once(count: int) -> Counter[int]:
    return Counter(range(count))


def test_records_lie_on_all_shards_and_are_there_after_a_restart(sharded: Sharded) -> None:
    sharded.start(3)
    sharded.create()
    sharded.produce(range(1200))
    assert sharded.read(1200) == once(1200)
    assert sum(sharded.keys()) == PARTITIONS
    assert all(sharded.keys())
    assert sharded.server.stop(timeout=30.0) == 0
    assert running_url(sharded.data) is None
    sharded.start(3)
    assert sharded.read(1200) == once(1200)
    sharded.produce(range(1200, 2400))
    assert sharded.read(2400) == once(2400)
    assert "are moved to other shards" not in sharded.server.log
    assert "Traceback" not in sharded.server.log


@pytest.mark.parametrize("append", ["module", pytest.param("multi", marks=pytest.mark.long(minutes=0.5))])
def test_grows_under_load_and_over_kills(sharded: Sharded, append: str) -> None:
    sharded.start(2, "--append", append)
    sharded.create()
    load = Load(sharded.producer())
    load.begin()
    eventually(lambda: load.acknowledged > 500, LIMIT, "the first records")
    assert sharded.server.stop(timeout=30.0) == 0
    sharded.start(3, "--append", append)
    eventually(lambda: "moved 1024 of" in sharded.server.log, LIMIT, "the first slots to move")
    sharded.server.kill()
    sharded.start(3, "--append", append)
    eventually(lambda: SHARED in sharded.server.log, LIMIT, "the shards to be even")
    before = load.acknowledged
    eventually(lambda: load.acknowledged > before + 500, LIMIT, "more records")
    count = load.end()
    assert sharded.read(count) == once(count)
    assert all(sharded.keys())
    assert sum(sharded.keys()) == PARTITIONS
    assert "Traceback" not in sharded.server.log


class Load:
    """Produces 0, 1, 2, ... until it is ended, each at least until it is acknowledged."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._produced = 0
        self.acknowledged = 0
        self.failed: list[str] = []

    def begin(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            if len(self._producer) < 200:
                value = self._produced
                self._producer.produce("t", str(value), partition=value % PARTITIONS, on_delivery=self._delivered)
                self._produced += 1
            self._producer.poll(0.001)

    def _delivered(self, error: object, _message: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed.append(str(error))

    def end(self) -> int:
        """How many were produced, all of which are acknowledged."""
        self._ending.set()
        self._thread.join()
        assert self._producer.flush(LIMIT) == 0
        assert not self.failed
        return self._produced


def test_a_killed_shard_and_a_killed_broker_come_back(sharded: Sharded) -> None:
    sharded.start(3)
    sharded.create()
    load = Load(sharded.producer())
    load.begin()
    eventually(lambda: load.acknowledged > 300, LIMIT, "the first records")
    for number in range(3):
        sharded.kill_shard(number)
        eventually(lambda: sharded.server.log.count("SIGKILL; restarting it") == number + 1, LIMIT)  # noqa: B023
        before = load.acknowledged
        # More than what can be on its way to the other shards.
        eventually(lambda: load.acknowledged > before + 600, LIMIT, "more records")  # noqa: B023
    sharded.server.kill()
    sharded.start(3)
    before = load.acknowledged
    eventually(lambda: load.acknowledged > before + 600, LIMIT, "more records")
    count = load.end()
    assert sharded.read(count) == once(count)


def test_one_valkey_becomes_several(sharded: Sharded) -> None:
    sharded.start(1)
    sharded.create()
    sharded.produce(range(1200))
    assert sharded.server.stop(timeout=30.0) == 0
    sharded.start(2)
    eventually(lambda: SHARED in sharded.server.log, LIMIT, "the shards to be even")
    assert sharded.read(1200) == once(1200)
    assert all(sharded.keys())
    assert not (sharded.data / "appendonlydir").exists()


def test_workers_doctor_and_ports(sharded: Sharded, free_ports: Callable[[int], int]) -> None:
    first = free_ports(2)
    sharded.server.arguments = ("--shards", "2", "--workers", "2")
    sharded.server.redis_port = first
    sharded.server.start()
    assert sharded.ports == [first, first + 1]
    sharded.create()
    sharded.produce(range(1200))
    assert sharded.read(1200) == once(1200)
    for number in range(2):
        brokers = [each for each in sharded.shard(number).client_list() if each["name"] == "ketch"]
        assert brokers
        assert all("valkey.sock" in each["addr"] for each in brokers), "they use the unix socket"
    command = [*commands.program(), "doctor", "--data-dir", str(sharded.data), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert done.returncode == 0
    assert checks["cluster"]["seen"] == "on, 2 masters, 0 replicas"
    assert checks["persistence"]["seen"].endswith("Ketch syncs it as its own fsync setting says")


def test_refusals(sharded: Sharded) -> None:
    sharded.start(3)
    assert sharded.refusal(3).endswith(
        f"Data directory {sharded.data} is in use by another ketch (pid {sharded.server.process.pid})."  # type: ignore[union-attr]
    )
    assert sharded.server.stop(timeout=30.0) == 0
    for fewer in (1, 2):
        assert sharded.refusal(fewer) == (
            f"ketch: Data directory {sharded.data} has 3 shards, which can become more but not fewer: start with"
            " --shards 3."
        )
    (sharded.data / "shard-1").rename(sharded.data / "aside")
    assert sharded.refusal(3) == (
        f"ketch: Data directory {sharded.data} has shard-2 but no shard-1: put that one back."
    )
    (sharded.data / "aside").rename(sharded.data / "shard-1")
    (sharded.data / "shard-2").rename(sharded.data / "aside")
    slots = "5461"
    assert sharded.refusal(3).endswith(
        f"ketch: A shard of {sharded.data} that had {slots} slots is missing: put its directory back."
    )


@pytest.fixture
def free_ports() -> Callable[[int], int]:
    """The first of so many consecutive ports that are free."""

    def find(count: int) -> int:
        for first in range(20_100, 30_000, count):
            try:
                for port in range(first, first + count):
                    socket.create_server(("127.0.0.1", port)).close()
            except OSError:
                continue
            return first
        raise AssertionError("no free ports")

    return find
