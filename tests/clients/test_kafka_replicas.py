"""kafka-topics on a broker whose Redis has a replica: what it shows of replicas, and which partitions it finds so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.apache_kafka import missing_tools
from tests.support.clusters import LIMIT, Node, free_port
from tests.support.kafka import Kafka
from tests.support.kafka_tools import KafkaTools
from tests.support.ketch import KetchServer, eventually
from tests.support.modules import binary

MISSING = missing_tools()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    master = Node(binary("valkey"), tmp_path / "master", port=free_port())
    follow = ("--replicaof", f"127.0.0.1 {master.port}", "--repl-diskless-sync-delay", "0")
    replica = Node(binary("valkey"), tmp_path / "replica", *follow, port=free_port())
    try:
        eventually(lambda: replica.says("replication", "master_link_status:up"), LIMIT, "the replica's link")
        yield master, replica
    finally:
        replica.kill()
        master.kill()


def test_partitions_by_their_replicas(
    jvm: KafkaTools, start_ketch: Callable[..., KetchServer], replicated: tuple[Node, Node]
) -> None:
    master, replica = replicated
    server = start_ketch("--redis", master.url)

    def described(*options: str) -> list[str]:
        code, printed = jvm.run("TopicCommand", "--bootstrap-server", server.bootstrap, "--describe", *options)
        assert code == 0, printed
        return printed.splitlines()

    def found(*options: str) -> list[str]:
        """The topics of the partitions that it finds."""
        return [line.split()[1] for line in described(*options)]

    with Kafka(server.port) as kafka:
        kafka.create("plain")
        kafka.create("two", min_insync_replicas=2)
        kafka.create("three", min_insync_replicas=3)
        (shown,) = {tuple(each.partitions[0].replica_nodes) for each in kafka.metadata("plain", "two", "three").topics}
    head, partition = described("--topic", "plain")
    assert "ReplicationFactor: 2" in head
    both = ",".join(map(str, shown))
    assert f"Leader: 1\tReplicas: {both}\tIsr: {both}" in partition
    assert found("--under-replicated-partitions") == found("--unavailable-partitions") == []
    assert found("--at-min-isr-partitions") == ["two"]
    assert found("--under-min-isr-partitions") == ["three"]
    replica.kill()
    eventually(lambda: found("--at-min-isr-partitions") == ["plain"], LIMIT, "the master to miss its replica")
    assert sorted(found("--under-min-isr-partitions")) == ["three", "two"]
