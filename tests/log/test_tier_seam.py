"""From the earliest record to the end, across the seam of archive and stream, while both ends move and processes die.

A producer appends, the archive job archives, the broker trims what is archived at once; consumer after consumer reads
everything there is. Broker and job are killed under them. The long test runs `ketch archive run` itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

pytest.importorskip("pyiceberg", reason="the spark extra is not installed")
pytest.importorskip("pyspark", reason="the spark extra is not installed")

from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually

ROOT = Path(__file__).parents[2]
ROUNDS = 10
PATIENCE_S = 60  # the first cold read loads pyarrow, on a machine that starts a JVM at the same time
TOPICS = {
    "by-time": {"offset_ids": "time", "storage_layout": "record"},
    "by-count": {"offset_ids": "dense", "storage_layout": "batch"},
}
SMALL = {
    "fetch.message.max.bytes": 20_000,
    "fetch.queue.backoff.ms": 10,
}  # many fetches, so that the seam moves between


class Writer(threading.Thread):
    """Appends numbered records to every topic, all the time; `acked` says up to which number they are stored."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 10, "log_level": 0}
        )
        self._stopped = threading.Event()
        self.acked = dict.fromkeys(TOPICS, 0)
        self.failed: list[KafkaError] = []

    def run(self) -> None:
        number = 0
        while not self._stopped.wait(0.02):
            for _ in range(20):
                for topic in TOPICS:
                    self._producer.produce(topic, b"%d" % number, on_delivery=self._delivered)
                number += 1
            self._producer.poll(0)
        self._producer.flush(30)

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.acked[message.topic()] += 1  # type: ignore[attr-defined]

    def stop(self) -> None:
        self._stopped.set()
        self.join(60)


class Job:
    """Archives what the broker holds: the command itself, or without Spark what it does."""

    def __init__(self, server: KetchServer, spark: bool) -> None:
        data = str(server.directory / "data")
        if spark:
            command = ["ketch", "archive", "run", "--data-dir", data, "--interval", "0.2", "--master", "local[2,4]"]
        else:
            command = ["tests.support.archive_loop", server.redis_url, data]
        self._command = [sys.executable, "-m", *command]
        self._log = (server.directory / "archive.log").open("ab")
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=self._log, stderr=self._log, start_new_session=True, cwd=ROOT
        )

    def kill(self) -> None:
        """kill -9 of all its processes: driver, JVM and workers."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def revive(self) -> None:
        """What supervises a job: one that has ended, because Redis was away for long, is started again."""
        if self._process.poll() is not None:
            self.start()

    def close(self) -> None:
        self.kill()
        self._log.close()


@pytest.fixture
def server(start_ketch: Callable[..., KetchServer]) -> Iterator[KetchServer]:
    server = start_ketch("--retention-check-interval-ms", "100")
    with Kafka(server.port) as kafka:
        for topic, kind in TOPICS.items():
            kafka.create(topic, retention_ms=-1, local_retention_ms=0, **kind)
    return server


def read(server: KetchServer, topic: str, until: int, halfway: Callable[[], None]) -> list[int]:
    """The numbers of the records from the earliest on, `until` of them."""
    config = {"bootstrap.servers": server.bootstrap, "group.id": "reader", "auto.offset.reset": "error"}
    consumer = Consumer({**config, **SMALL, "enable.auto.commit": False, "check.crcs": True, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[int] = []
    try:
        while len(found) < until:
            messages = consumer.consume(min(500, until - len(found)), PATIENCE_S)
            assert messages, f"nothing more after {len(found)} of {until} records"
            for message in messages:
                if message.error() is None:
                    found.append(int(message.value()))
                else:  # while the broker is away
                    assert message.error().code() != KafkaError._AUTO_OFFSET_RESET, message.error()
            if len(found) >= until // 2:
                halfway()
    finally:
        consumer.close()
    return found


def moved(server: KetchServer, topic: str, local: int, patience: float) -> int:
    """Where Redis's part of the log starts, as soon as that is behind `local`."""
    with Kafka(server.port) as kafka:
        return eventually(
            lambda: start if (start := kafka.list_offsets(topic, -4).offset) > local else 0,
            patience,
            "the seam to move",
        )


class Killer:
    """Kills what the round says, once, when it is called: the job in every third, the broker in every second."""

    def __init__(self, number: int, topic: str, server: KetchServer, job: Job) -> None:
        job_dies = number % 3 == 1 and topic == "by-time"
        broker_dies = number % 2 == 0 and topic == "by-count"
        self._victims: list[Job | KetchServer] = [job] * job_dies + [server] * broker_dies

    def __call__(self) -> None:
        while self._victims:
            victim = self._victims.pop()
            victim.kill()
            victim.start()


@pytest.mark.parametrize(
    "spark",
    [pytest.param(False, marks=pytest.mark.long(minutes=1)), pytest.param(True, marks=pytest.mark.long(minutes=5))],
)
def test_every_record_is_read_once(server: KetchServer, spark: bool) -> None:
    job, writer = Job(server, spark), Writer(server.bootstrap)
    patience = 240 if spark else 60
    with Kafka(server.port) as kafka:
        begins = {topic: kafka.list_offsets(topic, -2).offset for topic in TOPICS}
    writer.start()
    try:
        seams = {topic: moved(server, topic, begin, patience) for topic, begin in begins.items()}
        for number in range(ROUNDS):
            job.revive()
            for topic in TOPICS:
                found = read(server, topic, writer.acked[topic], Killer(number, topic, server, job))
                assert found == list(range(len(found)))
        for topic in TOPICS:
            moved(server, topic, seams[topic], patience)
    finally:
        writer.stop()
        job.close()
    assert not writer.failed
    for topic, begin in begins.items():
        assert read(server, topic, writer.acked[topic], lambda: None) == list(range(writer.acked[topic]))
        with Kafka(server.port) as kafka:
            assert kafka.list_offsets(topic, -2).offset == begin
