"""What streaming queries that read leave in Redis: how far they have read; and that they read on where they may not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

from ketch.redis.blocking import Connection
from ketch.redis.server import Server
from ketch.store.keys import Keyspace
from ketch.store.rights import SPARK
from ketch.views import spark as queries
from tests.spark.conftest import MakeTopic
from tests.spark.test_batch import Read, produce, read
from tests.spark.test_stream import Stream, drain, numbers, stream
from tests.support.ketch import KetchServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["read", "stream"]  # fixtures
KEYS = Keyspace("korvet")


@pytest.fixture
def looker(broker: KetchServer) -> Iterator[Connection]:
    """The console's way to Redis."""
    connection = Connection(Server(broker.redis_url, timeout=20))
    yield connection
    connection.close()


def test_how_far_a_query_has_read(
    broker: KetchServer, make_topic: MakeTopic, stream: Stream, looker: Connection, tmp_path: Path
) -> None:
    name = make_topic(3, **{"offset.ids": "dense"})
    produce(broker, name, 30, 0)
    produce(broker, name, 20, 1)
    query = drain(stream(name, minPartitions=8), tmp_path)  # several tasks for each partition
    (found,) = looker.ask(queries.queries(KEYS, [name])).reading
    assert (found.id, found.topic, found.partitions, found.of) == (query.id, name, 2, 3)
    assert (found.batch, found.lag, found.exact) == (query.lastProgress["batchId"], 0, True)
    produce(broker, name, 7, 1, start=20)
    read = looker.ask(queries.reading(KEYS, query.id, name))
    assert [(each.index, each.through, each.end, each.lag) for each in read] == [(0, 30, 30, 0), (1, 20, 27, 7)]
    drain(stream(name), tmp_path)  # the same query, by its checkpoint
    (again,) = looker.ask(queries.queries(KEYS, [name])).reading
    assert (again.id, again.lag, again.batch > found.batch) == (found.id, 0, True)


def test_a_batch_read_leaves_nothing(
    broker: KetchServer, make_topic: MakeTopic, read: Read, store: redis.Redis
) -> None:
    name = make_topic()
    produce(broker, name, 5)
    assert read(name).count() == 5
    assert not store.exists(f"korvet:producers:{{korvet:stream:{name}:0}}")


def test_a_topic_that_is_gone_gets_no_key(
    broker: KetchServer, make_topic: MakeTopic, looker: Connection, store: redis.Redis
) -> None:
    from ketch.store.append import producers

    name = make_topic()
    stream = KEYS.stream(name, 0)
    assert not looker.ask(producers.note_reader(stream, KEYS.producers(stream), "q", 1, 2, 3))
    assert not store.exists(KEYS.producers(stream))


def test_a_user_that_may_not_reads_all_the_same(
    spark: SparkSession, broker: KetchServer, make_topic: MakeTopic, stream: Stream, store: redis.Redis, tmp_path: Path
) -> None:
    """Of the role spark without the key that it would write; Redis says so once, not for each task."""
    name = make_topic(1)
    produce(broker, name, 50)
    rules = [rule for rule in SPARK.rules(KEYS) if ":producers:" not in rule]
    store.execute_command("ACL", "SETUSER", "readonly", "reset", "on", ">secret", "resetchannels", *rules)
    try:
        url = broker.redis_url.rpartition("@")[2].removeprefix("redis://")
        query = drain(stream(name, **{"redis.url": f"redis://readonly:secret@{url}"}, minPartitions=4), tmp_path)
        assert numbers(spark, tmp_path) == list(range(50))
        assert query.exception() is None
        assert not store.exists(f"korvet:producers:{{korvet:stream:{name}:0}}")
        offset = json.loads(query.lastProgress["sources"][0]["endOffset"])
        assert set(offset) == {name}
    finally:
        store.execute_command("ACL", "DELUSER", "readonly")
