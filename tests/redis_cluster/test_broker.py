"""A broker on a Redis Cluster of three masters: what clients see while slots and masters move."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from ketch.redis.slots import slot
from tests.chaos.test_crash import PARTITIONS, FullSpeed, check, crash_repeatedly
from tests.support.clusters import RedisCluster
from tests.support.ketch import KetchServer

Start = Callable[..., KetchServer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a broker with a cluster of its own."""
    started: list[KetchServer] = []

    def begin(*arguments: str) -> KetchServer:
        server = KetchServer(tmp_path / "ketch", "--default-partitions", str(PARTITIONS), *arguments, clustered=True)
        started.append(server)
        return server.start()

    yield begin
    for server in started:
        server.stop()
        server.close()


def cluster_of(server: KetchServer) -> RedisCluster:
    assert server.cluster is not None
    return server.cluster


def moves(server: KetchServer, topic: str) -> Iterator[Callable[[], None]]:
    """Migrations of the partitions' slots, each to the next node."""
    cluster = cluster_of(server)
    for partition in itertools.cycle(range(PARTITIONS)):
        moved = slot(f"korvet:stream:{topic}:{partition}".encode())
        yield partial(_migrate, cluster, moved)


def _migrate(cluster: RedisCluster, moved: int) -> None:
    place = cluster.nodes.index(cluster.owner(moved))
    cluster.migrate(moved, cluster.nodes[(place + 1) % len(cluster.nodes)])


def read_all(server: KetchServer, topic: str, writer: FullSpeed) -> list[list[int]]:
    """The numbers of each partition, as a consumer gets them."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "all", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    while sum(map(len, found)) < sum(writer.sent):
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None
            partition, value = message.partition(), message.value()
            assert partition is not None
            assert value is not None
            found[partition].append(int(value))
    consumer.close()
    return found


@pytest.mark.parametrize(
    ("layout", "append"),
    [
        pytest.param("record", "multi", marks=pytest.mark.long(minutes=0.5)),
        ("batch", "module"),
        pytest.param("record", "module", marks=pytest.mark.long(minutes=0.5)),
        pytest.param("batch", "multi", marks=pytest.mark.long(minutes=0.5)),
    ],
)
def test_slots_move_under_a_producer(start: Start, topic: str, layout: str, append: str) -> None:
    server = start("--default-storage-layout", layout, "--append", append)
    steps = moves(server, topic)
    writer = crash_repeatedly(server, topic, lambda: next(steps)())  # noqa: PLW0108
    check(server, writer)
    assert read_all(server, topic, writer) == [list(range(sent)) for sent in writer.sent]


@pytest.mark.long(minutes=0.5)
def test_it_starts_again_on_what_is_there(start: Start, topic: str) -> None:
    server = start()

    def crash() -> None:
        server.kill()
        server.start()

    check(server, crash_repeatedly(server, topic, crash))
