"""`ketch status` and `ketch cluster`: a broker at a glance, its neighbours, and what they say while Redis is gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ketch import __version__
from ketch.cli.commands.status import line
from tests.support.cli import Ketch, send
from tests.support.ketch import KetchServer, eventually
from tests.support.redis_servers import RedisServer, binaries


@pytest.fixture
def ketch(broker: KetchServer) -> Ketch:
    return Ketch(broker)


def test_status(ketch: Ketch, broker: KetchServer, topic: str) -> None:
    before = json.loads(ketch("status", "--json").stdout)
    ketch("topics", "create", topic, "--partitions", "2")
    send(broker, topic, {"value": b"a"}, {"value": b"b"})
    found = json.loads(ketch("status", "--json").stdout)
    assert found["broker"] == {"id": 1, "host": "127.0.0.1", "port": broker.port, "version": __version__}
    assert found["cluster"]["brokers"] == 1
    assert found["redis"]["address"] == f"unix://{broker.directory}/data/valkey.sock"
    assert found["redis"]["memory"] > 0
    grown = {name: found["topics"][name] - before["topics"][name] for name in ("count", "partitions", "records")}
    assert grown == {"count": 1, "partitions": 2, "records": 2}
    assert found["archive"]["no"] == before["archive"]["no"] + 1
    lines = dict(row.split("\t") for row in ketch("status").stdout.decode().splitlines())
    assert list(lines) == ["broker", "cluster", "redis", "topics", "groups", "archive"]
    assert lines["broker"] == f"up at 127.0.0.1:{broker.port}, id 1, ketch {__version__}"


def test_cluster(start_ketch: Callable[..., KetchServer]) -> None:
    first = start_ketch("--broker-heartbeat-interval-ms", "50", name="first")
    second = start_ketch("--redis", first.redis_url, "--node-id", "7", "--broker-heartbeat-interval-ms", "50")
    ketch = Ketch(first)
    eventually(lambda: len(json.loads(ketch("cluster", "--json").stdout)["brokers"]) == 2)
    ketch("topics", "create", "t", "--partitions", "20")
    found = json.loads(ketch("cluster", "--json").stdout)
    brokers = [(broker["id"], broker["host"], broker["port"]) for broker in found["brokers"]]
    assert brokers == [(1, "127.0.0.1", first.port), (7, "127.0.0.1", second.port)]
    assert sum(broker["leads"] for broker in found["brokers"]) == 20
    assert ketch("cluster").stdout.decode().splitlines()[0].split("\t")[:3] == ["1", "127.0.0.1", str(first.port)]


def test_status_while_redis_is_gone(start_ketch: Callable[..., KetchServer], tmp_path: Path) -> None:
    redis = RedisServer(next(iter(binaries().values())), tmp_path / "redis")
    try:
        server = start_ketch("--redis", redis.url, "--metadata-max-age-ms", "0")
        ketch = Ketch(server)
        assert ketch("status").stdout
        redis.kill()
        eventually(lambda: "Redis is gone" in server.log)
        done = ketch("status", "--json", code=1)
        found = json.loads(done.stdout)
        assert (found["broker"]["port"], found["redis"], found["topics"]) == (server.port, None, None)
        assert f"Redis at {redis.url} cannot be used: Connection refused.".encode() in done.stderr
    finally:
        redis.kill()


@pytest.mark.parametrize(
    ("name", "part", "text"),
    [
        ("redis", None, "unknown"),
        ("cluster", {"id": "x", "brokers": 2}, "x, 2 brokers"),
        ("redis", {"version": "Redis 8", "address": "redis://h:1", "memory": 1 << 20, "maxmemory": 1 << 21},
         "Redis 8 at redis://h:1, memory 1mb of 2mb"),
        ("redis", {"version": "Redis 8", "address": "redis+cluster://h", "nodes": 3, "memory": 1024, "maxmemory": None},
         "Redis 8 at redis+cluster://h, 3 nodes, memory 1kb of unlimited"),
        ("topics", {"count": 1, "partitions": 1}, "1 with 1 partition"),
        ("groups", {"Stable": 2, "Empty": 1}, "3 (1 Empty, 2 Stable)"),
        ("groups", {}, "0"),
        ("archive", {"all": 1, "behind": 2, "no": 3}, "1 topic archived, 2 behind, 3 without an archive"),
    ],
)  # fmt: skip
def test_lines(name: str, part: dict[str, object] | None, text: str) -> None:
    assert line(name, part) == text
