"""The lane on a Redis Cluster: each batch goes to the node of its slot, and a node that no longer has it refuses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ketch.redis.slots import slot
from tests.lane.test_states import BACK, DATA, STORAGE_ERROR, TAKEN, Bench
from tests.support.batches import batch, records
from tests.support.clusters import Node, RedisCluster
from tests.support.kafka import PRODUCE, produce
from tests.support.ketch import KetchServer, eventually

PARTITIONS = 6


class Clustered(Bench):
    """A broker with the lane on a cluster of three masters."""

    def __init__(self, server: KetchServer) -> None:
        assert server.cluster is not None
        self.cluster: RedisCluster = server.cluster
        super().__init__(server, PARTITIONS)

    def slot(self, partition: int) -> int:
        return slot(b"korvet:stream:t:%d" % partition)

    @contextmanager
    def before(self, node: Node, *command: Any) -> Iterator[None]:
        """The node executes the command when the block ends, before what it is sent within the block."""
        connection = node.client().connection_pool.get_connection()
        node.pause()
        connection.send_command(*command)
        yield
        node.resume()
        assert connection.read_response() in (b"OK", 1)
        connection.disconnect()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clustered]:
    lasting = ("--metadata-max-age-ms", "600000")
    server = KetchServer(
        tmp_path_factory.mktemp("ketch"),
        *("--default-storage-layout", "batch", "--http-port", "0", *lasting),
        clustered=True,
    )
    made = Clustered(server.start())
    yield made
    made.kafka.close()
    assert server.stop() == 0, server.log
    server.close()


def test_a_request_for_every_node(bench: Clustered) -> None:
    owners = {bench.cluster.owner(bench.slot(partition)).port for partition in range(PARTITIONS)}
    assert len(owners) > 1
    parts = [{"index": partition, "records": DATA} for partition in range(PARTITIONS)]
    bench.warm()
    before, back = bench.count(TAKEN), bench.count(BACK)
    for _ in range(3):
        topics = [{"name": "t", "partition_data": parts}]
        (answer,) = bench.kafka.ask(PRODUCE, 9, acks=-1, timeout=10_000, topic_data=topics).responses
        assert [(each.index, int(each.error_code)) for each in answer.partition_responses] == [
            (partition, 0) for partition in range(PARTITIONS)
        ]
    assert (bench.count(TAKEN), bench.count(BACK)) == (before + 3, back)


def test_a_slot_moves_with_batches_out(bench: Clustered) -> None:
    """The node gets them when it has given their slot away: they are stored where it is now, in their order."""
    cluster, moved = bench.cluster, bench.slot(0)
    source = cluster.owner(moved)
    target = next(node for node in cluster.nodes if node is not source)
    keys = source.ask("CLUSTER", "GETKEYSINSLOT", moved, 100)
    cluster.begin_migration(moved, target)
    migrate = ("MIGRATE", *target.place, "", 0, 10_000, "KEYS", *keys)
    batches = [batch(records([b"%d" % n])) for n in range(3)]
    before, back = bench.count(TAKEN), bench.count(BACK)
    with bench.before(source, *migrate):
        numbers = [bench.kafka.send(PRODUCE, 9, **produce("t", each)) for each in batches]
        eventually(lambda: bench.count(TAKEN) == before + 3, what="the lane to have sent them")
    cluster.end_migration(moved, target)
    assert bench.codes(numbers) == [0] * 3
    assert bench.count(BACK) == back
    assert [record.value for record in bench.kafka.read_all("t")][-3:] == [b"0", b"1", b"2"]
    bench.warm()  # the lane finds the node


def test_the_connection_to_a_node_is_lost(bench: Clustered) -> None:
    """Python makes the answers, as where there is one Redis. The other nodes' batches are the lane's."""
    source = bench.cluster.owner(bench.slot(0))
    other = next(n for n in range(PARTITIONS) if bench.cluster.owner(bench.slot(n)) is not source)
    (appends,) = [each["id"] for each in source.client().client_list() if "t" in each["flags"]]
    before, back = bench.count(TAKEN), bench.count(BACK)
    with bench.before(source, "CLIENT", "KILL", "ID", appends):
        numbers = bench.sent(2)
    assert bench.codes(numbers) == [STORAGE_ERROR] * 2
    assert bench.count(BACK) == back + 2
    assert bench.kafka.produce("t", DATA, partition=other).error_code == 0
    eventually(lambda: bench.kafka.produce("t", DATA).error_code == 0, what="the broker to be back")
    bench.warm()
    assert bench.count(TAKEN) > before + 2
