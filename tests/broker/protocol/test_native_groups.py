"""Native groups in Redis exist from when partitions are assigned. Members here only join: they never fetch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests.support.batches import batch, records
from tests.support.groups import Member, assignment, subscription
from tests.support.kafka import DELETE_TOPICS
from tests.support.ketch import KetchServer, eventually

pytestmark = pytest.mark.storage("record", "batch")


class Assigned(Member):
    """The only member of a group."""

    def __init__(self, server: KetchServer, topic: str, group: str = "") -> None:
        super().__init__(server.port, group or f"g-{topic}")
        self.topic, self.redis = topic, server.redis()

    def assign(self, *partitions: int) -> None:
        assert self.enter(protocols={"range": subscription(self.topic)}).error_code == 0
        assert self.sync({self.id: assignment({self.topic: partitions})}).error_code == 0

    def stream(self, partition: int = 0) -> str:
        return f"korvet:stream:{self.topic}:{partition}"

    def write(self, partition: int = 0) -> int:
        """One batch of one record, so one entry in every layout; its offset."""
        return self.stored(self.topic, batch(records([b"x"])), partition=partition)

    def native(self, partition: int = 0) -> Any:
        """Deliveries pending, and lag in entries, of the group; None where there is no native group."""
        rows = {row["name"].decode(): row for row in self.redis.xinfo_groups(self.stream(partition))}
        return (rows[self.group]["pending"], rows[self.group]["lag"]) if self.group in rows else None


@pytest.fixture
def member(broker: KetchServer, topic: str) -> Iterator[Assigned]:
    with Assigned(broker, topic) as made:
        made.create(topic, 3)
        yield made


def test_an_assignment_makes_them(member: Assigned) -> None:
    for partition in (0, 0, 1, 2):
        member.write(partition)
    member.assign(0, 1)
    eventually(lambda: (member.native(0), member.native(1)) == ((0, 2), (0, 1)))
    assert member.native(2) is None
    member.assign(0, 1, 2)
    eventually(lambda: member.native(2) == (0, 1))


def test_they_stand_at_what_is_committed(member: Assigned) -> None:
    offsets = [member.write() for _ in range(5)]
    member.redis.set(f"korvet:commit:{member.stream()}:{member.group}", offsets[2])
    member.assign(0)
    eventually(lambda: member.native() == (0, 3))
    member.commit(member.topic, offsets[4])
    eventually(lambda: member.native() == (0, 1))
    member.assign(0)
    member.write()
    eventually(lambda: member.native() == (0, 2), what="another assignment moves nothing")


def test_a_first_commit_moves_them(member: Assigned) -> None:
    """A consumer that begins at the end, say."""
    offsets = [member.write() for _ in range(5)]
    member.assign(0)
    eventually(lambda: member.native() == (0, 5))
    member.commit(member.topic, offsets[-1] + 1)
    eventually(lambda: member.native() == (0, 0))


def test_where_there_is_no_stream_the_first_record_makes_them(member: Assigned) -> None:
    member.write(1)
    member.assign(0, 1, 2)
    eventually(lambda: member.native(1) == (0, 1))
    assert not member.redis.exists(member.stream(0), member.stream(2)), "an assignment writes no record"
    member.write(0)
    eventually(lambda: member.native(0) == (0, 1))
    member.redis.xadd(member.stream(2), {"value": "by another client"})
    eventually(lambda: member.native(2) == (0, 1))


def test_a_topic_that_is_deleted_stays_so(broker: KetchServer, member: Assigned, topic: str) -> None:
    member.assign(0, 1)
    member.write(1)
    eventually(lambda: member.native(1) is not None)
    deleted = member.ask(DELETE_TOPICS, 6, topics=[{"name": topic, "topic_id": None}], timeout=5000)
    assert deleted.responses[0].error_code == 0
    with Assigned(broker, f"{topic}-2") as other:  # made after all that the first one could still make
        other.create(f"{topic}-2")
        other.write()
        other.assign(0)
        eventually(lambda: other.native() is not None)
    assert not member.redis.exists(member.stream(0), member.stream(1))
    member.create(topic, 2)
    member.write(0)
    member.assign(0, 1)
    eventually(lambda: member.native(0) == (0, 1))


def test_a_group_that_is_deleted_stays_so(broker: KetchServer, member: Assigned, topic: str) -> None:
    member.write(0)
    member.assign(0, 1)
    eventually(lambda: member.native(0) is not None)
    member.leave()
    assert member.delete() == [0]
    member.write(1)
    with Assigned(broker, topic, f"other-{topic}") as other:
        other.assign(1)
        eventually(lambda: other.native(1) == (0, 1))
    assert (member.native(0), member.native(1)) == (None, None)


def test_a_rebalance_costs_one_command_for_each_partition(broker: KetchServer, member: Assigned) -> None:
    for partition in range(3):
        member.write(partition)
    nodes = broker.redis_nodes()
    for node in nodes:
        node.config_resetstat()
    member.assign(0, 1, 2)
    eventually(lambda: None not in [member.native(partition) for partition in range(3)])
    assert sum(created(node) for node in nodes) == 3


def created(node: redis.Redis) -> int:
    """Consumer groups that a node has been told to make."""
    calls = node.info("commandstats")
    return int(calls.get("cmdstat_xgroup|create", calls.get("cmdstat_xgroup", {"calls": 0}))["calls"])


def test_a_broker_that_loads_a_group_makes_those_that_are_missing(
    start_ketch: Callable[..., KetchServer], topic: str
) -> None:
    server = start_ketch()
    with Assigned(server, topic) as member:
        member.create(topic, 2)
        member.write(0)
        member.assign(0, 1)
        eventually(lambda: member.native(0) == (0, 1))
        member.redis.xgroup_destroy(member.stream(0), member.group)
        identity = member.id, member.generation
    assert server.stop() == 0
    server.start()
    with Assigned(server, topic) as member:
        member.id, member.generation = identity
        assert member.heartbeat() == 0
        eventually(lambda: member.native(0) == (0, 1))
        member.write(1)
        eventually(lambda: member.native(1) == (0, 1))
