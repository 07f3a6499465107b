"""Every question of the store, asked of a cluster of three masters through its own driver.

That each command touches one slot is proven on a cluster's only node (`tests.store.test_slots`); here the driver takes
each of them to the node that has the slot.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing

import pytest

from ketch.redis.blocking import connect
from ketch.redis.driver import BlockingDriver
from ketch.redis.question import call
from ketch.redis.server import Server
from ketch.store.layouts.table import LAYOUTS
from tests.store.test_slots import Sample, _one, ask
from tests.support.clusters import LIMIT, RedisCluster
from tests.support.shuffled import ShuffledConnection, seeded


@pytest.fixture(scope="module")
def with_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with RedisCluster(tmp_path_factory.mktemp("cluster"), module=True) as cluster:
        yield cluster


@pytest.fixture(params=["ordered", "shuffled"])
def redis(request: pytest.FixtureRequest, with_module: RedisCluster) -> Iterator[BlockingDriver]:
    with closing(connect(Server(with_module.url, timeout=LIMIT))) as driver:
        driver.ask_each(lambda: call(None, "FLUSHALL"))
        yield driver if request.param == "ordered" else ShuffledConnection(driver, seeded(1))


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_every_question(redis: BlockingDriver, layout: str) -> None:
    sample = Sample(redis, layout, "g")
    for one in sample.commands():
        ask(redis, _one(one))
    for question in itertools.chain.from_iterable(sample.questions().values()):
        ask(redis, question)
