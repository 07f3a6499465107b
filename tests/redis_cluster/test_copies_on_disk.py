"""`copies_on_disk`: a copy counts once it is synced to its node's append-only file. One master and two replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.redis_cluster.test_copies import NOT_ENOUGH, NOT_ENOUGH_AFTER_APPEND, OK, ONE, SOON, code
from tests.support.clusters import LIMIT, Node, free_port
from tests.support.kafka import PRODUCE, Kafka, produce
from tests.support.ketch import KetchServer, eventually
from tests.support.modules import binary

Three = tuple[Node, Node, Node]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    """A master and two replicas that sync once a second."""
    directory, started = tmp_path_factory.mktemp("nodes"), list[Node]()
    try:
        for name in ("master", "first", "second"):
            follow = ("--replicaof", "127.0.0.1", str(started[0].port)) if started else ()
            options = ("--appendfsync", "everysec", "--repl-diskless-sync-delay", "0", *follow)
            started.append(Node(binary("valkey"), directory / name, *options, port=free_port()))
        master, first, second = started
        eventually(lambda: master.says("replication", "connected_slaves:2"), LIMIT, "two replicas")
        for replica in (first, second):
            replica.wait_following()
        yield master, first, second
    finally:
        for node in started:
            node.kill()


@pytest.fixture(scope="module")
def on_nodes(nodes: Three, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    arguments = ("--redis", nodes[0].url, "--copies-on-disk", "--metadata-max-age-ms", "0")
    server = KetchServer(tmp_path_factory.mktemp("ketch"), *arguments).start()
    yield server
    assert server.stop() == 0, server.log


@pytest.fixture
def kafka(on_nodes: KetchServer) -> Iterator[Kafka]:
    with Kafka(on_nodes.port, timeout=LIMIT) as client:
        yield client


def calls(node: Node, command: str) -> int:
    """How often a node was asked for a command so far."""
    return int(node.client().info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])


@pytest.mark.parametrize("copies", [2, 3])
def test_on_disks(nodes: Three, kafka: Kafka, topic: str, copies: int) -> None:
    kafka.create(topic, min_insync_replicas=copies)
    before = calls(nodes[0], "waitaof")
    assert code(kafka, topic) == OK
    assert calls(nodes[0], "waitaof") > before
    assert calls(nodes[0], "wait") == 0


def test_one_sync_vouches_for_all_that_came_before(nodes: Three, kafka: Kafka, topic: str) -> None:
    kafka.create(topic, min_insync_replicas=3)
    before = calls(nodes[0], "waitaof")
    for _ in range(100):
        kafka.send(PRODUCE, 9, **produce(topic, ONE))
    answers = [kafka.answer(PRODUCE, 9)[1] for _ in range(100)]
    assert {answer.responses[0].partition_responses[0].error_code for answer in answers} == {OK}
    assert calls(nodes[0], "waitaof") - before < 50


def test_a_replica_that_does_not_sync_has_no_copy(nodes: Three, kafka: Kafka, topic: str) -> None:
    kafka.create(topic, min_insync_replicas=3)
    kafka.create(f"{topic}-two", min_insync_replicas=2)
    assert code(kafka, topic) == OK
    nodes[2].ask("CONFIG", "SET", "appendfsync", "no")
    try:
        assert code(kafka, topic, SOON) == NOT_ENOUGH_AFTER_APPEND
        assert code(kafka, f"{topic}-two") == OK
    finally:
        nodes[2].ask("CONFIG", "SET", "appendfsync", "everysec")
    assert code(kafka, topic) == OK
    assert len(kafka.read_all(topic)) == 3


def test_commits_are_on_disks_too(nodes: Three, start_ketch: Callable[..., KetchServer], topic: str) -> None:
    """With `min_insync_replicas` for all that belongs to no topic."""
    arguments = ("--redis", nodes[0].url, "--keyspace", "own", "--min-insync-replicas", "2", "--copies-on-disk")
    server = start_ketch(*arguments)
    before = calls(nodes[0], "waitaof")
    with Kafka(server.port, timeout=LIMIT) as kafka:
        assert kafka.producer_id() >= 0
    assert calls(nodes[0], "waitaof") > before


def refusal(server: KetchServer, topic: str) -> str:
    """What acks=all is told where nothing is stored."""
    with Kafka(server.port, timeout=LIMIT) as kafka:
        kafka.create(topic, min_insync_replicas=2)
        answer = kafka.produce(topic, ONE)
        assert answer.error_code == NOT_ENOUGH
        assert kafka.read_all(topic) == []
        assert code(kafka, topic, acks=1) == OK
    return str(answer.error_message)


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("valkey", ("--appendonly", "no"), "appendonly is disabled"),
        ("redis-6.2", (), "unknown command"),
    ],
    ids=["no file", "no WAITAOF"],
)
def test_a_master_whose_disk_cannot_be_waited_for(
    tmp_path: Path, start_ketch: Callable[..., KetchServer], topic: str, name: str, options: tuple[str, ...], why: str
) -> None:
    master = Node(binary(name), tmp_path / "master", *options, port=free_port())
    replica = Node(binary(name), tmp_path / "replica", "--replicaof", "127.0.0.1", str(master.port), port=free_port())
    try:
        replica.wait_following()
        assert why in refusal(start_ketch("--redis", master.url, "--copies-on-disk"), topic)
    finally:
        replica.kill()
        master.kill()


def test_fsync_always_of_the_embedded_valkey_asks_for_disks(
    tmp_path: Path, start_ketch: Callable[..., KetchServer], topic: str
) -> None:
    server = start_ketch("--fsync", "always", "--redis-port", str(free_port()))
    follow = ("--replicaof", "127.0.0.1", str(server.redis_port), "--appendfsync", "everysec")
    replica = Node(binary("valkey"), tmp_path / "replica", *follow, port=free_port())
    try:
        replica.wait_following()
        with Kafka(server.port, timeout=LIMIT) as kafka:
            kafka.create(topic, min_insync_replicas=2)
            assert code(kafka, topic) == OK
        with redis.Redis(port=server.redis_port) as client:
            assert client.info("commandstats")["cmdstat_waitaof"]["calls"] > 0
    finally:
        replica.kill()
