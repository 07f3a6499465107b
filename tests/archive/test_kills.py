"""`ketch archive run` is killed at any point, again and again, while records are produced: each is archived once."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ketch.lake.catalog import open_catalog
from ketch.lake.table import ArchiveTable
from tests.support.ketch import KetchServer, eventually
from tests.support.processes import session_of

KILLS = 4  # one for each moment
RECORDS = 200_000
PAUSE_S = 1.5  # between a thousand records and the next: there must be some to archive until the last kill
START_S = 300.0  # that Spark may take on a machine with better things to do

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="java is missing: Spark runs on it")


class Job:
    """`ketch archive run` as a process of its own."""

    def __init__(self, broker: KetchServer, topics: list[str], directory: Path, log: str) -> None:
        self.directory = directory
        named = [word for topic in topics for word in ("--topic", topic)]
        self.command = [sys.executable, "-m", "ketch", "archive", "run", "--redis", broker.redis_url]
        self.command += ["--data-dir", str(directory), "--master", "local[2,4]", "--interval", "0", *named]
        self.process: subprocess.Popen[bytes] | None = None
        self.sessions: list[int] = []
        self.log = directory / log

    def start(self, *arguments: str) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*self.command, *arguments], stdout=output, stderr=output, start_new_session=True
            )
        self.sessions.append(self.process.pid)

    def alive(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        return True

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def gone(self) -> bool:
        """Whether the Java processes of all that were killed have ended, too: until then they write to checkpoints."""
        return not any(map(session_of, self.sessions))

    def wait(self) -> None:
        assert self.process is not None
        assert self.process.wait(START_S) == 0, self.log.read_text()

    def seen(self, pattern: str) -> set[Path]:
        return set((self.directory / "lake").glob(pattern))


@pytest.fixture
def start_job(broker: KetchServer, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Makes jobs: `start_job(topics)`; all are killed behind the test."""
    jobs: list[Job] = []

    def make(topics: list[str]) -> Job:
        jobs.append(Job(broker, topics, tmp_path, f"job{len(jobs)}.log"))
        return jobs[-1]

    yield make
    for job in jobs:
        job.kill()


@pytest.fixture
def producing(broker: KetchServer, topic: str) -> Iterator[tuple[list[str], Callable[[], None]]]:
    """A topic with time offsets and a dense one, into which records go in the background; and how to wait for the
    end of that."""
    topics = [f"{topic}.time", f"{topic}.dense"]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    made = [NewTopic(topics[0], 2), NewTopic(topics[1], 1, config={"offset.ids": "dense"})]
    for future in admin.create_topics(made).values():
        future.result(10)
    stop, hurry = threading.Event(), threading.Event()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "acks": 1})

    def produce() -> None:
        for n in range(RECORDS):
            producer.produce(topics[n % 2], b"%010d" % n + b"x" * 90, b"k%d" % (n % 100))
            if n % 1000 == 999:
                producer.poll(0)
                producer.flush(20)
                if stop.wait(0 if hurry.is_set() else PAUSE_S):
                    return
        producer.flush(START_S)

    thread = threading.Thread(target=produce)
    thread.start()

    def produced() -> None:
        hurry.set()
        thread.join()

    yield topics, produced
    stop.set()
    thread.join()


@pytest.mark.long(minutes=2)
def test_killed_at_any_point(
    broker: KetchServer,
    producing: tuple[list[str], Callable[[], None]],
    start_job: Callable[..., Job],
    tmp_path: Path,
) -> None:
    topics, produced = producing
    job = start_job(topics)
    moments = cycle(
        [
            "warehouse/ketch/*/data/**/*.parquet",  # a file, before its commit
            "warehouse/ketch/*/metadata/*.metadata.json",  # a commit, before Spark notes it
            "checkpoints/*/commits/[0-9]*",  # noted
            "checkpoints/*/offsets/[0-9]*",  # a batch begins
        ]
    )
    for number, pattern in enumerate(islice(moments, KILLS)):
        job.start()
        before = job.seen(pattern)
        eventually(lambda p=pattern, b=before: job.alive() and job.seen(p) - b, START_S, pattern)
        time.sleep(0.03 * (number // 4))  # a little later each time round
        job.kill()
    eventually(job.gone, START_S)
    shutil.rmtree(tmp_path / "lake" / "checkpoints")
    produced()
    job.start("--once")
    job.wait()
    catalog = open_catalog("ketch", tmp_path)
    for topic in topics:
        table = ArchiveTable.find(catalog, topic)
        assert table is not None
        assert archived(table) == stored(broker, topic)
    catalog.engine.dispose()  # type: ignore[attr-defined]


def archived(table: ArchiveTable) -> list[tuple[int, int, bytes]]:
    """Partition, offset and number of every record."""
    rows = table.table.scan(selected_fields=("partition", "offset", "value")).to_arrow()
    columns = [rows.column(name).to_pylist() for name in ("partition", "offset", "value")]
    return sorted((partition, offset, value[:10]) for partition, offset, value in zip(*columns, strict=True))


def stored(broker: KetchServer, topic: str) -> list[tuple[int, int, bytes]]:
    """The same from Redis, which has kept everything."""
    dense = topic.endswith("dense")
    found = []
    with broker.redis() as client:
        for partition in range(1 if dense else 2):
            for entry, fields in client.xrange(f"korvet:stream:{topic}:{partition}"):
                ms, seq = map(int, entry.split(b"-"))
                found.append((partition, (ms << 10) + seq - dense, fields[b"value"][:10]))
    assert len(found) == RECORDS // 2
    return found


@pytest.mark.long(minutes=1)
def test_sigterm_ends_it_in_order(broker: KetchServer, topic: str, start_job: Callable[..., Job]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(10)
    job = start_job([topic])
    job.start()
    eventually(lambda: job.alive() and job.seen("checkpoints/*/commits/[0-9]*"), START_S, "the first batch")
    second = start_job([topic])
    second.start()
    assert second.process is not None
    assert second.process.wait(START_S) == 1
    assert "ketch: Another archive job of these topics runs on data directory" in second.log.read_text()
    assert job.process is not None
    job.process.send_signal(signal.SIGTERM)
    job.wait()
    assert "archived 0 records" in job.log.read_text()
    assert "Traceback" not in job.log.read_text()
