"""What client commands learn from a broker and the Redis that it names."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ketch import __version__
from ketch.cli import ask
from ketch.cli.ask import Archived
from ketch.errors import ConfigError, StorageUnavailable
from tests.support.ketch import KetchServer
from tests.support.redis_servers import RedisServer, binaries


@pytest.fixture
def admin(broker: KetchServer) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.mark.storage("record", "batch")
def test_a_broker_says_where_its_redis_is(broker: KetchServer, admin: AdminClient, topic: str) -> None:
    facts = ask.broker_facts(admin)
    assert facts is not None
    assert (facts.node_id, facts.version, facts.keyspace) == (1, __version__, "korvet")
    assert facts.redis == f"unix://{broker.directory}/data/valkey.sock"
    admin.create_topics([NewTopic(topic, 2)])[topic].result()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(5):
        producer.produce(topic, f"{n}", partition=0)
        producer.flush()
    store = ask.store(admin)
    assert store.record_lag("g", {(topic, 0): 0, (topic, 1): 0}) == {(topic, 0): 5, (topic, 1): 0}
    held = store.held([(topic, 0), (topic, 1)])
    assert (held[topic, 0].records, held[topic, 1].records, held[topic, 1].bytes) == (5, 0, 0)
    assert held[topic, 0].bytes > 100
    assert store.archive_state([(topic, 0)]) == {(topic, 0): Archived(None, None)}
    broker.redis().hset(f"korvet:archive:{topic}", mapping={"metadata": "file:///m", "start:0": 3, "through:0": 7})
    assert list(store.archive_state([(topic, 0), (topic, 1)]).values()) == [Archived(3, 7), Archived(None, None)]
    assert store.server().version.startswith("Valkey ")
    assert store.server().memory > 0
    with pytest.raises(ConfigError, match="no topic nothere"):
        store.held([("nothere", 0)])


def test_a_redis_of_another_broker_is_refused(admin: AdminClient, broker: KetchServer) -> None:
    with pytest.raises(StorageUnavailable, match="is not this broker's Redis"):
        ask.store(admin, broker.redis_url, "another-keyspace")
    assert ask.store(admin, broker.redis_url).cluster_id()


def test_why_a_redis_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable) as caught:
        ask.connect("redis://127.0.0.1:1", "korvet")
    assert str(caught.value) == "Redis at redis://127.0.0.1:1 cannot be used: Connection refused."
    server = RedisServer(next(iter(binaries().values())), tmp_path, "--requirepass", "secret")
    try:
        with pytest.raises(StorageUnavailable, match="it wants a password, which belongs into the URL"):
            ask.connect(server.url, "korvet")
        with pytest.raises(StorageUnavailable, match="does not accept the user and password") as caught:
            ask.connect(server.url.replace("//", "//:wrong@"), "korvet")
        assert "wrong" not in str(caught.value)
        assert ask.connect(server.url.replace("//", "//:secret@"), "korvet").cluster_id() == ""
    finally:
        server.stop()
