"""Spark's source and sink on a cluster, without a JVM: each task talks to the nodes of its partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

import pyarrow as pa

from ketch.redis.blocking import connected
from ketch.redis.slots import slot
from ketch.spark.appender import Writer
from ketch.spark.options import read_options, write_options
from ketch.spark.plan import ReadPlanner
from ketch.spark.rows import read as read_rows
from ketch.spark.task import SinkTask
from ketch.store.keys import Keyspace
from ketch.store.layouts.table import LAYOUTS
from ketch.store.topics import hashes
from tests.support.clusters import RedisCluster

KEYS, PARTITIONS = Keyspace("korvet"), 24


@pytest.fixture(scope="module", params=["module", "multi"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with RedisCluster(tmp_path_factory.mktemp("cluster"), module=request.param == "module") as cluster:
        yield cluster


def read(url: str, topic: str, **options: str) -> list[bytes]:
    """The values that a batch read gives, task after task."""
    given = read_options({"redis.url": url, "subscribe": topic, **options}, streaming=False)
    planner = ReadPlanner(given)
    with connected(given.server) as driver:
        view = planner.view(driver)
        start, end = planner.start(driver, view), planner.end(driver, view)
        ranges = planner.ranges(driver, view, start, end, again=False)
    found = [batch for each in ranges for batch in read_rows(given.server, each, True, False)]
    return [value for batch in found for value in batch.column("value").to_pylist()]


def batch(numbers: Sequence[int]) -> pa.RecordBatch:
    words = [b"%d" % number for number in numbers]
    return pa.RecordBatch.from_pydict({"key": pa.array(words, pa.binary()), "value": pa.array(words, pa.binary())})


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_a_topic_over_all_nodes(cluster: RedisCluster, topic: str, layout: str) -> None:
    """Its partitions' slots move while a task writes."""
    options = write_options({"redis.url": cluster.url, "topic": topic})
    with connected(options.server) as driver:
        driver.ask(hashes.create(KEYS, topic, PARTITIONS, {"storage.layout": layout}))
    homes = {slot(KEYS.stream(topic, index)): _home(cluster, topic, index) for index in range(PARTITIONS)}
    assert {*homes.values()} == {*range(3)}

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, 6_000, 1_000):
            yield batch(range(start, start + 1_000))
            for number in [*homes][start // 1_000 :: 6]:
                cluster.migrate(number, cluster.nodes[(homes[number] + 1) % 3])

    assert SinkTask(options, Writer("spark-q-0", 0), 0).write(batches(), forget=False) == 6_000
    every = sorted(b"%d" % number for number in range(6_000))
    assert sorted(read(cluster.url, topic)) == every
    for number, home in homes.items():
        cluster.migrate(number, cluster.nodes[home])
    assert sorted(read(cluster.url, topic, minPartitions="30")) == every
    # A task that is run again finds what it has written.
    assert SinkTask(options, Writer("spark-q-0", 0), 0).write(batches(), forget=True) == 6_000
    assert sorted(read(cluster.url, topic)) == every


def _home(cluster: RedisCluster, topic: str, index: int) -> int:
    return cluster.nodes.index(cluster.owner(slot(KEYS.stream(topic, index))))
