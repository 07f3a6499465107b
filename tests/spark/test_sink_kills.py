"""A query that writes to a topic is killed again and again, its driver or a Python worker of an executor, while records
come in: every one of them is written once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from confluent_kafka import Producer

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from tests.spark.conftest import MakeTopic
from tests.support.ketch import KetchServer, eventually
from tests.support.processes import session_of
from tests.support.sink_job import STARTED

pytestmark = pytest.mark.long(minutes=3)

KILLS = 6  # each starts a JVM or repeats a task
RECORDS = 200_000
START_S = 300.0  # that Spark may take on a machine with better things to do
ROOT = Path(__file__).parents[2]


class Job:
    """`tests.support.sink_job` with all the processes it has started."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self._arguments, self._log = arguments, log
        self._env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        self.start()

    def start(self, *more: str) -> None:
        command = [sys.executable, "-m", "tests.support.sink_job", *self._arguments, *more]
        self._starts = self._started()
        with self._log.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True, cwd=ROOT, env=self._env
            )

    def alive(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()[-4000:]
        return True

    def _started(self) -> int:
        return self._log.read_text().count(STARTED) if self._log.exists() else 0

    def streaming(self) -> bool:
        """Whether this driver's query has started. Before that, rows come from a killed driver's last tasks, and a
        Python process of its own is Spark's search for data sources, which is not tried again."""
        return self.alive() and self._started() > self._starts

    def workers(self) -> list[int]:
        """The Python processes that run tasks: children of Spark's daemons that are such processes too."""
        daemons = {each.pid: each for each in session_of(self.process.pid) if b"pyspark.daemon" in each.command}
        return sorted(pid for pid, each in daemons.items() if each.parent in daemons)

    def kill(self) -> None:
        """kill -9 of the driver and its JVM. The tasks' Python processes notice it, one that writes in the end."""
        for each in session_of(self.process.pid):
            if b"pyspark.daemon" not in each.command:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        for each in session_of(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def producing(broker: KetchServer, make_topic: MakeTopic, topic: str) -> Iterator[tuple[str, threading.Thread]]:
    """A topic into which numbered records go in the background; `join` waits for the last one."""
    source = make_topic(2, f"{topic}-in")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20})
    stop = threading.Event()

    def produce() -> None:
        for n in range(RECORDS):
            producer.produce(source, b"%d" % n, b"k%d" % (n % 100) if n % 3 else None)
            if n % 1000 == 999:
                producer.flush(30)
                if stop.wait(0.05):
                    return
        producer.flush(30)

    thread = threading.Thread(target=produce)
    thread.start()
    yield source, thread
    stop.set()
    thread.join()


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_every_record_is_written_once(
    broker: KetchServer,
    store: redis.Redis,
    make_topic: MakeTopic,
    producing: tuple[str, threading.Thread],
    topic: str,
    tmp_path: Path,
    layout: str,
) -> None:
    source, producer = producing
    target = make_topic(3, f"{topic}-out", **{"storage.layout": layout})

    def written() -> int:
        return sum(store.xlen(f"korvet:stream:{target}:{index}") for index in range(3))

    job = Job([broker.redis_url, source, target, str(tmp_path / "checkpoint")], tmp_path / "job.log")
    try:
        for number in range(KILLS):
            eventually(job.streaming, START_S, "a query")
            before = written()
            eventually(lambda b=before: job.alive() and written() > b, START_S, "rows")
            if number % 2:
                job.kill()
                job.start()
            else:
                victim = eventually(job.workers, START_S, "a worker")[-1]
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
        producer.join()
        job.kill()
        job.start("--once")
        assert job.process.wait(START_S) == 0, (tmp_path / "job.log").read_text()[-4000:]
    finally:
        job.close()
    values = consumed(broker, target)
    assert len(values) == RECORDS
    assert sorted(values) == list(range(RECORDS))


def consumed(broker: KetchServer, topic: str) -> list[int]:
    """The numbers in all records of the topic."""
    from ketch.redis.blocking import Server, connected
    from ketch.spark.options import Topics
    from ketch.spark.tier import read_records
    from ketch.spark.topics import look
    from ketch.store.keys import Keyspace

    server = Server(broker.redis_url)
    with connected(server) as connection:
        found = look(connection, Keyspace("korvet"), Topics(names=(topic,)), True)
    spans = [partition.span(partition.start, partition.end) for partition in found.values()]
    batches = [batch for span in spans for batch in read_records(server, span, None, True, True)]
    return [int(value) for batch in batches for value in batch.column("value").to_pylist()]
