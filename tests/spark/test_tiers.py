"""Ranges that cross from the archive into Redis, planned and read without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.spark.conftest import MakeTopic
from tests.spark.test_batch import produce
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer

pytest.importorskip("pyiceberg", reason="the extra spark is not installed")
pytest.importorskip("pyspark", reason="the extra spark is not installed")

from ketch.redis.blocking import connected
from ketch.spark import rows
from ketch.spark.options import ReadOptions, read_options
from ketch.spark.plan import ReadPlanner, ReadRange
from ketch.spark.reader import DataLoss
from tests.support.archives import Job

KINDS = [("time", "record"), ("dense", "record"), ("time", "batch"), ("dense", "batch")]


@pytest.fixture
def job(tmp_path: Path, broker: KetchServer, store: redis.Redis, topic: str) -> Iterator[Job]:
    with Kafka(broker.port) as kafka:
        job = Job(tmp_path / "archive", kafka, store, topic)
        yield job
        job.archive.close()


@pytest.fixture
def given(broker: KetchServer, topic: str) -> Callable[..., ReadOptions]:
    return lambda **options: read_options({"redis.url": broker.redis_url, "subscribe": topic, **options}, False)


@pytest.fixture
def made(request: pytest.FixtureRequest, make_topic: MakeTopic) -> str:
    """The topic, of one of KINDS."""
    ids, layout = request.param
    return make_topic(1, **{"offset.ids": ids, "storage.layout": layout})


def planned(options: ReadOptions) -> list[ReadRange]:
    planner = ReadPlanner(options)
    with connected(options.server) as connection:
        view = planner.view(connection)
        start, end = planner.start(connection, view), planner.end(connection, view)
        return planner.ranges(connection, view, start, end, again=False)


def values(options: ReadOptions, ranges: list[ReadRange]) -> list[int]:
    found: list[int] = []
    for range_ in ranges:
        for batch in rows.read(options.server, range_, options.fail_on_data_loss, headers=True):
            found += [int(value[1:]) for value in batch.column("value").to_pylist()]
    return found


def trim(store: redis.Redis, topic: str, left: int) -> None:
    store.xtrim(f"korvet:stream:{topic}:0", maxlen=left, approximate=False)


@pytest.mark.parametrize("made", KINDS, indirect=True, ids="-".join)
def test_a_range_crosses_the_seam(
    broker: KetchServer, store: redis.Redis, made: str, job: Job, given: Callable[..., Any]
) -> None:
    for start in range(0, 1000, 100):
        produce(broker, made, 100, start=start)
    length = store.xlen(f"korvet:stream:{made}:0")
    job.run(files=3)
    for start in range(1000, 1200, 100):
        produce(broker, made, 100, start=start)
    everything = list(range(1200))
    assert values(given(), planned(given())) == everything  # nothing is trimmed yet
    trim(store, made, store.xlen(f"korvet:stream:{made}:0") - length // 2)
    assert values(given(), planned(given())) == everything
    hot = values(given(tier="hot"), planned(given(tier="hot")))
    assert 200 < len(hot) < 1200
    assert hot == everything[-len(hot) :]
    cold = given(tier="archive")
    assert values(cold, planned(cold)) == list(range(1000))
    for more in ({"minPartitions": "7"}, {"maxRecordsPerPartition": "150"}):
        ranges = planned(given(**more))
        assert len(ranges) >= 6
        assert values(given(), ranges) == everything
    late = given(startingTimestamp=str(1_700_000_000_050))
    assert values(late, planned(late)) == list(range(50, 1200))


@pytest.mark.parametrize("made", KINDS[:2], indirect=True, ids="-".join)
def test_what_is_trimmed_under_a_task_comes_from_the_archive(
    broker: KetchServer, store: redis.Redis, made: str, job: Job, given: Callable[..., Any]
) -> None:
    produce(broker, made, 100)
    job.run()
    produce(broker, made, 900, start=100)
    ranges = planned(given())
    job.run(files=2)
    trim(store, made, 100)
    assert values(given(), ranges) == list(range(1000))
    trim(store, made, 0)
    assert values(given(), ranges) == list(range(1000))
    assert values(given(), planned(given())) == list(range(1000))


@pytest.mark.parametrize("made", KINDS[1:2], indirect=True, ids="-".join)
def test_what_retention_takes_from_the_archive_under_a_task_is_told(
    broker: KetchServer, store: redis.Redis, made: str, job: Job, given: Callable[..., Any]
) -> None:
    produce(broker, made, 100)
    job.run()
    (first,) = Path(job.archive.table.location().removeprefix("file://")).rglob("*.parquet")
    produce(broker, made, 100, start=100)
    job.run()
    trim(store, made, 0)
    ranges = planned(given())
    job.archive.table.delete("offset < 100")
    first.unlink()
    job.start[0] = 100
    job.announce()
    with pytest.raises(DataLoss, match="from offset 0 to 100 were deleted"):
        values(given(), ranges)
    assert values(given(failOnDataLoss="false"), ranges) == list(range(100, 200))
