"""Streaming reads and writes, as a Spark user has them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from confluent_kafka.admin import AdminClient

from tests.spark.conftest import MakeTopic, create
from tests.spark.test_batch import error_of, produce
from tests.support.ketch import KetchServer, eventually
from tests.support.long import rest_long

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.streaming import StreamingQuery

Stream = Callable[..., "DataFrame"]


@pytest.fixture
def stream(spark: SparkSession, broker: KetchServer) -> Stream:
    """`stream(topic, **options)` from the earliest offset on."""

    def load(topic: str | None = None, **options: Any) -> DataFrame:
        given = {"redis.url": broker.redis_url, "startingOffsets": "earliest", **options}
        if topic:
            given["subscribe"] = topic
        return spark.readStream.format("ketch").options(**{name: str(value) for name, value in given.items()}).load()

    return load


def drain(frame: DataFrame, directory: Path, **target: str) -> StreamingQuery:
    """Runs a stream once over all there is, into Parquet files or another topic."""
    writer = frame.writeStream.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True)
    if target:
        query = writer.format("ketch").options(**target).start()
    else:
        query = writer.format("parquet").start(str(directory / "out"))
    query.awaitTermination()
    return query


def numbers(spark: SparkSession, directory: Path) -> list[int]:
    out = spark.read.parquet(str(directory / "out")).selectExpr("substring(string(value), 2) n").collect()
    return sorted(int(row.n) for row in out)


@contextlib.contextmanager
def running(frame: DataFrame, directory: Path) -> Iterator[StreamingQuery]:
    writer = frame.writeStream.option("checkpointLocation", str(directory / "checkpoint")).format("parquet")
    query = writer.start(str(directory / "out"))
    try:
        yield query
    finally:
        query.stop()


def rows_read(query: StreamingQuery) -> int:
    error = query.exception()
    assert error is None, error
    return sum(progress["numInputRows"] for progress in query.recentProgress)


@pytest.mark.parametrize(("ids", "layout"), rest_long([("time", "record"), ("dense", "batch")], [("time", "record")]))
def test_max_offsets_per_trigger_counts_records(
    spark: SparkSession,
    broker: KetchServer,
    make_topic: MakeTopic,
    stream: Stream,
    tmp_path: Path,
    ids: str,
    layout: str,
) -> None:
    name = make_topic(2, **{"offset.ids": ids, "storage.layout": layout})
    produce(broker, name, 700, 0)
    produce(broker, name, 300, 1, start=700)
    query = drain(stream(name, maxOffsetsPerTrigger=400), tmp_path)
    sizes = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert sum(sizes) == 1000
    assert len(sizes) >= 3
    assert max(sizes) <= 402
    assert numbers(spark, tmp_path) == list(range(1000))
    offset = json.loads(query.lastProgress["sources"][0]["endOffset"])
    assert set(offset[name]) == {"0", "1"}
    produce(broker, name, 50, 1, start=1000)
    drain(stream(name), tmp_path)
    assert numbers(spark, tmp_path) == list(range(1050))


def test_what_comes_and_goes_while_it_runs(
    spark: SparkSession,
    broker: KetchServer,
    store: redis.Redis,
    topic: str,
    stream: Stream,
    tmp_path: Path,
) -> None:
    first = create(broker, f"{topic}-1", 1, {})
    produce(broker, first, 10)
    with running(stream(subscribePattern=f"{topic}-.*", failOnDataLoss="false"), tmp_path) as query:
        eventually(lambda: rows_read(query) == 10, 60)
        second = create(broker, f"{topic}-2", 2, {})
        produce(broker, second, 10, 1, start=10)
        eventually(lambda: rows_read(query) == 20, 60)
        # What was read may be trimmed: nothing is lost then.
        store.xtrim(f"korvet:stream:{second}:1", maxlen=0, approximate=False)
        produce(broker, second, 10, 1, start=20)
        eventually(lambda: rows_read(query) == 30, 60)
        store.srem("korvet:topics", second)
        produce(broker, first, 10, start=30)
        eventually(lambda: rows_read(query) == 40, 60)
    assert numbers(spark, tmp_path) == list(range(40))


@pytest.mark.parametrize("end_first", [False, True])  # PySpark before 4.2 asks for the end first
def test_a_stream_from_latest_starts_while_records_come(
    spark: SparkSession, broker: KetchServer, make_topic: MakeTopic, end_first: bool
) -> None:
    from ketch.spark.source import KetchDataSource

    name = make_topic(1)

    def reader() -> DataSourceStreamReader:
        given = {"redis.url": broker.redis_url, "subscribe": name, "startingOffsets": "latest"}
        return KetchDataSource(given).streamReader(KetchDataSource(given).schema())

    first = reader()
    begin = None if end_first else first.initialOffset()
    produce(broker, name, 10)
    end = first.latestOffset(begin, first.getDefaultReadLimit())
    produce(broker, name, 10)
    again = first.initialOffset()
    assert again == (end if end_first else begin)
    assert len(first.partitions(again, end)) == (0 if end_first else 1)
    # A run that ended before its first micro-batch did has left the end of it alone.
    second = reader()
    assert not second.partitions(second.initialOffset(), end)
    assert len(second.partitions(end, second.latestOffset(end, second.getDefaultReadLimit()))) == 1


@pytest.mark.parametrize("ids", ["time", "dense"])
def test_a_replayed_micro_batch_has_the_same_tasks(
    broker: KetchServer, store: redis.Redis, make_topic: MakeTopic, ids: str
) -> None:
    from ketch.spark.source import KetchDataSource

    name = make_topic(2, **{"offset.ids": ids})
    given = {"redis.url": broker.redis_url, "subscribe": name, "startingOffsets": "earliest", "minPartitions": "4"}
    reader = KetchDataSource(given | {"failOnDataLoss": "false"}).streamReader(KetchDataSource(given).schema())
    produce(broker, name, 100, 0)
    produce(broker, name, 100, 1)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())

    def tasks() -> list[tuple[int, int, int]]:
        ranges = [task.range for task in reader.partitions(begin, end)]
        return [(range_.index, range_.span.start, range_.span.end) for range_ in ranges]

    planned = tasks()
    assert len(planned) == 4
    for left in (10, 0):  # as compaction may leave it, too
        store.xtrim(f"korvet:stream:{name}:0", maxlen=left, approximate=False)
        assert tasks() == planned


@pytest.mark.parametrize("ids", ["time", "dense"])
def test_a_topic_that_was_made_anew_is_told(broker: KetchServer, make_topic: MakeTopic, ids: str) -> None:
    from ketch.spark.reader import DataLoss
    from ketch.spark.source import KetchDataSource

    name = make_topic(1, **{"offset.ids": ids})
    given = {"redis.url": broker.redis_url, "subscribe": name, "startingOffsets": "earliest"}
    reader = KetchDataSource(given).streamReader(KetchDataSource(given).schema())
    produce(broker, name, 10)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    assert len(reader.partitions(begin, end)) == 1
    produce(broker, name, 5)  # nobody reads them
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([name])[name].result(10)
    make_topic(1, **{"offset.ids": ids})
    produce(broker, name, 20)
    later = reader.latestOffset(end, reader.getDefaultReadLimit())
    with pytest.raises(DataLoss, match="was deleted and created again"):
        reader.partitions(end, later)


@pytest.mark.only_storage("record", "record-dense")
def test_loss_is_told(
    broker: KetchServer, store: redis.Redis, make_topic: MakeTopic, stream: Stream, tmp_path: Path
) -> None:
    name = make_topic(1)
    produce(broker, name, 10)
    drain(stream(name), tmp_path)
    produce(broker, name, 10)
    store.xtrim(f"korvet:stream:{name}:0", maxlen=5, approximate=False)
    assert "were deleted" in error_of(lambda: drain(stream(name), tmp_path))
    query = drain(stream(name, failOnDataLoss="false"), tmp_path)
    assert rows_read(query) == 5


@pytest.mark.long(minutes=0.5)
def test_a_replayed_micro_batch_is_written_once(
    spark: SparkSession, broker: KetchServer, make_topic: MakeTopic, topic: str, stream: Stream, tmp_path: Path
) -> None:
    source, target = make_topic(2, f"{topic}-in"), make_topic(3, f"{topic}-out")
    produce(broker, source, 3_000, 0)
    produce(broker, source, 2_000, 1, start=3_000)
    options = {"redis.url": broker.redis_url, "topic": target}
    frame = stream(source, maxOffsetsPerTrigger=2_000, minPartitions=3).select("key", "value")
    drain(frame, tmp_path, **options)
    for _ in range(2):  # as if Spark had died behind the write and before its commit
        commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        commits[-1].unlink()
        (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
        produce(broker, source, 100, 0, start=5_000)
        drain(frame, tmp_path, **options)
    read = spark.read.format("ketch").option("redis.url", broker.redis_url).option("subscribe", target).load()
    values = [row[0] for row in read.selectExpr("string(value)").collect()]
    assert len(values) == 5_200
    assert len(set(values)) == 5_100
