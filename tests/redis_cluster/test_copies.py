"""`min.insync.replicas`: acks=all is answered once so many nodes of Redis have the batch, and never for what a failover
loses.

The same tests run on one master with a replica, and on a cluster whose three masters have a replica each.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer

from ketch.redis.slots import slot
from tests.broker.protocol.test_alter import BROKER, DELETE, SET, change
from tests.chaos.test_crash import PARTITIONS, FullSpeed, check
from tests.support.batches import batch, records
from tests.support.cli import Ketch
from tests.support.clusters import LIMIT, Node, RedisCluster, free_port
from tests.support.coordinator import Driver, described
from tests.support.kafka import ALTER_REASSIGNMENTS, DESCRIBE_TOPIC_PARTITIONS, PRODUCE, Kafka, Record, produce, split
from tests.support.ketch import KetchServer, eventually
from tests.support.modules import binary

OK, NOT_ENOUGH, NOT_ENOUGH_AFTER_APPEND, INVALID_REPLICA_ASSIGNMENT = 0, 19, 20, 39
SOON = 1500  # ms that a request may take which is to fail
ONE = batch(records([b"x"]))


@dataclass
class Place:
    """What a broker keeps its log in: each stream has a master and one replica."""

    url: str
    master: Callable[..., Node]  # of a topic, and of a partition, else its first
    replica: Callable[..., Node]
    replica_of: Callable[[str], Node]  # of a key


def stream(topic: str, partition: int = 0) -> str:
    return f"korvet:stream:{topic}:{partition}"


@pytest.fixture(scope="module", params=["single", "cluster"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("nodes")
    with ExitStack() as stack:
        if request.param == "cluster":
            # A master that hangs for a second is to stay the master.
            cluster = RedisCluster(directory, replicas=1, module=True, node_timeout=10_000)
            yield sharded(stack.enter_context(cluster))
            return
        path = binary("valkey")
        master = Node(path, directory / "master", port=free_port())
        stack.callback(master.kill)
        options = ("--replicaof", f"127.0.0.1 {master.port}", "--repl-ping-replica-period", "1")
        replica = Node(path, directory / "replica", *options, port=free_port())
        stack.callback(replica.kill)
        follows(master, replica)
        yield Place(master.url, lambda *_: master, lambda *_: replica, lambda _: replica)


def sharded(cluster: RedisCluster) -> Place:
    def master(topic: str, partition: int = 0) -> Node:
        return cluster.owner(slot(stream(topic, partition).encode()))

    def replica_of(key: str) -> Node:
        return cluster.replica_of(cluster.owner(slot(key.encode())))

    return Place(cluster.url, master, lambda *where: cluster.replica_of(master(*where)), replica_of)


def follows(master: Node, replica: Node) -> None:
    """Until the replica has all that the master has, and the master counts it."""
    replica.wait_following()
    eventually(lambda: online(master) == 1, LIMIT, "the master to count its replica")


def online(master: Node) -> int:
    """The replicas that a master counts, as the broker reads it."""
    rows = master.client().info("replication").values()
    return sum(isinstance(row, dict) and row.get("state") == "online" for row in rows)


@pytest.fixture(scope="module")
def on_place(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    server = KetchServer(tmp_path_factory.mktemp("ketch"), "--redis", place.url, "--metadata-max-age-ms", "0").start()
    yield server
    assert server.stop() == 0, server.log


@pytest.fixture
def kafka(on_place: KetchServer) -> Iterator[Kafka]:
    with Kafka(on_place.port, timeout=LIMIT) as client:
        yield client


def code(kafka: Kafka, topic: str, timeout: int = int(LIMIT * 1000), acks: int = -1) -> int:
    return int(kafka.produce(topic, ONE, timeout=timeout, acks=acks).error_code)


def records_of(answer: Any) -> list[Record]:
    return [record for each in split(answer.records or b"") for record in each.records]


def test_two_copies(place: Place, kafka: Kafka, topic: str) -> None:
    kafka.create(topic, min_insync_replicas=2)
    assert code(kafka, topic) == OK
    master, replica = place.master(topic), place.replica(topic)
    replica.pause()
    try:
        assert code(kafka, topic, SOON) == NOT_ENOUGH_AFTER_APPEND
        assert code(kafka, topic, acks=1) == OK
    finally:
        replica.resume()
    follows(master, replica)
    assert code(kafka, topic) == OK
    assert len(kafka.read_all(topic)) == 4, "what had too few copies was stored all the same"


def test_no_replica(place: Place, kafka: Kafka, topic: str) -> None:
    kafka.create(topic, min_insync_replicas=2)
    master, replica = place.master(topic), place.replica(topic)
    replica.kill()
    try:
        eventually(lambda: online(master) == 0, LIMIT, "the master to miss its replica")
        eventually(lambda: code(kafka, topic, SOON) == NOT_ENOUGH, LIMIT, "the broker to see that")
        stored = len(kafka.read_all(topic))
        assert code(kafka, topic) == NOT_ENOUGH
        assert len(kafka.read_all(topic)) == stored, "nothing was stored"
        assert code(kafka, topic, acks=1) == OK
    finally:
        replica.start()
    follows(master, replica)
    assert code(kafka, topic) == OK


def test_more_copies_than_nodes(place: Place, kafka: Kafka, topic: str) -> None:
    kafka.create(topic, min_insync_replicas=3)
    assert code(kafka, topic) == NOT_ENOUGH
    assert code(kafka, topic, acks=1) == OK
    assert len(kafka.read_all(topic)) == 1


def test_what_lacks_copies_is_not_read(place: Place, kafka: Kafka, topic: str) -> None:
    """A failover could lose it: the high watermark waits for the replicas in sync."""
    kafka.create(topic, min_insync_replicas=2)
    assert code(kafka, topic) == OK
    (first,) = kafka.read_all(topic)
    end = kafka.list_offsets(topic, -1).offset
    replica = place.replica(topic)
    replica.pause()
    try:
        assert code(kafka, topic, acks=1) == OK
        answer = kafka.fetch(topic, first.offset)
        assert [record.offset for record in records_of(answer)] == [first.offset]
        assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (OK, end, end)
        assert kafka.list_offsets(topic, -1).offset == end
        assert kafka.fetch(topic, end).error_code == OK, "its end can be read from"
    finally:
        replica.resume()
    eventually(lambda: len(kafka.read_all(topic)) == 2, LIMIT, "the record that has its copies")
    assert kafka.list_offsets(topic, -1).offset > end


def test_a_waiting_fetch_gets_what_has_its_copies_later(place: Place, kafka: Kafka, topic: str) -> None:
    kafka.create(topic, min_insync_replicas=2)
    assert code(kafka, topic) == OK
    end = kafka.list_offsets(topic, -1).offset
    replica = place.replica(topic)
    replica.pause()
    try:
        assert code(kafka, topic, acks=1) == OK
        assert not records_of(kafka.fetch(topic, end, max_wait=700))
    finally:
        replica.resume()
    eventually(lambda: records_of(kafka.fetch(topic, end, max_wait=700)), LIMIT, "a record without another write")


def test_the_config_of_all_brokers(kafka: Kafka, topic: str) -> None:
    """It is the default of topics, also of those that are there."""
    kafka.create(topic)
    assert code(kafka, topic) == OK
    assert change(kafka, "", ("min.insync.replicas", SET, "3"), kind=BROKER)[0] == OK
    try:
        kafka.create(f"{topic}-later")
        assert [code(kafka, name) for name in (topic, f"{topic}-later")] == [NOT_ENOUGH] * 2
    finally:
        assert change(kafka, "", ("min.insync.replicas", DELETE, None), kind=BROKER)[0] == OK
    assert [code(kafka, name) for name in (topic, f"{topic}-later")] == [OK] * 2


def test_a_retry_after_too_few_copies_is_stored_once(place: Place, kafka: Kafka, topic: str) -> None:
    kafka.create(topic, min_insync_replicas=2)
    one = batch(records([b"x"]), producer_id=kafka.producer_id(), producer_epoch=0, base_sequence=0)
    master, replica = place.master(topic), place.replica(topic)
    replica.pause()
    try:
        assert kafka.produce(topic, one, timeout=SOON).error_code == NOT_ENOUGH_AFTER_APPEND
        assert kafka.produce(topic, one, timeout=SOON).error_code == NOT_ENOUGH_AFTER_APPEND, "it has no copy yet"
    finally:
        replica.resume()
    follows(master, replica)
    answer = kafka.produce(topic, one)
    assert answer.error_code == OK
    assert [record.offset for record in kafka.read_all(topic)] == [answer.base_offset]


def test_requests_share_a_wait(place: Place, on_place: KetchServer, kafka: Kafka, topic: str) -> None:
    kafka.create(topic, min_insync_replicas=2)
    master = place.master(topic)
    before = waits(master)
    with ExitStack() as stack:
        clients = [stack.enter_context(Kafka(on_place.port, timeout=LIMIT)) for _ in range(10)]
        for _ in range(20):
            for client in clients:
                client.send(PRODUCE, 9, **produce(topic, ONE))
        answers = [client.answer(PRODUCE, 9)[1] for client in clients for _ in range(20)]
    assert {answer.responses[0].partition_responses[0].error_code for answer in answers} == {OK}
    assert 0 < waits(master) - before < len(answers) / 2


def waits(node: Node) -> int:
    """WAITs that a node was asked for so far."""
    return int(node.client().info("commandstats").get("cmdstat_wait", {"calls": 0})["calls"])


def test_a_write_that_is_refused_vouches_for_nothing(place: Place, kafka: Kafka, topic: str) -> None:
    """WAIT alone is refused by no node, and answers at once that all replicas have what was written before."""
    kafka.create(topic, min_insync_replicas=2)
    assert code(kafka, topic) == OK
    master = place.master(topic)
    master.ask("ACL", "SETUSER", "default", "-set")
    try:
        assert code(kafka, topic, SOON) != OK
    finally:
        master.ask("ACL", "SETUSER", "default", "+set")
    assert code(kafka, topic) == OK


@pytest.mark.long(minutes=0.5)
def test_a_transaction_goes_on_once_each_step_has_its_copies(place: Place, kafka: Kafka, topic: str) -> None:
    kafka.create(topic, min_insync_replicas=2)
    client = Driver(kafka, topic, topic, ())
    assert change(kafka, "", ("min.insync.replicas", SET, "2"), kind=BROKER)[0] == OK
    try:
        eventually(lambda: client.init(-1, -1)[0] == "none", LIMIT, "a producer id")
        who = client.pid, client.epoch
        state, pending = f"korvet:transaction:{topic}", f"korvet:pending-offsets:{topic}"
        waits_for(place.replica_of(state), lambda: client.add(*who, 0, 3)[0])
        assert client.produce(*who, 0, 0, 9) == "none"
        assert client.add_offsets(*who, 3) == "none"
        waits_for(place.replica_of(pending), lambda: client.commit_offset(*who, 2))
        waits_for(place.replica_of(state), lambda: client.end(*who, True, 3)[0])
        eventually(lambda: client.settled()[1] == "CompleteCommit", LIMIT, "the markers")
        assert client.end(*who, True, 3) == ("none",), "a repeated request"
    finally:
        assert change(kafka, "", ("min.insync.replicas", DELETE, None), kind=BROKER)[0] == OK


def waits_for(replica: Node, ask: Callable[[], str]) -> None:
    """A step that is refused, also when it is repeated, while a replica hangs, and is made once it goes on."""
    replica.pause()
    try:
        assert {ask(), ask()} <= {"coordinator_not_available", "concurrent_transactions"}
    finally:
        replica.resume()
    eventually(lambda: ask() == "none", LIMIT, "the step to have its copies")


def test_a_marker_waits_for_its_copies(place: Place, kafka: Kafka, topic: str) -> None:
    """The transaction is decided, and is over when each partition's marker has them."""
    kafka.create(topic, min_insync_replicas=2)
    client = Driver(kafka, topic, topic, ())
    eventually(lambda: client.init(-1, -1)[0] == "none", LIMIT, "a producer id")
    who = client.pid, client.epoch
    assert (client.add(*who, 0, 3), client.produce(*who, 0, 0, 9)) == (("none",), "none")
    replica = place.replica(topic)
    replica.pause()
    try:
        assert client.end(*who, True, 3) == ("none",)
        assert described(kafka, topic)[1] == "PrepareCommit"
    finally:
        replica.resume()
    assert client.settled()[1] == "CompleteCommit"


# -- what clients are shown


def replicas(kafka: Kafka, topic: str, partition: int = 0) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """All of a partition's replicas and those in sync."""
    found = kafka.metadata(topic).topics[0].partitions[partition]
    assert found.replica_nodes[0] == found.leader_id
    return tuple(found.replica_nodes), tuple(found.isr_nodes)


def test_replicas_are_shown(place: Place, kafka: Kafka, topic: str) -> None:
    assert kafka.create(topic, 3).replication_factor == 2
    asked: dict[str, Any] = {"topics": [{"name": topic}], "response_partition_limit": 100, "cursor": None}
    described = kafka.ask(DESCRIBE_TOPIC_PARTITIONS, 0, **asked).topics[0].partitions
    different = set()
    for partition in range(3):
        shown, in_sync = replicas(kafka, topic, partition)
        assert len(shown) == 2
        assert in_sync == shown == tuple(described[partition].replica_nodes) == tuple(described[partition].isr_nodes)
        assert shown[1] not in {broker.node_id for broker in kafka.metadata().brokers}
        different.add(shown[1])
    nodes = {place.replica(topic, partition).port for partition in range(3)}
    assert len(different) == len(nodes), "one id for each replica of Redis"


def test_a_replica_that_is_gone_is_not_shown(place: Place, kafka: Kafka, topic: str) -> None:
    kafka.create(topic)
    before = replicas(kafka, topic)
    master, replica = place.master(topic), place.replica(topic)
    replica.kill()
    try:
        eventually(lambda: replicas(kafka, topic) == (before[0][:1],) * 2, LIMIT, "the replica to be shown no more")
    finally:
        replica.start()
    follows(master, replica)
    eventually(lambda: replicas(kafka, topic) == before, LIMIT, "the same id again")


def test_metadata_does_not_wait_for_a_redis_that_hangs(
    place: Place, on_place: KetchServer, start_ketch: Callable[..., KetchServer], topic: str
) -> None:
    server = start_ketch("--redis", place.url, "--metadata-max-age-ms", "3600000", "--node-id", "2")
    with Kafka(server.port, timeout=LIMIT) as kafka:
        eventually(lambda: len(kafka.metadata().brokers) == 2, LIMIT, "the brokers to find each other")
        kafka.create(topic)
        before = replicas(kafka, topic)
        master = place.master(topic)
        master.pause()
        try:
            time.sleep(1.1)  # what is known is too old then to be believed unasked
            assert replicas(kafka, topic) == before
        finally:
            master.resume()


def both(kafka: Kafka, topic: str) -> tuple[int, ...]:
    """The ids of a partition's two replicas, once a replica that an earlier test disturbed is known again."""
    eventually(lambda: len(replicas(kafka, topic)[1]) == 2, LIMIT, "both replicas to be shown")
    return replicas(kafka, topic)[0]


def test_only_the_assignment_that_is_there_is_taken(kafka: Kafka, topic: str) -> None:
    kafka.create(topic)
    shown = both(kafka, topic)

    def assign(*nodes: int) -> int:
        topics = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": nodes}]}]
        answer = kafka.ask(ALTER_REASSIGNMENTS, 0, timeout=10_000, topics=topics)
        return int(answer.responses[0].partitions[0].error_code)

    assert assign(*shown) == OK
    assert assign(shown[0]) == assign(*reversed(shown)) == INVALID_REPLICA_ASSIGNMENT


def test_clients_take_replicas_that_are_no_brokers(on_place: KetchServer, kafka: Kafka, topic: str) -> None:
    """Ids that are not among the brokers, as of brokers that are down."""
    eventually(lambda: len(kafka.metadata().brokers) == 1, what="brokers of other tests to be forgotten")
    kafka.create(topic, 2)
    assert code(kafka, topic) == OK
    shown = both(kafka, topic)
    admin = AdminClient({"bootstrap.servers": on_place.bootstrap})
    found = admin.describe_topics(TopicCollection([topic]))[topic].result(LIMIT).partitions[0]
    assert [(node.id, node.host) for node in found.replicas] == [(shown[0], "127.0.0.1"), (shown[1], None)]
    assert [node.id for node in found.isr] == list(shown)
    listed = subprocess.run(["kcat", "-b", on_place.bootstrap, "-L", "-t", topic], capture_output=True, check=True)
    assert f"replicas: {shown[0]},{shown[1]}, isrs: {shown[0]},{shown[1]}" in listed.stdout.decode()
    consumer = KafkaConsumer(topic, bootstrap_servers=on_place.bootstrap, auto_offset_reset="earliest", client_rack="a")
    try:
        assert next(consumer).value == b"x"
    finally:
        consumer.close()
    described = Ketch(on_place)("topics", "describe", topic, "--json").stdout
    assert json.loads(described)[0]["partitions"][0]["replicas"] == list(shown)


# -- masters that die


class Steady(FullSpeed):
    """As fast as a few hundred batches a second, so that a minute is not too much to read."""

    def run(self) -> None:
        while not self.stopping.wait(0.005):
            for partition in range(PARTITIONS):
                self.producer.produce(
                    self.topic, str(self.sent[partition]), partition=partition, on_delivery=self.delivered
                )
                self.sent[partition] += 1
            self.producer.poll(0)
        self.producer.flush(120)

    def goes_on(self) -> None:
        before = self.count
        eventually(lambda: self.count > before + 300, LIMIT, "acknowledgements")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    options = ("--appendfsync", "always")
    with RedisCluster(tmp_path / "cluster", replicas=1, module=True, options=options) as cluster:
        yield cluster


@pytest.fixture
def server(cluster: RedisCluster, tmp_path: Path) -> Iterator[KetchServer]:
    server = KetchServer(tmp_path / "ketch", "--redis-timeout-ms", "2000")
    server.cluster = cluster
    yield server.start()
    server.stop()


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_masters_that_die_under_a_producer(cluster: RedisCluster, server: KetchServer, topic: str, layout: str) -> None:
    """Every record that was acknowledged is at its offset on the masters that took over."""
    with Kafka(server.port) as kafka:
        kafka.create(topic, PARTITIONS, min_insync_replicas=2, storage_layout=layout)
    writer = Steady(server.bootstrap, topic)
    writer.start()
    try:
        for master in cluster.nodes[:3]:
            writer.goes_on()
            cluster.kill(master)
            heir = cluster.wait_failed_over(master)
            cluster.restart(master)
            follows(heir, master)
        writer.goes_on()
    finally:
        writer.stopping.set()
        writer.join(120)
    check(server, writer)


def test_what_no_replica_has_goes_with_its_master(cluster: RedisCluster, server: KetchServer, topic: str) -> None:
    """acks=1 and Redis's asynchronous replication: what is in no socket's buffer is lost. acks=all was not answered."""
    large = batch(records([bytes(1_000_000)]))
    with Kafka(server.port, timeout=LIMIT) as kafka:
        kafka.create(topic, min_insync_replicas=2)
        kept = kafka.stored(topic, ONE)
        master = cluster.owner(slot(stream(topic).encode()))
        replica = cluster.replica_of(master)
        replica.pause()
        try:
            acknowledged = [kafka.stored(topic, large, acks=1) for _ in range(30)]
            assert code(kafka, topic, SOON) == NOT_ENOUGH_AFTER_APPEND
        finally:
            master.kill()
            replica.resume()
        cluster.wait_failed_over(master)
        eventually(lambda: code(kafka, topic, acks=1) == OK, LIMIT, "the new master")
        found = [record.offset for record in kafka.read_all(topic)]
    assert found[0] == kept
    assert acknowledged[-1] not in found
    assert found == sorted(found)
