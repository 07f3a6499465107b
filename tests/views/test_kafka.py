"""The views that ask a broker through the Kafka protocol."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ketch import __version__
from ketch.errors import ConfigError, StorageUnavailable
from ketch.views.kafka import cluster, groups, topics
from ketch.views.kafka.answers import ClientError
from ketch.views.kafka.asker import Redis
from ketch.views.kafka.groups import GroupPartition, GroupSummary, Lag, ListedGroup
from ketch.views.kafka.groups import Member as GroupMember
from ketch.views.kafka.status import status
from ketch.views.kafka.topics import PartitionPlace
from tests.support.groups import Member, assignment, subscription
from tests.support.ketch import KetchServer
from tests.views.conftest import Asker

LIMIT = 20


@pytest.fixture
def redis(broker: KetchServer) -> Redis:
    return Asker(broker.redis_url, "blocking")


@pytest.fixture
def filled(broker: KetchServer, admin: AdminClient, topic: str) -> str:
    """A topic of two partitions with dense ids and three records in the first."""
    admin.create_topics([NewTopic(topic, 2, config={"offset.ids": "dense"})])[topic].result(LIMIT)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(3):
        producer.produce(topic, f"{n}", partition=0)
    assert producer.flush(LIMIT) == 0
    return topic


def test_a_cluster_and_what_a_broker_says_of_itself(admin: AdminClient, broker: KetchServer, filled: str) -> None:
    found = cluster.cluster(admin)
    assert [(each.id, each.host, each.port) for each in found.brokers] == [(1, "127.0.0.1", broker.port)]
    (leading,) = cluster.leaders(admin, found)
    assert (leading.id, leading.port) == (1, broker.port)
    assert leading.leads == sum(count for _, count in topics.listed(admin))
    facts = cluster.broker_facts(admin)
    assert facts is not None
    assert (facts.node_id, facts.version, facts.keyspace) == (1, __version__, "korvet")
    embedded = f"unix://{broker.directory}/data/valkey.sock"
    assert facts.redis == (f"redis://127.0.0.1:{broker.redis_port}" if broker.server else embedded)


def test_topics(admin: AdminClient, filled: str) -> None:
    assert (filled, 2) in topics.listed(admin)
    known, missing = topics.describe_known(admin, [filled, "nothere"])
    assert [str(error) for error in missing] == ["Topic nothere cannot be described: there is no such topic."]
    found = topics.description(admin, known[0])
    assert (found.name, len(found.id)) == (filled, 22)
    assert found.partitions == (PartitionPlace(0, 1, (1,), (1,), 0, 3), PartitionPlace(1, 1, (1,), (1,), 0, 0))
    assert found.configs["offset.ids"] == "dense"
    assert found.configs.items() <= {config.name: config.value for config in topics.configs(admin, filled)}.items()
    with pytest.raises(ClientError, match="nothere"):
        topics.describe(admin, ["nothere"])


def test_groups(admin: AdminClient, broker: KetchServer, redis: Redis, filled: str) -> None:
    name = f"g-{filled}"
    with Member(broker.port, name) as member:
        member.enter(protocols={"range": subscription(filled)})
        member.sync({member.id: assignment({filled: [0, 1]})})
        assert member.commit(filled, 1) == 0
        reader = GroupMember(member.id, "raw", "/127.0.0.1")
        asked = 0

        def find() -> Redis:
            nonlocal asked
            asked += 1
            return redis

        for lag in (Lag(admin, find), Lag(admin, lambda: None)):
            found = groups.description(admin, lag, name)
            assert (found.name, found.state, found.assignor, found.members) == (name, "Stable", "range", (reader,))
            assert found.partitions == (
                GroupPartition(filled, 0, 1, 3, 2, reader),
                GroupPartition(filled, 1, None, 0, None, reader),
            )
            assert GroupSummary(name, "Stable", "classic", 1, 2) in groups.summary(admin, lag)
        assert asked == 1
        assert groups.has_members(admin, name)
    assert ListedGroup(name, "Stable", "classic") in groups.listed(admin)
    assert not groups.has_members(admin, "nothere")
    with pytest.raises(ClientError, match="there is no such group"):
        groups.description(admin, Lag(admin, lambda: None), "nothere")


def test_lag_of_sparse_offsets_needs_redis(admin: AdminClient, broker: KetchServer, redis: Redis, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1)])[topic].result(LIMIT)
    with Member(broker.port, f"g-{topic}") as member:
        assert member.commit(topic, 0, generation_id_or_member_epoch=-1) == 0
    for lag, known in ((Lag(admin, lambda: redis), 0), (Lag(admin, lambda: None), None)):
        (place,) = groups.description(admin, lag, f"g-{topic}").partitions
        assert place.lag == known


def test_status(admin: AdminClient, broker: KetchServer, redis: Redis, filled: str) -> None:
    found = status(admin, lambda: redis)
    assert (found.broker.port, found.version, found.failures) == (broker.port, __version__, ())
    assert found.redis is not None
    assert found.redis_address == redis.address
    assert found.topics == len(topics.listed(admin))
    assert found.partitions == sum(count for _, count in topics.listed(admin))
    assert found.groups is not None
    assert sum(found.groups.values()) == len(groups.listed(admin))
    assert found.held is not None
    assert found.held.records >= 3
    assert sum(found.held.archived.values()) == found.topics


def test_status_goes_on_without_redis(admin: AdminClient, filled: str) -> None:
    gone = StorageUnavailable("Redis is gone.")

    def find() -> Redis:
        raise gone

    found = status(admin, find)
    assert (found.redis, found.redis_address, found.held, found.failures) == (None, None, None, (gone,))
    assert found.topics == len(topics.listed(admin))

    def refuse() -> Redis:
        raise ConfigError("no URL")

    with pytest.raises(ConfigError):
        status(admin, refuse)
