"""The archive's pages: what the job has announced, and the data files and snapshots of a table that pyiceberg wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg", reason="the spark extra is not installed")

from pyiceberg.table import Table

from tests.support.archives import Job, Row
from tests.support.batches import batch, records
from tests.support.console import Answer, Visitor
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually


@pytest.fixture
def kafka(server: KetchServer) -> Iterator[Kafka]:
    with Kafka(server.port) as client:
        yield client


@pytest.fixture
def job(tmp_path: Path, kafka: Kafka, server: KetchServer, topic: str) -> Iterator[Job]:
    job = Job(tmp_path / "lake", kafka, server.redis(), topic)
    yield job
    job.archive.close()


def write(kafka: Kafka, topic: str, count: int, partition: int = 0) -> None:
    assert kafka.stored(topic, batch(records([b"v"] * count)), partition=partition) >= 0


def read(visitor: Visitor, topic: str, tab: str, **query: object) -> Answer:
    """A page of the table, once it has been read."""
    eventually(lambda: 'id="being-read"' not in visitor.get("/archive/topic", name=topic, tab=tab, **query).text)
    return visitor.get("/archive/topic", name=topic, tab=tab, **query)


def files(table: Table) -> dict[str, tuple[int, int, int]]:
    """Records, bytes and snapshot by path in the table's directory, as pyiceberg has them."""
    found = {}
    for entry in table.inspect.entries().to_pylist():
        data = entry["data_file"]
        path = data["file_path"].removeprefix(f"{table.location()}/")
        found[path] = (data["record_count"], data["file_size_in_bytes"], entry["snapshot_id"])
    return found


def test_files_and_snapshots_are_those_of_the_table(kafka: Kafka, visitor: Visitor, topic: str, job: Job) -> None:
    kafka.create(topic, partitions=3, offset_ids="dense")
    write(kafka, topic, 30)
    write(kafka, topic, 8, partition=2)
    job.run(files=3)
    job.run(partition=2)
    write(kafka, topic, 5)
    (row,) = visitor.get("/archive", q=topic).table()
    assert row[:2] == [topic, f"ketch.{topic}"]
    assert row[3:5] == ["2 of 3", "≈ 5"]
    partitions = visitor.get("/archive/topic", name=topic).table()
    assert [each[:5] for each in partitions] == [["0", "0", "30", "35", "≈ 5"], ["2", "0", "8", "8", "0"]]

    shown = read(visitor, topic, "files").table()
    assert [each[:4] for each in shown] == [
        *(["0", str(first), str(first + 9), "10"] for first in (0, 10, 20)),
        ["2", "0", "7", "8"],
    ]
    known = files(job.archive.table)
    assert {each[7] for each in shown} == set(known)
    assert [(int(each[3]), int(each[6])) for each in shown] == [known[each[7]][::2] for each in shown]
    assert [each[0] for each in read(visitor, topic, "files", partition=2).table()] == ["2"]
    assert "no files of partition 1" in read(visitor, topic, "files", partition=1).text

    snapshots = read(visitor, topic, "snapshots").table()
    made = sorted(job.archive.table.metadata.snapshots, key=lambda each: each.sequence_number or 0)[::-1]
    assert [int(each[0]) for each in snapshots] == [each.snapshot_id for each in made]
    assert [each[2:] for each in snapshots] == [
        ["append", "1", "0", "8", "4", "38"],
        *(["append", "1", "0", "10", str(n), str(n * 10)] for n in (3, 2, 1)),
    ]
    job.run()  # what is new is shown as soon as it is announced
    assert len(read(visitor, topic, "files").table()) == 5


def test_files_come_in_pages(kafka: Kafka, visitor: Visitor, topic: str, job: Job) -> None:
    kafka.create(topic, partitions=2, offset_ids="dense")
    write(kafka, topic, 130)
    write(kafka, topic, 2, partition=1)
    rows = [Row(offset) for offset in range(130)]
    from tests.support.archives import pa, to_lake
    from tests.support.archives import records as archived

    with job.archive.table.transaction() as transaction:
        for row in rows:
            transaction.append(pa.Table.from_batches([to_lake(archived([row]), 0, 1_700_000_000_000)]))
        transaction.append(pa.Table.from_batches([to_lake(archived(rows[:2]), 1, 1_700_000_000_000)]))
    job.through = {0: 130, 1: 2}
    job.announce(updated="1")
    page = read(visitor, topic, "files")
    assert "100 of 131 data files" in page.text
    assert [each[1] for each in page.table()] == [str(n) for n in range(100)]
    page = read(visitor, topic, "files", **{"from": 100})
    assert [(each[0], each[1]) for each in page.table()] == [*(("0", str(n)) for n in range(100, 130)), ("1", "0")]
    page = read(visitor, topic, "snapshots", **{"from": 100})
    assert len(page.table()) == 31


def test_a_table_that_cannot_be_read(kafka: Kafka, visitor: Visitor, topic: str, job: Job) -> None:
    kafka.create(topic)
    write(kafka, topic, 3)
    job.run()
    job.announce(metadata="file:///nowhere/metadata/1.json")
    page = read(visitor, topic, "files")
    assert page.status == 200
    assert re.search(r'id="missing">The table cannot be read: [^<]*cannot be read', page.text)
    assert visitor.get("/archive/topic", name=topic).status == 200


def test_what_has_no_archive(kafka: Kafka, visitor: Visitor, topic: str) -> None:
    kafka.create(topic)
    assert "Nothing of a topic" in visitor.get("/archive/topic", name=topic).text
    assert visitor.get("/archive/topic", name=topic).status == 404
    assert visitor.get("/archive/topic", name="not.there").status == 404
    assert "No topic with these words" in visitor.get("/archive", q="not.there").text
