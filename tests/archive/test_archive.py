"""The archive job: every record once, whatever becomes of checkpoint, table and topic.

What Spark only passes through is tried without it, by `Archive.step`: a start of the stream takes some seconds.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

import redis
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from ketch.archive import plan as planning
from ketch.archive.batch import commit, write
from ketch.archive.options import Job, Plan
from ketch.archive.plan import ArchivePlanner
from ketch.archive.spark_session import sentence, start
from ketch.archive.status import status
from ketch.archive.tables import announce
from ketch.archive.tidy import tidy
from ketch.cli.commands.archive import app
from ketch.errors import ConfigError
from ketch.lake.catalog import open_catalog
from ketch.lake.schema import from_lake
from ketch.lake.table import ArchiveTable
from ketch.redis.blocking import Server, connected
from ketch.store.keys import Keyspace
from ketch.views.archives import NOT_ITS_TABLE
from tests.spark.conftest import MakeTopic
from tests.support.ketch import KetchServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Archive:
    """Archives one topic of a broker into a catalog of its own."""

    def __init__(self, broker: KetchServer, topic: str, directory: Path) -> None:
        self.broker, self.topic = broker, topic
        self.checkpoint = directory / "checkpoint"
        self.job = Job(Server(broker.redis_url), "korvet", "test-of-ketch", str(directory), (topic,), 2)
        self.catalog = open_catalog(self.job.catalog, directory)

    def run(self, spark: SparkSession) -> None:
        """As `ketch archive run --once`."""
        start(spark, Plan(self.job, True, 0, "local[2]"), self.checkpoint).awaitTermination()

    def step(self, planner: ArchivePlanner | None = None) -> list[int]:
        """One batch; the numbers of records in its files."""
        planner = planner or ArchivePlanner(self.job)
        with connected(self.job.server) as connection:
            splits = planner.splits(connection, planner.ends(connection, None))
        parts = [write(self.job.server, split) for split in splits]
        ranges = [written for _, written in parts]
        assert [part.start for part in ranges[1:]] == [part.end for part in ranges[:-1]]
        commit(self.job, parts)
        return [sum(file.record_count for file in part.files) for part in ranges]

    @property
    def table(self) -> ArchiveTable:
        found = ArchiveTable.find(self.catalog, self.topic)
        assert found is not None
        return found

    def records(self) -> list[dict[str, Any]]:
        """All of them, by offset, as the broker would serve them."""
        rows = self.table.table.scan().to_arrow().sort_by("offset").combine_chunks().to_batches()
        return [record for batch in rows for record in from_lake(batch).to_pylist()]

    def announced(self) -> dict[bytes, bytes]:
        with self.broker.redis() as client:
            return dict(client.hgetall(f"korvet:archive:{self.topic}"))


@pytest.fixture
def archive(broker: KetchServer, topic: str, tmp_path: Path) -> Iterator[Archive]:
    made = Archive(broker, topic, tmp_path)
    yield made
    made.catalog.engine.dispose()  # type: ignore[attr-defined]


def produce(broker: KetchServer, topic: str, numbers: range, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50})
    for n in numbers:
        key = None if n % 3 == 0 else b"k%d" % n
        value = None if n % 5 == 0 else b"v%d" % n
        headers: list[tuple[str, Any]] = [("h", b"%d" % n), ("h", None)] if n % 2 else []
        producer.produce(topic, value, key, partition, timestamp=1_700_000_000_000 + n, headers=headers)
    assert producer.flush(10) == 0


def expected(numbers: range) -> list[tuple[Any, ...]]:
    return [
        (
            1_700_000_000_000 + n,
            None if n % 3 == 0 else b"k%d" % n,
            None if n % 5 == 0 else b"v%d" % n,
            [(b"h", b"%d" % n), (b"h", None)] if n % 2 else [],
        )
        for n in numbers
    ]


def plain(records: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (r["timestamp"], r["key"], r["value"], [(header["key"], header["value"]) for header in r["headers"]])
        for r in records
    ]


def test_every_record_once_and_as_it_was(archive: Archive, make_topic: MakeTopic, spark: SparkSession) -> None:
    make_topic(2)
    produce(archive.broker, archive.topic, range(500))
    produce(archive.broker, archive.topic, range(500, 600), partition=1)
    archive.run(spark)
    assert sorted(plain(archive.records()), key=lambda record: record[0]) == expected(range(600))
    found = {part.partition: part for part in status(archive.job)}
    assert [(found[n].records, found[n].lag, found[n].through) for n in (0, 1)] == [
        (500, 0, found[0].end),
        (100, 0, found[1].end),
    ]
    table, hash_ = archive.table, archive.announced()
    assert hash_[b"metadata"].decode() == table.metadata_location
    assert hash_[b"table"].decode() == f"ketch.{archive.topic}"
    assert {n: (int(hash_[b"start:%d" % n]), int(hash_[b"through:%d" % n])) for n in (0, 1)} == table.progress()


@pytest.mark.long(minutes=1)
def test_it_goes_on_where_it_was_whatever_became_of_the_checkpoint(
    archive: Archive, make_topic: MakeTopic, spark: SparkSession
) -> None:
    make_topic(1, **{"offset.ids": "dense", "storage.layout": "batch"})
    produce(archive.broker, archive.topic, range(100))
    archive.run(spark)
    location = archive.table.metadata_location
    # Killed between the table's commit and the checkpoint's: the batch is repeated.
    last = max((archive.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink()
    archive.run(spark)
    assert archive.table.metadata_location == location
    produce(archive.broker, archive.topic, range(100, 150))
    shutil.rmtree(archive.checkpoint)
    archive.run(spark)
    assert plain(archive.records()) == expected(range(150))
    assert [record["offset"] for record in archive.records()] == list(range(150))


@pytest.mark.parametrize("layout", ["record", "batch"])
@pytest.mark.parametrize("ids", ["time", "dense"])
def test_a_large_backlog_is_several_batches_of_several_files(
    archive: Archive, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch, ids: str, layout: str
) -> None:
    make_topic(1, **{"offset.ids": ids, "storage.layout": layout})
    produce(archive.broker, archive.topic, range(2000))
    monkeypatch.setattr(planning, "BATCH_RECORDS", 500)
    monkeypatch.setattr(planning, "SPLIT_RECORDS", 250)
    planner = ArchivePlanner(archive.job)
    sizes = list(iter(lambda: archive.step(planner), []))
    assert sum(map(sum, sizes)) == 2000
    assert len(sizes) >= 3
    assert max(map(len, sizes)) >= 2
    assert plain(archive.records()) == expected(range(2000))
    assert [part.lag for part in status(archive.job)] == [0]


def test_a_table_that_was_dropped_begins_anew(archive: Archive, make_topic: MakeTopic) -> None:
    make_topic(1)
    produce(archive.broker, archive.topic, range(10))
    planner = ArchivePlanner(archive.job)
    archive.step(planner)
    given = ["drop", archive.topic, "--redis", archive.broker.redis_url, "--catalog", archive.job.catalog]
    given += ["--data-dir", archive.job.data_dir]
    refused = CliRunner().invoke(app, given).exception
    assert isinstance(refused, ConfigError)
    assert "--yes" in str(refused)
    assert archive.table.records == 10
    assert CliRunner().invoke(app, [*given, "-y"]).stdout == f"Table ketch.{archive.topic} was removed.\n"
    assert archive.announced() == {}
    archive.step(planner)
    assert plain(archive.records()) == expected(range(10))


@pytest.mark.only_storage("record", "record-dense")
def test_records_that_were_gone_before(archive: Archive, make_topic: MakeTopic, store: redis.Redis) -> None:
    make_topic(1, **{"offset.ids": "dense"})
    produce(archive.broker, archive.topic, range(10))
    archive.step()
    produce(archive.broker, archive.topic, range(10, 30))
    store.xtrim(f"korvet:stream:{archive.topic}:0", minid="0-21", approximate=False)
    archive.step()
    assert [record["offset"] for record in archive.records()] == [*range(10), *range(20, 30)]
    assert archive.table.progress()[0] == (0, 30)


@pytest.mark.only_storage("record", "record-dense")
def test_a_gap_between_time_ids_is_no_loss(
    archive: Archive, make_topic: MakeTopic, store: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    make_topic(1)
    planner, stream = ArchivePlanner(archive.job), f"korvet:stream:{archive.topic}:0"
    produce(archive.broker, archive.topic, range(10))
    archive.step(planner)
    store.xtrim(stream, maxlen=0, approximate=False)
    produce(archive.broker, archive.topic, range(10, 20))
    for known in (planner, ArchivePlanner(archive.job)):
        archive.step(known)
    assert "deleted before" not in caplog.text
    produce(archive.broker, archive.topic, range(20, 30))
    store.xtrim(stream, maxlen=5, approximate=False)
    archive.step(planner)
    assert f"records of {archive.topic}-0 from offset" in caplog.text
    assert plain(archive.records()) == expected(range(20)) + expected(range(25, 30))


def test_old_snapshots_are_forgotten(archive: Archive, make_topic: MakeTopic) -> None:
    make_topic(1)
    for first in range(0, 30, 10):
        produce(archive.broker, archive.topic, range(first, first + 10))
        archive.step()
    tidy(archive.job)
    assert len(archive.table.table.metadata.snapshots) == 3
    tidy(archive.job, 0, 0)
    assert len(archive.table.table.metadata.snapshots) == 1
    assert archive.announced()[b"metadata"].decode() == archive.table.metadata_location
    assert plain(archive.records()) == expected(range(30))


def test_a_topic_made_anew_is_left_alone(archive: Archive, make_topic: MakeTopic) -> None:
    make_topic(1)
    produce(archive.broker, archive.topic, range(10))
    planner = ArchivePlanner(archive.job)
    archive.step(planner)
    admin = AdminClient({"bootstrap.servers": archive.broker.bootstrap})
    admin.delete_topics([archive.topic])[archive.topic].result(10)
    assert archive.announced() == {}
    admin.create_topics([NewTopic(archive.topic, 1)])[archive.topic].result(10)
    produce(archive.broker, archive.topic, range(10, 20))
    assert archive.step(planner) == []
    assert plain(archive.records()) == expected(range(10))
    assert [part.note for part in status(archive.job)] == [NOT_ITS_TABLE]
    assert archive.announced() == {}


def test_a_late_announcement_does_not_undo_a_later_one(archive: Archive, make_topic: MakeTopic) -> None:
    make_topic(1)
    produce(archive.broker, archive.topic, range(10))
    archive.step()
    before = archive.table
    produce(archive.broker, archive.topic, range(10, 20))
    archive.step()
    later = archive.announced()
    with connected(archive.job.server) as connection:
        announce(connection, Keyspace("korvet"), before)
    assert archive.announced() == later


def test_what_went_wrong_is_found_in_sparks_account() -> None:
    trace = """org.apache.spark.SparkException: Job aborted
Traceback (most recent call last):
  File "x.py", line 1, in f
ketch.errors.StorageUnavailable: Redis at unix:///x cannot be used: No such file.

\tat org.apache.spark"""
    assert sentence(trace) == "Redis at unix:///x cannot be used: No such file."
    assert sentence("Traceback\nOSError: [Errno 28] No space left on device\n") == "[Errno 28] No space left on device"
    assert sentence("\nodd") == "odd"
