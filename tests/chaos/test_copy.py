"""Topic A is copied to B in transactions while copier, brokers and Valkey are killed: B is A exactly once.

`KETCH_COPY_KILLS=200` makes many kills; ten are the default. The seed of the kills is printed with a failure.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ketch.embedded.valkey import server_binary
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.long(minutes=0.5)

KILLS = int(os.environ.get("KETCH_COPY_KILLS", "10"))
PARTITIONS = 2
ROUND = 400  # records that are written before each kill, most of which are not copied yet when it comes


class Copier(threading.Thread):
    """The program, started again whenever it ends."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        super().__init__(daemon=True)
        self._command = [sys.executable, "-m", "tests.chaos.copier", bootstrap, "A", "B", "copier"]
        self._log, self.stopping = log.open("ab"), False
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        while not self.stopping:
            self.process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log)
            self.process.wait()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def stop(self) -> None:
        self.stopping = True
        while self.is_alive():
            self.kill()
            self.join(0.1)
        self._log.close()


class World:
    """A Valkey that syncs each write, brokers on it, and topics A and B."""

    def __init__(self, directory: Path, brokers: int, layout: str, ids: str) -> None:
        self.redis = RedisServer(str(server_binary()), directory / "valkey", "--appendfsync", "always")
        common = ["--redis", self.redis.url]
        common += ["--broker-session-timeout-ms", "3000", "--broker-heartbeat-interval-ms", "500"]
        self.brokers = [
            KetchServer(directory / f"broker-{n}", "--node-id", str(n), *common).start() for n in range(1, brokers + 1)
        ]
        with Kafka(self.brokers[0].port) as client:
            for name in "AB":
                client.create(name, PARTITIONS, storage_layout=layout, offset_ids=ids)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    def kill(self, chosen: random.Random, copier: Copier) -> str:
        what = chosen.choice(["copier", "copier", "broker", "broker", "valkey"])
        if what == "copier":
            copier.kill()
        elif what == "valkey":
            self.redis.kill()
            self.redis.start()
        else:
            broker = chosen.choice(self.brokers)
            broker.kill()
            broker.start()
        return what

    def copied(self) -> int:
        return sum(int(self.redis.client().xlen(f"korvet:stream:B:{index}")) for index in range(PARTITIONS))

    def stop(self) -> None:
        for broker in self.brokers:
            broker.stop()
        self.redis.stop()


@pytest.fixture(params=[(1, "record", "time"), (3, "batch", "dense"), (3, "record", "time")], ids=str)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, *request.param)
    yield made
    made.stop()


def fill(bootstrap: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for n in range(first, first + ROUND):
        producer.produce("A", str(n), partition=n % PARTITIONS)
    assert producer.flush(60) == 0


def committed(bootstrap: str, count: int) -> list[int]:
    """The committed numbers in B, once there are so many and nothing more comes."""
    config = {"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({**config, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("B", index, 0) for index in range(PARTITIONS)])
    found: list[int] = []

    def enough() -> bool:
        messages = consumer.consume(500, 1.0)
        found.extend(int(message.value()) for message in messages if not message.error())
        return not messages and len(found) >= count

    eventually(enough, 120, f"{count} copies")
    consumer.close()
    return found


def test_a_copy_under_kills(world: World, tmp_path: Path) -> None:
    seed = random.randrange(10_000)
    chosen, count = random.Random(seed), (KILLS + 1) * ROUND
    copier = Copier(world.bootstrap, tmp_path / "copier.log")
    copier.start()
    done = []
    try:
        for n in range(KILLS):
            before = world.copied()
            fill(world.bootstrap, n * ROUND)
            eventually(lambda: world.copied() > before, 120, f"progress, seed {seed}: {done}")  # noqa: B023
            done.append(world.kill(chosen, copier))
        fill(world.bootstrap, KILLS * ROUND)
        found = committed(world.bootstrap, count)
    finally:
        copier.stop()
    assert sorted(found) == list(range(count)), (seed, done)
    for index in range(PARTITIONS):
        each = [n for n in found if n % PARTITIONS == index]
        assert each == sorted(each), "out of order"
    eventually(lambda: not world.redis.client().keys("korvet:transactions:*"), 30, "no transaction left open")
