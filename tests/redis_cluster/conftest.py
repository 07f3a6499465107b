"""A cluster of three masters that a module's tests share; they leave it whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from ketch.redis.blocking import connect
from ketch.redis.driver import BlockingDriver
from ketch.redis.server import Server
from tests.support.clusters import LIMIT, RedisCluster


@pytest.fixture(scope="module", params=["valkey", "redis-6.2"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with RedisCluster(tmp_path_factory.mktemp("cluster"), binary=request.param) as cluster:
        yield cluster


@pytest.fixture
def server(cluster: RedisCluster) -> Server:
    return Server(cluster.url, timeout=LIMIT, patience=LIMIT)


@pytest.fixture
def driver(server: Server) -> Iterator[BlockingDriver]:
    with closing(connect(server)) as driver:
        yield driver
