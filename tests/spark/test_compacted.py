"""Compacted topics, planned and read as Spark's driver and executors do it, without a JVM."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

pytest.importorskip("pyarrow", reason="the extra spark is not installed")
pytest.importorskip("pyspark", reason="the extra spark is not installed")

from ketch.spark import rows
from ketch.spark.options import ReadOptions, read_options
from ketch.spark.plan import ReadRange
from ketch.spark.reader import DataLoss
from ketch.spark.source import SourceTask, StreamReader
from tests.log.test_compaction import FAST, Model, alter, await_compacted, create, producer, read, write
from tests.spark.test_tiers import planned
from tests.support.ketch import KetchServer, eventually
from tests.support.redis_servers import RedisServer, binaries

LAZY = {"min.compaction.lag.ms": "3600000", "delete.retention.ms": "3600000"}


def options(server: KetchServer, topic: str, **more: str) -> ReadOptions:
    return read_options({"redis.url": server.redis_url, "subscribe": topic, **more}, False)


def rows_of(given: ReadOptions, ranges: list[ReadRange]) -> list[tuple[int, bytes, bytes | None]]:
    found = []
    for range_ in ranges:
        for batch in rows.read(given.server, range_, given.fail_on_data_loss, headers=False):
            found += list(zip(*(batch.column(name).to_pylist() for name in ("offset", "key", "value")), strict=True))
    return found


def compact(server: KetchServer, topic: str, stream: str, last: int) -> None:
    alter(AdminClient({"bootstrap.servers": server.bootstrap}), topic, "min.compaction.lag.ms", "0")
    await_compacted(server, stream, last)


@pytest.mark.parametrize(("layout", "ids"), [("record", "time"), ("batch", "dense")])
def test_a_range_has_gaps(start_ketch: Callable[..., KetchServer], topic: str, layout: str, ids: str) -> None:
    """Of what goes before the plan, or between plan and read, the newer record is given; nothing is called lost."""
    server = start_ketch(*FAST)
    stream = create(server, topic, **{"storage.layout": layout, "offset.ids": ids, **LAZY})
    to, rng, model = producer(server), random.Random(1), Model()
    write(to, topic, model, rng, 1_000, 100)
    given = options(server, topic)
    before = planned(given)
    assert len(rows_of(given, before)) == 1_000
    last = read(server, topic)[-1].offset()
    compact(server, topic, stream, last)
    left = [(message.offset(), message.key(), message.value()) for message in read(server, topic)]
    assert len(left) <= 101
    assert rows_of(given, before) == left
    assert rows_of(given, planned(given)) == left
    for more in ({"minPartitions": "5"}, {"maxRecordsPerPartition": "30"}):
        cut = options(server, topic, **more)
        assert rows_of(cut, planned(cut)) == left
    # From an offset whose record is gone.
    gap = next(offset + 1 for (offset, *_), (after, *_) in pairwise(left) if offset + 1 < after)
    late = options(server, topic, startingOffsets=json.dumps({topic: {"0": gap}}))
    assert rows_of(late, planned(late)) == [row for row in left if row[0] >= gap]


@pytest.mark.only_storage("record", "record-dense")
@pytest.mark.parametrize("name", [None, *(name for name in binaries() if name == "redis-6.2")])
def test_a_stream_goes_on_in_a_gap_at_the_start(
    start_ketch: Callable[..., KetchServer], tmp_path: Any, topic: str, name: str | None
) -> None:
    """In a trimmed log, too, whose first entries compaction has removed; and before Redis 7, which counts none."""
    redis = RedisServer(binaries()[name], tmp_path / name) if name else None
    try:
        server = start_ketch(*FAST, *(("--redis", redis.url) if redis else ()))
        stream = create(server, topic, **{"offset.ids": "dense", **LAZY})
        to = producer(server)
        for n in range(300):
            to.produce(topic, b"%d" % n, b"same")
        assert to.flush(10) == 0
        client = redis.client() if redis else server.redis()
        client.xtrim(stream, minid="0-101")
        alter(AdminClient({"bootstrap.servers": server.bootstrap}), topic, "min.compaction.lag.ms", "0")
        key = f"korvet:compaction:{{{stream}}}"
        eventually(lambda: client.hmget(key, "cleaned", "until") == [b"299", b"0"], 20)
        reader = StreamReader(options(server, topic))
        tasks = reader.partitions({topic: {"0": 150}}, {topic: {"0": 300}})
        ranges = [task.range for task in tasks if isinstance(task, SourceTask)]
        assert [offset for offset, *_ in rows_of(options(server, topic), ranges)] == [298, 299]
        with pytest.raises(DataLoss, match="were deleted"):
            reader.partitions({topic: {"0": 99}}, {topic: {"0": 300}})
    finally:
        if redis:
            redis.stop()
