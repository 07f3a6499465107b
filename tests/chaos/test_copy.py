"""Topic A is copied to B in transactions while copier, brokers and Valkey are killed: B is A exactly once.

`KETCH_COPY_KILLS=200` makes many kills; ten are the default. The seed of the kills is printed with a failure.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.chaos.victims import Restarted, World
from tests.support.ketch import eventually

pytestmark = pytest.mark.long(minutes=0.5)

KILLS = int(os.environ.get("KETCH_COPY_KILLS", "10"))
PARTITIONS = 2
ROUND = 400  # records that are written before each kill, most of which are not copied yet when it comes


@pytest.fixture(params=[(1, "record", "time"), (3, "batch", "dense"), (3, "record", "time")], ids=str)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, *request.param, {"A": PARTITIONS, "B": PARTITIONS})
    yield made
    made.stop()


def copied(world: World) -> int:
    return sum(int(world.redis.client().xlen(f"korvet:stream:B:{index}")) for index in range(PARTITIONS))


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
    command = [sys.executable, "-m", "tests.chaos.copier", world.bootstrap, "A", "B", "copier"]
    copier = Restarted(command, tmp_path / "copier.log")
    copier.start()
    done = list[str]()
    try:
        for n in range(KILLS):
            before = copied(world)
            fill(world.bootstrap, n * ROUND)
            eventually(lambda: copied(world) > before, 120, f"progress, seed {seed}: {done}")  # noqa: B023
            done.append(chosen.choice(["copier", "copier", "broker", "broker", "valkey"]))
            world.kill(done[-1], chosen, [copier])
        fill(world.bootstrap, KILLS * ROUND)
        found = committed(world.bootstrap, count)
    finally:
        copier.stop()
    assert sorted(found) == list(range(count)), (seed, done)
    for index in range(PARTITIONS):
        each = [n for n in found if n % PARTITIONS == index]
        assert each == sorted(each), "out of order"
    eventually(lambda: not world.redis.client().keys("korvet:transactions:*"), 30, "no transaction left open")
