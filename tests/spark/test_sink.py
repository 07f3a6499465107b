"""What a task writes, without a JVM around it."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import redis
from confluent_kafka import Consumer, TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_murmur2

from ketch.errors import (
    ConfigError,
    InvalidRecord,
    InvalidTimestamp,
    RecordTooLarge,
    StorageUnavailable,
    UnknownTopicOrPartition,
)
from tests.spark.conftest import MakeTopic
from tests.support.ketch import KetchServer, eventually
from tests.support.redis_servers import RedisServer, binaries

pa = pytest.importorskip("pyarrow", reason="the extra spark is not installed")
pytest.importorskip("pyspark", reason="the extra spark is not installed")

from ketch.records.arrow import to_arrow  # noqa: E402
from ketch.redis.blocking import Server, ask  # noqa: E402
from ketch.redis.question import call  # noqa: E402
from ketch.spark.appender import Writer  # noqa: E402
from ketch.spark.options import Topics, WriteOptions  # noqa: E402
from ketch.spark.partitioner import murmur2, partitions  # noqa: E402
from ketch.spark.reader import read_batches  # noqa: E402
from ketch.spark.task import SinkTask  # noqa: E402
from ketch.spark.topics import look  # noqa: E402
from ketch.store.keys import Keyspace  # noqa: E402

Write = Callable[..., None]


@pytest.fixture
def write(broker: KetchServer) -> Write:
    """`write(topic, batches, epoch=0, task=0)`: as a task of a streaming query does."""

    def run(topic: str | None, batches: Iterable[Any], epoch: int = 0, task: int = 0) -> None:
        options = WriteOptions(Server(broker.redis_url), "korvet", topic)
        SinkTask(options, Writer(f"spark-query-{task}", epoch), task + epoch).write(iter(batches), forget=False)

    return run


def rows(values: Iterable[str | None], **columns: Any) -> Any:
    return pa.RecordBatch.from_pydict({"value": pa.array(list(values), pa.string()), **columns})


def consumed(broker: KetchServer, topic: str, partition: int = 0) -> list[Any]:
    """What a Kafka consumer reads of one partition from its start to its end."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.partition.eof": True})
    place = TopicPartition(topic, partition)
    low, high = consumer.get_watermark_offsets(place)
    consumer.assign([TopicPartition(topic, partition, low)])
    messages: list[Any] = []
    while consumer.position([place])[0].offset < high and low < high:
        messages += [message for message in consumer.consume(1000, 0.1) if not message.error()]
    consumer.close()
    return messages


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=40), max_size=50), st.integers(1, 12))
def test_partitions_are_those_of_kafka(keys: list[bytes | None], count: int) -> None:
    column = pa.array([b"cut off", *keys], pa.binary())[1:]
    expected = [5 % count if key is None else (kafka_murmur2(key) & 0x7FFFFFFF) % count for key in keys]
    assert partitions(column, count, 5 % count).tolist() == expected
    assert murmur2(column).tolist() == [kafka_murmur2(key or b"") & 0xFFFFFFFF for key in keys]


@pytest.mark.parametrize("ids", ["time", "dense"])
@pytest.mark.parametrize("layout", ["record", "batch"])
def test_all_columns_arrive(broker: KetchServer, make_topic: MakeTopic, write: Write, ids: str, layout: str) -> None:
    name = make_topic(1, **{"offset.ids": ids, "storage.layout": layout})
    headers = [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, []]
    batch = rows(
        ["x", None, ""],
        key=pa.array([None, b"", b"\xff"], pa.binary()),
        headers=pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        timestamp=pa.array([1_700_000_000_123_456, -1, None], pa.timestamp("us", tz="UTC")),
        ignored=pa.array([1, 2, 3]),
    )
    write(name, [batch])
    messages = consumed(broker, name)
    assert [(m.key(), m.value(), m.headers()) for m in messages] == [
        (None, b"x", [("a", b"1"), ("a", None)]),
        (b"", None, None),
        (b"\xff", b"", None),
    ]
    times = [m.timestamp()[1] for m in messages]
    now = datetime.datetime.now(datetime.UTC).timestamp() * 1000
    assert times[:2] == [1_700_000_000_123, -1]
    assert abs(times[2] - now) < 60_000
    if ids == "dense":
        assert [m.offset() for m in messages] == [0, 1, 2]


def test_rows_find_their_partition(broker: KetchServer, make_topic: MakeTopic, write: Write) -> None:
    name = make_topic(4)
    keys = [f"k{n}".encode() for n in range(100)]
    columns = {"key": pa.array(keys, pa.binary()), "partition": pa.array([3, *[None] * 99], pa.int32())}
    write(name, [rows([str(n) for n in range(100)], **columns)])
    for partition in range(4):
        expected = [
            str(n).encode()
            for n, key in enumerate(keys)
            if (3 if n == 0 else (kafka_murmur2(key) & 0x7FFFFFFF) % 4) == partition
        ]
        assert [m.value() for m in consumed(broker, name, partition)] == expected


def test_rows_name_their_topic(broker: KetchServer, make_topic: MakeTopic, topic: str, write: Write) -> None:
    one, two = make_topic(1, f"{topic}-a"), make_topic(1, f"{topic}-b")
    write(None, [rows(["1", "2", "3"], topic=pa.array([one, two, one]))])
    assert [m.value() for m in consumed(broker, one)] == [b"1", b"3"]
    assert [m.value() for m in consumed(broker, two)] == [b"2"]
    with pytest.raises(InvalidRecord, match="no topic"):
        write(None, [rows(["1"], topic=pa.array([None], pa.string()))])
    with pytest.raises(UnknownTopicOrPartition, match="Unknown topic nowhere"):
        write(None, [rows(["1"], topic=pa.array(["nowhere"]))])
    with pytest.raises(UnknownTopicOrPartition, match="no 1"):
        write(one, [rows(["1"], partition=pa.array([1], pa.int32()))])


def test_a_task_that_runs_again_writes_what_is_missing(
    broker: KetchServer, make_topic: MakeTopic, write: Write
) -> None:
    name = make_topic(1)
    values = [str(n) for n in range(25_000)]
    batches = [rows(values[n : n + 5_000]) for n in range(0, 25_000, 5_000)]
    write(name, batches[:3], epoch=7)  # and dies
    write(name, [rows(values[:12_345]), rows(values[12_345:])], epoch=7)
    write(name, batches, epoch=7)
    write(name, batches[:2], epoch=6)  # a ghost
    assert [m.value().decode() for m in consumed(broker, name)] == values
    write(name, [rows(["next"])], epoch=9)  # the next micro-batch with rows for this task
    assert len(consumed(broker, name)) == 25_001


def test_two_attempts_at_once_write_once(broker: KetchServer, make_topic: MakeTopic, write: Write) -> None:
    name = make_topic(1)
    values = [str(n) for n in range(20_000)]
    batches = [rows(values[n : n + 500]) for n in range(0, 20_000, 500)]
    threads = [threading.Thread(target=write, args=(name, batches, 1)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [m.value().decode() for m in consumed(broker, name)] == values


def test_other_writers_come_in_between(
    broker: KetchServer, store: redis.Redis, make_topic: MakeTopic, write: Write
) -> None:
    name = make_topic(1)
    stop = threading.Event()

    def interfere() -> None:
        while not stop.is_set():
            store.xadd(f"korvet:stream:{name}:0", {"value": "foreign"})

    def several(task: int) -> None:
        write(
            name, [rows([f"{task}-{n}" for n in range(start, start + 300)]) for start in range(0, 3_000, 300)], 0, task
        )

    threads = [threading.Thread(target=several, args=(task,)) for task in range(3)]
    foreign = threading.Thread(target=interfere)
    for thread in (foreign, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    foreign.join()
    values = [m.value().decode() for m in consumed(broker, name)]
    for task in range(3):
        assert [v for v in values if v.startswith(f"{task}-")] == [f"{task}-{n}" for n in range(3_000)]


def test_redis_goes_away_and_comes_back(tmp_path: Any) -> None:
    found = binaries()
    if "redis-server" not in found:
        pytest.skip("no redis-server")
    server = RedisServer(found["redis-server"], tmp_path, "--appendfsync", "always")
    client = server.client()
    client.sadd("korvet:topics", "t")
    client.hset("korvet:topic:t", mapping={"id": "9b1c94c4-9911-4600-a462-b25d53859405", "partitions": 2})

    def batches() -> Iterator[Any]:
        for start in range(0, 20_000, 1_000):
            if start in (5_000, 12_000):
                server.kill()
                server.start()
            yield rows(
                [str(n) for n in range(start, start + 1_000)], key=pa.array([f"{n}".encode() for n in range(1_000)])
            )

    SinkTask(WriteOptions(Server(server.url), "korvet", "t"), Writer("spark-q-0", 0), 0).write(batches(), forget=False)
    written = [fields[b"value"] for p in (0, 1) for _, fields in client.xrange(f"korvet:stream:t:{p}")]
    assert sorted(map(int, written)) == list(range(20_000))
    assert sorted(read_while_it_goes(server)) == sorted(written)
    server.stop()
    with pytest.raises(StorageUnavailable, match=r"cannot be used: Connection refused \(tried for 1 s\)\."):
        ask(Server(server.url, patience=1), lambda connection: connection.ask(call(None, "PING")))


def test_what_redis_has_lost_is_told(broker: KetchServer, store: redis.Redis, make_topic: MakeTopic) -> None:
    name = make_topic(2)
    options = WriteOptions(Server(broker.redis_url), "korvet", name)

    def batches() -> Iterator[Any]:
        for n, partition in enumerate([0, 0, 1, 1, 1, 1, 0]):
            yield rows([str(n)], partition=pa.array([partition], pa.int32()))
            if n == 2:  # as if Redis had started again without the last second
                stream = f"korvet:stream:{name}:0"
                assert store.delete(stream, f"korvet:producers:{{{stream}}}") == 2
                for client in store.client_list():
                    if client["name"] == "ketch-spark":
                        store.client_kill_filter(_id=client["id"])

    with pytest.raises(StorageUnavailable, match="has lost records"):
        SinkTask(options, Writer("spark-q-0", 0), 0).write(batches(), forget=False)


def read_while_it_goes(server: RedisServer) -> Iterator[bytes]:
    """The values of both partitions; Redis dies behind the first batch of each, and comes back in its own time."""
    known = Server(server.url)
    found = ask(known, lambda connection: look(connection, Keyspace("korvet"), Topics(names=("t",)), True))
    for partition in found.values():
        coming: threading.Thread | None = None
        for batches in read_batches(known, partition.span(partition.start, partition.end)):
            if coming is None:
                server.kill()
                coming = threading.Thread(target=server.start)
                coming.start()
            yield from to_arrow(batches).column("value").to_pylist()
        assert coming is not None
        coming.join()


def test_topic_configs_are_kept(
    broker: KetchServer, store: redis.Redis, make_topic: MakeTopic, topic: str, write: Write
) -> None:
    small = make_topic(1, f"{topic}-small", **{"max.message.bytes": "1000"})
    write(small, [rows(["x" * 300] * 20)])
    assert len(consumed(broker, small)) == 20
    with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes=1000"):
        write(small, [rows(["x" * 1000])], epoch=1)
    stamped = make_topic(1, f"{topic}-stamped", **{"message.timestamp.type": "LogAppendTime"})
    write(stamped, [rows(["x"], timestamp=pa.array([0], pa.timestamp("us", tz="UTC")))])
    assert consumed(broker, stamped)[0].timestamp()[1] > 1_700_000_000_000
    strict = make_topic(1, f"{topic}-strict", **{"message.timestamp.after.max.ms": "1000"})
    future = pa.array([4_000_000_000_000_000], pa.timestamp("us", tz="UTC"))
    with pytest.raises(InvalidTimestamp):
        write(strict, [rows(["x"], timestamp=future)])
    plain = make_topic(1, f"{topic}-plain")
    write(plain, [rows(["x" * 5000], timestamp=future)])
    noted = store.hgetall(f"korvet:topic:{plain}")
    assert int(noted[b"timestampLead"]) > 10**11
    assert int(noted[b"largestRecord"]) == 8192


def test_a_parked_consumer_wakes_up(broker: KetchServer, make_topic: MakeTopic, write: Write) -> None:
    name = make_topic(1)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "fetch.wait.max.ms": 30_000})
    consumer.assign([TopicPartition(name, 0, 0)])
    consumer.poll(0.5)
    write(name, [rows(["wake"])])
    message = eventually(lambda: consumer.poll(0.1), 10.0)
    assert message.value() == b"wake"
    consumer.close()


def test_a_connection_that_was_lost_meanwhile_is_no_error(
    broker: KetchServer, store: redis.Redis, make_topic: MakeTopic
) -> None:
    from ketch.spark.sink import check_topic

    options = WriteOptions(Server(broker.redis_url), "korvet", make_topic(1))
    for _ in range(2):
        check_topic(options)
        for client in store.client_list():
            if client["name"] == "ketch-spark":
                store.client_kill_filter(_id=client["id"])


def test_columns_are_checked(broker: KetchServer) -> None:
    from pyspark.sql.types import ArrayType, DataType, IntegerType, StringType, StructType

    from ketch.spark.sink import check, check_topic

    options = WriteOptions(Server(broker.redis_url), "korvet", None)
    with pytest.raises(ConfigError, match="needs the column value; it has key"):
        check(options, StructType().add("key", "string"))
    with pytest.raises(ConfigError, match="Give the topic"):
        check(options, StructType().add("value", "string"))
    with pytest.raises(ConfigError, match="column value should be binary or string, it is int"):
        check(options, StructType().add("value", IntegerType()).add("topic", "string"))

    def with_headers(header: DataType) -> StructType:
        return StructType().add("value", "string").add("topic", "string").add("headers", ArrayType(header))

    for wrong in (StructType().add("key", "string").add("val", "binary"), StringType()):
        with pytest.raises(ConfigError, match="headers should be array<struct<key:string,value:binary>>, it is array<"):
            check(options, with_headers(wrong))
    check(options, with_headers(StructType().add("value", "string").add("key", "string")))
    with pytest.raises(UnknownTopicOrPartition, match="Unknown topic nowhere"):
        check_topic(WriteOptions(Server(broker.redis_url), "korvet", "nowhere"))
