"""Spark's source and the archive over transactions (KIP-98), against a slow obvious model; no JVM is needed for it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

pytest.importorskip("pyiceberg", reason="the extra spark is not installed")
pytest.importorskip("pyspark", reason="the extra spark is not installed")

import redis

from ketch.archive import here
from ketch.archive.options import Job
from ketch.archive.plan import ArchivePlanner
from ketch.archive.status import progress
from ketch.errors import ConfigError
from ketch.redis.blocking import Server, ask, connected
from ketch.spark.options import read_options
from ketch.spark.plan import ReadPlanner
from ketch.spark.rows import read as read_rows
from tests.broker.protocol.test_read_committed import step
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually
from tests.support.transactions import Written, read

pytestmark = pytest.mark.storage("record", "batch-dense")


@pytest.fixture
def written(broker: KetchServer, topic: str, storage: str) -> Iterator[Written]:
    with Kafka(broker.port) as client, redis.Redis(port=broker.redis_port) as connection:
        client.create(topic, retention_ms=-1)
        yield Written(connection, topic, storage)


def rows(broker: KetchServer, topic: str, **options: str) -> list[tuple[int, bytes | None]]:
    """Offset and value of each row that a batch read gives, task after task."""
    given = read_options({"redis.url": broker.redis_url, "subscribe": topic, **options}, streaming=False)
    planner = ReadPlanner(given)
    with connected(given.server) as connection:
        view = planner.view(connection)
        start, end = planner.start(connection, view), planner.end(connection, view)
        ranges = planner.ranges(connection, view, start, end, again=False)
    found = [batch for each in ranges for batch in read_rows(given.server, each, True, False)]
    return [(row["offset"], row["value"]) for batch in found for row in batch.select(["offset", "value"]).to_pylist()]


@pytest.mark.parametrize("seed", range(2))
def test_the_source(broker: KetchServer, topic: str, written: Written, seed: int) -> None:
    chance = random.Random(seed)
    for n in range(60):
        step(written, chance)
        if n % 12 == 11:
            assert rows(broker, topic) == written.committed()
            assert rows(broker, topic, **{"isolation.level": "read_uncommitted"}) == written.all()
            cut = {"minPartitions": "4", "maxRecordsPerPartition": "3"}
            assert rows(broker, topic, **cut) == written.committed()


def test_an_open_transaction_ends_a_read(broker: KetchServer, topic: str, written: Written) -> None:
    written.append([b"a"])
    written.append([b"b"], 1)
    written.append([b"c"])
    assert [value for _, value in rows(broker, topic)] == [b"a"]
    written.finish(1, commit=True)
    assert [value for _, value in rows(broker, topic)] == [b"a", b"b", b"c"]


def test_an_unknown_level() -> None:
    with pytest.raises(ConfigError, match=r"isolation\.level is one of read_committed, read_uncommitted"):
        read_options({"redis.url": "redis://localhost", "subscribe": "t", "isolation.level": "committed"}, False)


@pytest.mark.parametrize("seed", range(2))
def test_the_archive(broker: KetchServer, topic: str, written: Written, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    job = Job(Server(broker.redis_url), "korvet", f"isolation-{topic}", str(tmp_path), (topic,))
    written.append([b"first"])
    with Kafka(broker.port) as client, redis.Redis(port=broker.redis_port) as connection:
        begin = client.list_offsets(topic, -2).offset
        for _ in range(3):
            for _ in range(15):
                step(written, chance)
            planner = ArchivePlanner(job)
            target = ask(job.server, planner.now)
            here.archive(job, planner, target, Event(), lambda: None)
            (state,) = progress(job)
            assert (state.through, state.end) == (written.last_stable, written.last_stable)
            expected = [each for each in written.committed() if each[0] < written.last_stable]
            assert rows(broker, topic, tier="archive") == expected
            assert state.topic_records == len(expected)
            # What is archived leaves Redis: Kafka's consumers find it in the table, and the rest where it was.
            through = written.last_stable
            # The broker knows it.
            eventually(lambda end=through: client.list_offsets(topic, -5).offset == end - 1)  # type: ignore[misc]
            connection.xtrim(written.stream, minid=written.id_of(written.last_stable), approximate=False)
            assert read(client, topic, begin)[0] == written.committed()
            rest = [each for each in written.all() if each[0] >= through]
            assert read(client, topic, begin, committed=False)[0] == [*expected, *rest]
            assert rows(broker, topic) == written.committed()
