"""Batch reads and writes of the data source, as a Spark user has them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import redis
from confluent_kafka import Producer

from tests.spark.conftest import MakeTopic
from tests.support.ketch import KetchServer
from tests.support.long import rest_long

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[..., "DataFrame"]


@pytest.fixture
def read(spark: SparkSession, broker: KetchServer) -> Read:
    """`read(topic, **options)`."""

    def load(topic: str | None = None, **options: Any) -> DataFrame:
        given = {"redis.url": broker.redis_url, **({"subscribe": topic} if topic else {}), **options}
        return spark.read.format("ketch").options(**{name: str(value) for name, value in given.items()}).load()

    return load


def produce(broker: KetchServer, topic: str, count: int, partition: int = 0, start: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for n in range(start, start + count):
        producer.produce(topic, f"v{n}", f"k{n}", partition, timestamp=1_700_000_000_000 + n, headers=[("h", b"x")])
    assert producer.flush(20) == 0


def error_of(frame: Callable[[], Any]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 (Spark wraps what a data source raises)
        frame()
    return str(caught.value)


def test_columns_are_those_of_kafka(broker: KetchServer, make_topic: MakeTopic, read: Read) -> None:
    name = make_topic(2, **{"offset.ids": "dense"})
    produce(broker, name, 3, partition=1)
    frame = read(name, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    rows = frame.selectExpr("*", "unix_millis(timestamp) ms").collect()
    assert [
        (bytes(r.key), bytes(r.value), r.topic, r.partition, r.offset, r.ms, r.timestampType, r.headers) for r in rows
    ] == [(b"k%d" % n, b"v%d" % n, name, 1, n, 1_700_000_000_000 + n, 0, [("h", bytearray(b"x"))]) for n in range(3)]
    assert "headers" not in read(name).columns


@pytest.mark.parametrize(
    ("ids", "layout"),
    rest_long(itertools.product(("time", "dense"), ("record", "batch")), [("time", "batch"), ("dense", "record")]),
)
def test_ranges(broker: KetchServer, make_topic: MakeTopic, read: Read, ids: str, layout: str) -> None:
    name = make_topic(1, **{"offset.ids": ids, "storage.layout": layout})
    produce(broker, name, 1000)
    offsets = sorted(row.offset for row in read(name).select("offset").collect())
    assert len(offsets) == 1000

    def values(**options: Any) -> list[int]:
        return sorted(int(row[0][1:]) for row in read(name, **options).selectExpr("string(value)").collect())

    start, end = json.dumps({name: {"0": offsets[100]}}), json.dumps({name: {"0": offsets[900]}})
    assert values(startingOffsets=start, endingOffsets=end) == list(range(100, 900))
    assert values(startingTimestamp=1_700_000_000_990) == list(range(990, 1000))
    ending = json.dumps({name: {"0": 1_700_000_000_010}})
    assert values(endingOffsetsByTimestamp=ending) == list(range(10))
    frame = read(name, maxRecordsPerPartition=300, startingOffsets=start)
    sizes = [row[1] for row in frame.groupBy("partition").count().collect()]
    assert sizes == [900]
    assert frame.rdd.getNumPartitions() >= 3
    assert values(minPartitions=5) == list(range(1000))
    assert read(name, minPartitions=5).rdd.getNumPartitions() in (4, 5, 6)


def test_topics_by_pattern_and_assignment(broker: KetchServer, make_topic: MakeTopic, topic: str, read: Read) -> None:
    one, two = make_topic(2, f"{topic}-one"), make_topic(1, f"{topic}-two")
    produce(broker, one, 5, 0)
    produce(broker, one, 5, 1)
    produce(broker, two, 5, 0)
    assert read(subscribePattern=f"{topic}-.*").count() == 15
    assert read(assign=json.dumps({one: [1]})).count() == 5
    assert read(f"{one},{two}").count() == 15
    assert read(subscribePattern="no such topic").count() == 0


@pytest.mark.only_storage("record", "record-dense")
def test_trimmed_records_are_told(broker: KetchServer, store: redis.Redis, make_topic: MakeTopic, read: Read) -> None:
    name = make_topic(1, **{"offset.ids": "dense"})
    produce(broker, name, 100)
    store.xtrim(f"korvet:stream:{name}:0", maxlen=50, approximate=False)
    assert read(name).count() == 50
    start = json.dumps({name: {"0": 10}})
    text = error_of(lambda: read(name, startingOffsets=start).count())
    assert f"Offset 10 in option startingOffsets is out of range: {name}-0 has 50 to 100" in text
    assert read(name, startingOffsets=start, failOnDataLoss="false").count() == 50


def test_written_and_read_again(
    spark: SparkSession, broker: KetchServer, store: redis.Redis, make_topic: MakeTopic, read: Read
) -> None:
    name = make_topic(3)
    frame = spark.range(30_000).selectExpr("string(id) key", "string(id) value")
    target = {"redis.url": broker.redis_url, "topic": name}
    frame.write.format("ketch").options(**target).mode("append").save()
    rows = read(name).selectExpr("string(value) value", "partition").collect()
    assert sorted(int(row.value) for row in rows) == list(range(30_000))
    assert {row.partition for row in rows} == {0, 1, 2}
    assert not store.exists(f"korvet:producers:{{korvet:stream:{name}:0}}")
    assert "append" in error_of(lambda: frame.write.format("ketch").options(**target).mode("overwrite").save())
    nowhere = {**target, "topic": "nowhere"}
    text = error_of(lambda: frame.write.format("ketch").options(**nowhere).mode("append").save())
    assert "Unknown topic nowhere" in text


def test_errors_are_clear(broker: KetchServer, make_topic: MakeTopic, read: Read) -> None:
    name = make_topic(1)
    assert "Unknown topic nowhere" in error_of(lambda: read("nowhere").count())
    text = error_of(lambda: read(name, startingOffset="latest").count())
    assert "Unknown option startingoffset (did you mean startingOffsets?). The options are" in text
    assert "Option subscribe names no topic." in error_of(lambda: read(",").count())
    gone = {"redis.url": "redis://127.0.0.1:1"}
    assert "Redis at redis://127.0.0.1:1 cannot be used" in error_of(lambda: read(name, **gone).count())
