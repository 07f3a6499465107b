"""Two brokers and many requests add to one transaction at the same time: nothing that was added is forgotten.

A partition that is forgotten gets no marker, so nobody reads beyond it; a group that is forgotten keeps its offsets
pending for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support.batches import batch, records
from tests.support.coordinator import Driver
from tests.support.kafka import FIND_COORDINATOR, PRODUCE, TXN_OFFSET_COMMIT, Kafka, produce
from tests.support.ketch import KetchServer, eventually

PARTITIONS, ROUNDS = 12, 15
AGAIN = {
    ErrorCode.not_enough_replicas,
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_not_available,
    ErrorCode.concurrent_transactions,
}


class Visits:
    """A transactional producer with a connection for each partition, and one for its group's offsets."""

    def __init__(self, ports: dict[int, int], topic: str, stack: ExitStack) -> None:
        def connect(node: int) -> Kafka:
            return stack.enter_context(Kafka(ports[node]))

        first = connect(1)
        first.create(topic, PARTITIONS)
        leaders = {part.partition_index: part.leader_id for part in first.metadata(topic).topics[0].partitions}
        self.topic = topic
        self.partitions = {index: connect(node) for index, node in leaders.items()}
        self.group = connect(coordinator(first, 0, topic))
        self.driver = Driver(connect(coordinator(first, 1, topic)), topic, topic, ())

    def transaction(self, number: int) -> None:
        driver = self.driver
        asked = dict[Kafka, tuple[int, int, Any]]()
        for index, client in self.partitions.items():
            given = {"attributes": 0x10, "producer_id": driver.pid, "producer_epoch": driver.epoch, "base_sequence": 0}
            data = batch(records([b"%d" % number]), **given)
            asked[client] = PRODUCE, 12, produce(self.topic, data, index, transactional_id=self.topic)
        offset = {"partition_index": 0, "committed_offset": number, "committed_metadata": ""}
        given = {"transactional_id": self.topic, "producer_id": driver.pid, "producer_epoch": driver.epoch}
        given |= {"group_id": self.topic, "generation_id": -1, "member_id": "", "group_instance_id": None}
        topics = [{"name": self.topic, "partitions": [offset]}]
        asked[self.group] = TXN_OFFSET_COMMIT, 5, {**given, "topics": topics}
        while asked:
            for client, (key, version, given) in asked.items():
                client.send(key, version, **given)
            for client, (key, version, _) in list(asked.items()):
                error = error_of(client.answer(key, version)[1])
                assert error in {ErrorCode.none, *AGAIN}
                if error is ErrorCode.none:
                    del asked[client]


def error_of(answer: Any) -> ErrorCode:
    parts = answer.responses[0].partition_responses if hasattr(answer, "responses") else answer.topics[0].partitions
    return ErrorCode(parts[0].error_code)


def coordinator(client: Kafka, kind: int, name: str) -> int:
    return int(client.ask(FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=[name]).coordinators[0].node_id)


@pytest.fixture
def servers(start_ketch: Callable[..., KetchServer]) -> dict[int, KetchServer]:
    often = ("--broker-heartbeat-interval-ms", "200")
    first = start_ketch("--node-id", "1", *often)
    found = {1: first, 2: start_ketch("--node-id", "2", "--redis", first.redis_url, *often)}
    for server in found.values():
        with Kafka(server.port) as client:
            eventually(lambda: len(client.metadata().brokers) == 2)
    return found


def test_all_that_is_added_is_ended(servers: dict[int, KetchServer], topic: str) -> None:
    with ExitStack() as stack:
        visits = Visits({node: server.port for node, server in servers.items()}, topic, stack)
        assert visits.driver.init(-1, -1)[0] == "none"
        for number in range(ROUNDS):
            visits.transaction(number)
            assert visits.driver.end(visits.driver.pid, visits.driver.epoch, True, 5)[0] == "none"
    redis = servers[1].redis()
    assert redis.keys("korvet:transactions:*") == []
    eventually(lambda: redis.keys("korvet:pending-offsets:*") == [], 10)  # the group's coordinator applies them
    assert redis.get(f"korvet:commit:korvet:stream:{topic}:0:{topic}") == b"%d" % (ROUNDS - 1)
