"""`from_topic`: JSON values as typed columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.spark.conftest import MakeTopic
from tests.support.ketch import KetchServer

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from ketch.errors import ConfigError, UnknownTopicOrPartition
from ketch.spark import from_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = ['{"id": 1, "price": 2.5, "tags": ["a"]}', '{"id": 2, "who": {"name": "x"}}', "no json", None]


def fill(broker: KetchServer, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in VALUES:
        producer.produce(topic, value, b"k")
    assert producer.flush(10) == 0


def test_a_schema_is_inferred_or_given(
    spark: SparkSession, broker: KetchServer, make_topic: MakeTopic, tmp_path: Path
) -> None:
    name = make_topic(1, valueType="JSON")
    fill(broker, name)
    frame = from_topic(spark, name, redis_url=broker.redis_url)
    assert frame.schema.simpleString() == (
        "struct<id:bigint,price:double,tags:array<string>,who:struct<name:string>,_corrupt:string,"
        "_key:binary,_topic:string,_partition:int,_offset:bigint,_timestamp:timestamp>"
    )
    rows = frame.orderBy("_offset").collect()
    assert [(row.id, row.price, row._corrupt) for row in rows] == [
        (1, 2.5, None),
        (2, None, None),
        (None, None, "no json"),
        (None, None, None),
    ]
    stream = from_topic(spark, name, "id long", redis_url=broker.redis_url, stream=True, startingOffsets="earliest")
    assert stream.isStreaming
    query = stream.writeStream.format("memory").queryName("typed").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
    assert {row.id for row in spark.table("typed").collect()} == {1, 2, None}


def test_without_json_there_is_no_schema(spark: SparkSession, broker: KetchServer, make_topic: MakeTopic) -> None:
    name = make_topic(1)
    with pytest.raises(ConfigError, match="valueType=BYTES"):
        from_topic(spark, name, redis_url=broker.redis_url)
    with pytest.raises(UnknownTopicOrPartition, match="Unknown topic nowhere"):
        from_topic(spark, "nowhere", redis_url=broker.redis_url)


def test_a_schema_is_inferred_from_the_records_that_are_read(
    spark: SparkSession, broker: KetchServer, make_topic: MakeTopic
) -> None:
    name = make_topic(1, valueType="JSON")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(name, VALUES[0])
    assert producer.flush(10) == 0
    given = {"isolation.level": "read_uncommitted"}
    assert [row.id for row in from_topic(spark, name, redis_url=broker.redis_url, **given).collect()] == [1]
    producer.abort_transaction(10)
