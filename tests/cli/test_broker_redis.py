"""How client commands find the Redis behind a broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from ketch.cli import broker_redis
from ketch.errors import StorageUnavailable
from ketch.views.server import cluster_id, server
from tests.support.ketch import KetchServer
from tests.support.redis_servers import RedisServer, binaries


@pytest.fixture
def admin(broker: KetchServer) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def test_a_broker_says_where_its_redis_is(broker: KetchServer, admin: AdminClient) -> None:
    found = broker_redis.find(admin)
    assert found.address == f"unix://{broker.directory}/data/valkey.sock"
    assert found.ask(server()).version.startswith("Valkey ")


def test_a_redis_of_another_broker_is_refused(admin: AdminClient, broker: KetchServer) -> None:
    with pytest.raises(StorageUnavailable, match="is not this broker's Redis"):
        broker_redis.find(admin, broker.redis_url, "another-keyspace")
    found = broker_redis.find(admin, broker.redis_url)
    assert found.ask(cluster_id(found.keys))


def test_why_a_redis_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable) as caught:
        broker_redis.connect("redis://127.0.0.1:1", "korvet")
    assert str(caught.value) == "Redis at redis://127.0.0.1:1 cannot be used: Connection refused."
    server = RedisServer(next(iter(binaries().values())), tmp_path, "--requirepass", "secret")
    try:
        with pytest.raises(StorageUnavailable, match="it wants a password, which belongs into the URL"):
            broker_redis.connect(server.url, "korvet")
        with pytest.raises(StorageUnavailable, match="does not accept the user and password") as caught:
            broker_redis.connect(server.url.replace("//", "//:wrong@"), "korvet")
        assert "wrong" not in str(caught.value)
        found = broker_redis.connect(server.url.replace("//", "//:secret@"), "korvet")
        assert found.ask(cluster_id(found.keys)) == ""
    finally:
        server.stop()
