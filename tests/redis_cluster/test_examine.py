"""`ketch doctor` and the start of `ketch serve` on a cluster and behind sentinels."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ketch.cli import broker_redis
from ketch.cli.examine import examine
from ketch.errors import KetchError
from ketch.redis.url import RedisAddress
from ketch.views.health import Check, require_fit
from ketch.views.server import server, together
from tests.support.clusters import LIMIT, RedisCluster, Sentinels, free_port
from tests.support.modules import binary
from tests.support.redis_servers import RedisServer


def look(url: str, timeout: float = LIMIT) -> dict[str, Check]:
    return {check.name: check for check in asyncio.run(examine(RedisAddress.parse(url), timeout))}


def test_a_cluster(cluster: RedisCluster) -> None:
    found = look(cluster.url)
    assert {check.verdict for check in found.values()} == {"ok"}
    assert found["Redis"].seen == f"{cluster.url} answers"
    assert found["cluster"].seen == "on, 3 masters, 0 replicas"
    assert found["persistence"].seen == "append-only file, appendfsync everysec"
    assert require_fit([*found.values()]) == []


def test_nodes_that_differ_are_named(cluster: RedisCluster) -> None:
    first, second, third = (node.port for node in cluster.nodes)
    cluster.nodes[1].ask("CONFIG", "SET", "maxmemory", "100mb")
    cluster.nodes[1].ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        eviction = look(cluster.url)["eviction"]
    finally:
        cluster.nodes[1].ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
        cluster.nodes[1].ask("CONFIG", "SET", "maxmemory", "0")
    assert eviction.verdict == "fail"
    assert eviction.seen == (
        f"127.0.0.1:{second}: allkeys-lru, maxmemory 104857600: Redis would drop whole partitions;"
        f" 127.0.0.1:{first}, 127.0.0.1:{third}: noeviction, maxmemory unlimited"
    )


def test_one_node_of_several_is_refused(cluster: RedisCluster) -> None:
    """Most keys are not its."""
    with pytest.raises(KetchError) as caught:
        require_fit([*look(cluster.nodes[0].url).values()])
    assert str(caught.value) == "cluster: on, 3 nodes, of which this is one; name it: redis+cluster://HOST:PORT."


def test_a_server_that_is_in_no_cluster(tmp_path: Path) -> None:
    one = RedisServer(binary("valkey"), tmp_path)
    try:
        found = look(f"redis+cluster://127.0.0.1:{one.port}")
    finally:
        one.stop()
    assert [*found] == ["Redis", "kernel"]
    assert found["Redis"].verdict == "fail"
    assert "cluster support disabled" in found["Redis"].seen


def test_nobody_there() -> None:
    port = free_port()
    for url in (f"redis+cluster://127.0.0.1:{port}", f"redis+sentinel://127.0.0.1:{port}/m"):
        found = look(url)
        assert [*found] == ["Redis", "kernel"]
        assert found["Redis"].verdict == "fail"
        assert "Connection refused" in found["Redis"].seen


def test_replicas_and_nodes_that_are_gone(tmp_path: Path) -> None:
    with RedisCluster(tmp_path) as cluster:
        replica = cluster.add_replica(cluster.nodes[0])
        found = look(cluster.url)
        without = ", ".join(f"127.0.0.1:{node.port}" for node in cluster.nodes[1:3])
        assert found["cluster"].verdict == "warn"
        assert found["cluster"].seen == f"on, 3 masters, 1 replica; {without} without a replica"
        cluster.kill(cluster.nodes[2])
        gone = look(cluster.url)["Redis"]
        assert gone.verdict == "fail"
        assert gone.seen == f"127.0.0.1:{cluster.nodes[2].port} cannot be used (Connection refused)"
        cluster.restart(cluster.nodes[2])
        assert replica.running
        assert look(cluster.url)["Redis"].verdict == "ok"


def test_a_master_behind_sentinels(tmp_path: Path) -> None:
    with Sentinels(tmp_path) as sentinels:
        found = look(sentinels.url)
        assert {check.verdict for check in found.values()} == {"ok"}
        master = f"127.0.0.1:{sentinels.master().port}"
        assert found["Redis"].seen == f"{master}, the master of {sentinels.url}, answers"
        assert found["role"].seen == "primary"
        unknown = look(sentinels.url.replace(sentinels.name, "other"))["Redis"]
        assert unknown.verdict == "fail"
        assert "knows no master other" in unknown.seen


def test_the_status_of_all_nodes(cluster: RedisCluster) -> None:
    """What `ketch status` shows of Redis."""
    each = broker_redis.connect(cluster.url, "korvet").ask_each(server)
    found = together(each)
    assert (found.nodes, found.version, found.memory_max) == (3, each[0].version, 0)
    assert found.memory == sum(node.memory for node in each)
