"""Several listeners on several brokers: what clients are told where a broker lacks theirs, and what the log says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.support.brokers import acquainted
from tests.support.kafka import DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS, FIND_COORDINATOR, METADATA, Kafka
from tests.support.ketch import KetchServer, eventually

LISTENER_NOT_FOUND, LEADER_NOT_AVAILABLE, COORDINATOR_NOT_AVAILABLE = 72, 5, 15
FAST = ("--broker-heartbeat-interval-ms", "100", "--broker-session-timeout-ms", "1500")
MAP = ("--listener-security-protocol-map", "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT")
Pair = tuple[KetchServer, KetchServer]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Broker 1 with two listeners, broker 2 with one of the two."""
    both = ("--listeners", "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0", *MAP, *FAST)
    first = KetchServer(tmp_path_factory.mktemp("first"), *both).start()
    one = ("--listeners", "INSIDE://127.0.0.1:0", *MAP, *FAST, "--node-id", "2", "--redis", first.redis_url)
    second = KetchServer(tmp_path_factory.mktemp("second"), *one).start()
    acquainted(2, first, second)
    yield first, second
    assert second.stop() == 0
    assert first.stop() == 0


def test_each_is_told_of_the_brokers_that_have_its_listener(pair: Pair) -> None:
    first, second = pair
    with Kafka(first.ports["INSIDE"]) as inside, Kafka(first.ports["OUTSIDE"]) as outside:
        everyone = [(1, first.ports["INSIDE"]), (2, second.ports["INSIDE"])]
        for client, told in ((inside, everyone), (outside, [(1, first.ports["OUTSIDE"])])):
            metadata = client.ask(METADATA, 12, topics=[])
            assert [(each.node_id, each.port) for each in metadata.brokers] == told
            assert metadata.controller_id == 1
            cluster = client.ask(DESCRIBE_CLUSTER, 1)
            assert [(each.broker_id, each.port) for each in cluster.brokers] == told


def test_a_leader_without_the_listener(pair: Pair, topic: str) -> None:
    first, _ = pair
    with Kafka(first.ports["INSIDE"]) as inside, Kafka(first.ports["OUTSIDE"]) as outside:
        inside.create(topic, 20)
        leaders = [each.leader_id for each in inside.metadata(topic).topics[0].partitions]
        assert set(leaders) == {1, 2}
        for version, error in ((12, LISTENER_NOT_FOUND), (6, LISTENER_NOT_FOUND), (5, LEADER_NOT_AVAILABLE)):
            (found,) = outside.ask(METADATA, version, topics=[{"name": topic}]).topics
            assert found.error_code == 0
            seen = [(each.error_code, each.leader_id, each.replica_nodes) for each in found.partitions]
            assert seen == [(0, 1, (1,)) if leader == 1 else (error, -1, (2,)) for leader in leaders]
            assert all(each.offline_replicas == ((2,) if each.leader_id == -1 else ()) for each in found.partitions)
        (found,) = outside.ask(DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": topic}], cursor=None).topics
        seen = [(each.error_code, each.leader_id) for each in found.partitions]
        assert seen == [(0, 1) if leader == 1 else (0, -1) for leader in leaders]


def test_a_coordinator_without_the_listener(pair: Pair) -> None:
    first, second = pair
    names = [f"group {n}" for n in range(20)]
    with Kafka(first.ports["INSIDE"]) as inside, Kafka(first.ports["OUTSIDE"]) as outside:
        known = inside.ask(FIND_COORDINATOR, 4, coordinator_keys=names).coordinators
        assert {each.node_id for each in known} == {1, 2}
        assert {each.port for each in known} == {first.ports["INSIDE"], second.ports["INSIDE"]}
        for here, there in zip(
            known, outside.ask(FIND_COORDINATOR, 4, coordinator_keys=names).coordinators, strict=True
        ):
            told = (0, 1, first.ports["OUTSIDE"]) if here.node_id == 1 else (COORDINATOR_NOT_AVAILABLE, -1, -1)
            assert (there.error_code, there.node_id, there.port) == told


def test_a_listener_that_no_client_is_told_of(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    listeners = ("--listeners", "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0", *MAP)
    server = start_ketch(*listeners, "--advertised-listeners", "OUTSIDE://kafka.example:443")
    with Kafka(server.ports["OUTSIDE"]) as outside, Kafka(server.ports["INSIDE"]) as inside:
        outside.create(topic)
        assert [(each.host, each.port) for each in outside.metadata().brokers] == [("kafka.example", 443)]
        found = inside.metadata(topic)
        assert (found.brokers, found.controller_id) == ((), -1)
        assert found.topics[0].partitions[0].error_code == LISTENER_NOT_FOUND
        cluster = inside.ask(DESCRIBE_CLUSTER, 1)
        assert (cluster.error_code, cluster.brokers, cluster.controller_id) == (0, (), -1)


def test_what_lies_in_redis(pair: Pair) -> None:
    """The first listener's address is where brokers of before this looked for it."""
    first, _ = pair
    entry = json.loads(first.redis().hget("korvet:brokers", "1"))
    assert (entry["host"], entry["port"]) == ("127.0.0.1", first.ports["INSIDE"])
    told = [(each["name"], each["protocol"], each["host"], each["port"]) for each in entry["listeners"]]
    assert told == [(name, "PLAINTEXT", "127.0.0.1", first.ports[name]) for name in ("INSIDE", "OUTSIDE")]


def test_a_broker_of_before_listeners(start_ketch: Callable[..., KetchServer]) -> None:
    """Its entry has one address, of clients without TLS."""
    server = start_ketch(*FAST)
    redis = server.redis()
    with Kafka(server.port) as client:

        def told() -> bool:
            seconds, micros = redis.time()
            now = seconds * 1000 + micros // 1000
            entry = {"host": "old.example", "port": 9, "session": "s", "seen": now}
            redis.hset("korvet:brokers", "7", json.dumps(entry))
            brokers = [(each.node_id, each.host, each.port) for each in client.metadata().brokers]
            return (7, "old.example", 9) in brokers

        eventually(told)


def test_a_port_that_others_can_reach_without_tls(start_ketch: Callable[..., KetchServer]) -> None:
    listeners = ("--listeners", "INSIDE://127.0.0.1:0,OUTSIDE://0.0.0.0:0", *MAP)
    warned = start_ketch(*listeners, name="warned")
    said = "listener OUTSIDE on 0.0.0.0:0 is not encrypted and other machines can reach it"
    assert warned.log.count(f"WARNING ketch.broker.ports: {said}") == warned.log.count("not encrypted") == 1
    assert "not encrypted" not in start_ketch(*listeners, "--allow-plaintext", name="silent").log


def test_workers_count_up_for_each_listener(start_ketch: Callable[..., KetchServer]) -> None:
    server = start_ketch("--listeners", "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0", *MAP, "--workers", "2")
    seen = {}
    for listener in ("INSIDE", "OUTSIDE"):
        with Kafka(server.ports[listener]) as client:
            seen[listener] = {each.node_id: each.port for each in client.metadata().brokers}
    assert set(seen["INSIDE"]) == set(seen["OUTSIDE"]) == {1, 2}
    assert len({*seen["INSIDE"].values(), *seen["OUTSIDE"].values()}) == 4
