"""Several brokers on one Redis: who leads, who coordinates, and what happens when one comes, goes or dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest

from tests.support.batches import batch, records
from tests.support.brokers import acquainted
from tests.support.consumer_members import Beater, settle
from tests.support.groups import OFFSET_COMMIT, Member, assignment, coordinator, group_of
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually
from tests.support.quick import commands

NOT_COORDINATOR = 16
OUT_OF_ORDER = 45
FAST = ("--broker-heartbeat-interval-ms", "100", "--broker-session-timeout-ms", "1500")
Pair = tuple[KetchServer, KetchServer]


@pytest.fixture
def pair(start_ketch: Callable[..., KetchServer]) -> Iterator[Pair]:
    """Two brokers that know each other: node 1 with the embedded Valkey, node 2 on it."""
    first = start_ketch(*FAST, name="first")
    second = start_ketch("--redis", first.redis_url, "--node-id", "2", *FAST, name="second")
    acquainted(2, first, second)
    yield first, second
    second.stop()


def test_they_agree(pair: Pair) -> None:
    told = []
    for server in pair:
        with Kafka(server.port) as client:
            if not told:
                client.create("t", 40)
            answer = client.metadata("t")
            brokers = [(b.node_id, b.port) for b in answer.brokers]
            told.append((brokers, answer.controller_id, [p.leader_id for p in answer.topics[0].partitions]))
    assert told[0] == told[1]
    brokers, controller, leaders = told[0]
    assert brokers == [(1, pair[0].port), (2, pair[1].port)]
    assert controller == 1
    assert min(Counter(leaders)[1], Counter(leaders)[2]) >= 8, "both lead about half of them"
    names = [f"group {n}" for n in range(40)]
    owners = [coordinator(pair[0], name) for name in names]
    assert owners == [coordinator(pair[1], name) for name in names]
    assert set(owners) == {1, 2}


def test_either_serves_every_partition(pair: Pair) -> None:
    with Kafka(pair[0].port) as first, Kafka(pair[1].port) as second:
        first.create("t", 4)
        eventually(lambda: not second.metadata("t", create=False).topics[0].error_code)
        for index in range(4):
            offsets = [one.stored("t", batch(records([b"v"])), partition=index) for one in (first, second)]
            assert [record.offset for record in second.read_all("t", partition=index)] == offsets
            assert [record.offset for record in first.read_all("t", partition=index)] == offsets


@pytest.mark.parametrize("epoch", [0, 1])
def test_an_idempotent_producer_that_comes_back(pair: Pair, epoch: int) -> None:
    """What it has sent through the other broker meanwhile is no gap."""

    def sent(sequence: int, epoch: int) -> bytes:
        values = records([b"%d" % (sequence + n) for n in range(3)])
        return batch(values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)

    with Kafka(pair[0].port) as first, Kafka(pair[1].port) as second:
        producer = first.producer_id()
        first.create("t")
        eventually(lambda: not second.metadata("t", create=False).topics[0].error_code)
        first.stored("t", sent(0, 0))
        begin = 0 if epoch else 3
        offset = second.stored("t", sent(begin, epoch))
        first.stored("t", sent(begin + 3, epoch))
        assert first.stored("t", sent(begin, epoch)) == offset
        assert first.produce("t", sent(begin + 9, epoch)).error_code == OUT_OF_ORDER
        assert len(first.read_all("t")) == 9


def test_the_wrong_broker_says_so(pair: Pair) -> None:
    group = group_of(1, pair[0])
    with Member(pair[0].port, group) as member, Member(pair[1].port, group) as lost:
        member.create("t")
        assert lost.join().error_code == NOT_COORDINATOR
        member.enter()
        member.sync()
        lost.id, lost.generation = member.id, member.generation
        assert lost.heartbeat() == NOT_COORDINATOR
        assert lost.sync().error_code == NOT_COORDINATOR
        assert lost.commit("t", 0) == NOT_COORDINATOR
        assert lost.describe().error_code == NOT_COORDINATOR
        assert lost.delete() == [NOT_COORDINATOR]
        assert lost.uncommit("t", 0)[0] == NOT_COORDINATOR
        assert [answer.error_code for answer in lost.leave().members or [lost.leave()]] == [NOT_COORDINATOR]
        assert lost.listed() == []
        assert member.listed() == [("consumer", "Stable")]
        assert member.heartbeat() == 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_group_survives_its_coordinator(pair: Pair, how: signal.Signals) -> None:
    group = group_of(2, pair[0])
    member = Member(pair[1].port, group)
    member.create("t")
    member.enter()
    member.sync({member.id: assignment({"t": [0]})})
    assert member.commit("t", 7) == 0
    assert pair[1].process is not None
    pair[1].process.send_signal(how)
    pair[1].process.wait()
    eventually(lambda: coordinator(pair[0], group) == 1)
    with Member(pair[0].port, group) as again:
        again.id, again.generation = member.id, member.generation
        assert again.heartbeat() == 0
        assert again.sync().assignment == assignment({"t": [0]})
        assert again.committed("t")[0] == 7
        eventually(lambda: again.commit("t", 8) == 0)  # a broker that was slow for a moment waits
    member.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_consumer_group_survives_its_coordinator(pair: Pair, how: signal.Signals) -> None:
    """Its members go on in their epochs, with what they had (KIP-848)."""
    group = group_of(2, pair[0])
    members = [Beater(pair[1].port, group) for _ in range(3)]
    members[0].create("t", 7)
    for member in members:
        member.enters("t")
    settle(members)
    assert members[0].commit("t", 7) == 0
    before, had = members[0].shown(), [member.assigned for member in members]
    assert pair[1].process is not None
    pair[1].process.send_signal(how)
    pair[1].process.wait()
    eventually(lambda: coordinator(pair[0], group) == 1)
    again = [Beater(pair[0].port, group) for _ in members]
    for other, member in zip(again, members, strict=True):
        other.id, other.generation, other.assigned = member.id, member.generation, member.assigned
        eventually(lambda other=other: other.beat().error_code == 0)
    after = again[0].shown()
    assert (after.group_state, after.group_epoch) == ("Stable", before.group_epoch)
    assert [other.assigned for other in again] == had
    assert again[0].committed("t")[0] == 7
    # A broker that was slow for a moment waits until it has its lease back: it answers heartbeats that change nothing,
    # but the first commit takes the dead broker's term.
    eventually(lambda: again[0].commit("t", 8) == 0)
    for member in (*members, *again):
        member.close()


@pytest.mark.parametrize("who", ["a member", "assigned itself", "never seen before"])
def test_a_coordinator_that_was_paused_does_not_put_commits_back(pair: Pair, who: str) -> None:
    """It wakes with a commit on its open connection that the next coordinator has overtaken."""
    first, paused = pair
    group, redis = group_of(2, first), first.redis()
    keys = [f"korvet:commit:korvet:stream:t:{index}:{group}" for index in (0, 1)]
    with Member(paused.port, group) as member, Member(first.port, group) as again:
        member.create("t", 2)
        if who == "a member":
            member.enter()
            member.sync({member.id: assignment({"t": [0, 1]})})
            again.id, again.generation = member.id, member.generation
        if who != "never seen before":
            assert [member.commit("t", 10, index) for index in (0, 1)] == [0, 0]
        assert paused.process is not None
        paused.process.send_signal(signal.SIGSTOP)
        parts = [{"partition_index": n, "committed_offset": 20, "committed_leader_epoch": -1} for n in (0, 1)]
        named = {**member.identity(), "generation_id_or_member_epoch": member.generation}
        member.send(OFFSET_COMMIT, 9, **named, topics=[{"name": "t", "partitions": parts}])
        eventually(lambda: coordinator(first, group) == 1)
        assert again.commit("t", 30) == 0
        before = [redis.get(key) for key in keys]
        paused.process.send_signal(signal.SIGCONT)
        _, answer = member.answer(OFFSET_COMMIT, 9)
        assert [part.error_code for part in answer.topics[0].partitions] == [NOT_COORDINATOR] * 2
        assert [redis.get(key) for key in keys] == before == [b"30", None if who == "never seen before" else b"10"]
        # It goes on as a coordinator as soon as it knows again who is there.
        eventually(lambda: member.commit("t", 40) == 0)
        assert redis.get(keys[0]) == b"40"


def test_commits_that_waited_behind_others_on_the_connection_of_a_paused_coordinator(pair: Pair) -> None:
    """They came while it was paused, though it serves the last of them when it has its lease back."""
    first, paused = pair
    group, redis = group_of(2, first), first.redis()
    key = f"korvet:commit:korvet:stream:t:0:{group}"
    with Member(paused.port, group) as member, Member(first.port, group) as again:
        member.create("t", 1)
        assert member.commit("t", 1) == 0
        assert paused.process is not None
        paused.process.send_signal(signal.SIGSTOP)
        offsets = range(2, 302)
        for offset in offsets:
            part = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
            named = {**member.identity(), "generation_id_or_member_epoch": -1}
            member.send(OFFSET_COMMIT, 9, **named, topics=[{"name": "t", "partitions": [part]}])
        eventually(lambda: coordinator(first, group) == 1)
        assert again.commit("t", 1000) == 0
        paused.process.send_signal(signal.SIGCONT)
        answers = [member.answer(OFFSET_COMMIT, 9)[1].topics[0].partitions[0].error_code for _ in offsets]
        assert set(answers) == {NOT_COORDINATOR}
        assert redis.get(key) == b"1000"


def test_a_group_that_moves_to_a_broker_that_comes(start_ketch: Callable[..., KetchServer]) -> None:
    """Who waits in a join is sent on, who is in goes on in its generation."""
    first = start_ketch(*FAST, name="first")
    members = [(Member(first.port, f"g{n}"), Member(first.port, f"g{n}")) for n in range(8)]
    for member, waiting in members:
        member.enter()
        member.sync({member.id: b"share"})
        waiting.join()
        waiting.send_join()
    second = start_ketch("--redis", first.redis_url, "--node-id", "2", *FAST, name="second")
    acquainted(2, first, second)
    moved = [pair for pair in members if coordinator(first, pair[0].group) == 2]
    assert 0 < len(moved) < len(members)
    for member, waiting in moved:
        assert waiting.joined().error_code == NOT_COORDINATOR
        assert member.heartbeat() == NOT_COORDINATOR
        with Member(second.port, member.group) as again:
            again.id, again.generation = member.id, member.generation
            assert again.heartbeat() == 0
    for member, waiting in members:
        member.close()
        waiting.close()
    second.stop()


def test_native_groups_where_coordinator_and_leader_differ(pair: Pair) -> None:
    first, second = pair
    group = group_of(1, first)
    with Member(first.port, group, client_id="c") as member, Kafka(second.port, client_id="c") as reader:
        member.create("t", 20)
        parts = member.metadata("t").topics[0].partitions
        index = next(part.partition_index for part in parts if part.leader_id == 2)
        stream, redis = f"korvet:stream:t:{index}", first.redis()
        offsets = [member.stored("t", batch(records([b"%d" % n])), partition=index) for n in range(10)]
        member.enter()
        member.sync({member.id: assignment({"t": [index]})})

        def shown() -> list[tuple[str, int, int]]:
            return [(row["name"].decode(), row["pending"], row["lag"]) for row in redis.xinfo_groups(stream)]

        eventually(lambda: shown() == [(group, 0, 10)], what="the coordinator makes it")

        def delivered() -> bool:
            """Reads until the broker knows whose fetch it is."""
            assert reader.fetch("t", offsets[0], partition=index).records
            return any(known["pending"] for known in redis.xinfo_groups(stream))

        eventually(delivered)

        def shows(pending: int) -> bool:
            (known,) = redis.xinfo_groups(stream)
            return (known["pending"], known["lag"]) == (pending, 0)

        assert shows(10)
        assert member.commit("t", offsets[4], index) == 0
        eventually(lambda: shows(6))
        assert [row["times_delivered"] for row in redis.xpending_range(stream, group, "-", "+", 10)] == [1] * 6
        assert member.commit("t", offsets[-1] + 1, index) == 0
        eventually(lambda: shows(0))


def test_a_node_id_is_one_brokers(start_ketch: Callable[..., KetchServer]) -> None:
    first = start_ketch(*FAST, name="first")
    command = [*commands.program(), "serve", "--port", "0", "--redis", first.redis_url, *FAST]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    address = f"127.0.0.1:{first.port}"
    assert f"Node id 1 is the broker's at {address}: choose another --node-id." in done.stderr
    assert "Traceback" not in done.stderr
    second = start_ketch("--redis", first.redis_url, "--node-id", "2", *FAST, name="second")
    second.kill()
    second.start()  # at the same address: at once, without waiting for its former self to be forgotten
    acquainted(2, first)
    second.stop()


def test_workers(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    """One of three is killed under a producer and a group: it comes back, and nothing is lost."""
    server = start_ketch("--workers", "3", *FAST)
    ports = _ports(server)
    acquainted(3, server)
    with Kafka(server.port) as client:
        client.create(topic, 30)  # with six, one topic in 243 has one leader
        leaders = {part.leader_id for part in client.metadata(topic).topics[0].partitions}
    assert len(leaders) > 1
    config = {"bootstrap.servers": server.bootstrap, "reconnect.backoff.max.ms": 200}
    producer = confluent_kafka.Producer({**config, "enable.idempotence": True, "linger.ms": 1})
    group = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**config, **group})
    consumer.subscribe([topic])
    seen: set[bytes] = set()

    def all_seen(count: int) -> bool:
        seen.update(message.value() for message in consumer.consume(500, 0.1) if not message.error())
        return len(seen) == count

    for n in range(3000):
        producer.produce(topic, b"%d" % n, partition=n % 30)
        if n == 1000:
            os.kill(_worker(ports[max(leaders) - 1]), signal.SIGKILL)
    assert producer.flush(30) == 0
    eventually(lambda: all_seen(3000), 60, "every record")
    consumer.close()
    acquainted(3, server)
    assert _ports(server) == ports
    assert server.stop() == 0
    eventually(lambda: not any(_listens(port) for port in ports))


def _ports(server: KetchServer) -> list[int]:
    (line,) = re.findall(r"workers (.*), kernel", server.log)
    return [int(address.rpartition(":")[2]) for address in line.split()]


def _listens(port: int) -> bool:
    return bool(subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, check=True).stdout)


def _worker(port: int) -> int:
    """The process that listens on a port."""
    listed = subprocess.run(["ss", "-Hltnp", f"sport = :{port}"], capture_output=True, check=True, text=True).stdout
    return int(re.findall(r"pid=(\d+)", listed)[0])
