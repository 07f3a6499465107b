"""kill -9 of the broker, and of its Valkey, under an idempotent producer at full speed: nothing is lost or doubled.

A hundred faults of more kinds, over several minutes and with readers, are those of tests/chaos.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.support.entries import stored
from tests.support.ketch import KetchServer, eventually
from tests.support.slow_disk import slow_disk, why_not

CRASHES = 5
PARTITIONS = 3


class FullSpeed(threading.Thread):
    """An idempotent producer that writes rising numbers to every partition until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self.topic = topic
        self.acknowledged: list[dict[int, int | None]] = [{} for _ in range(PARTITIONS)]  # number -> offset
        self.sent = [0] * PARTITIONS
        self.errors: list[KafkaError] = []
        self.stopping = threading.Event()
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "message.timeout.ms": 120_000,
            }
        )

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged))

    def run(self) -> None:
        while not self.stopping.is_set():
            for partition in range(PARTITIONS):
                try:
                    self.producer.produce(
                        self.topic, str(self.sent[partition]), partition=partition, on_delivery=self.delivered
                    )
                    self.sent[partition] += 1
                except BufferError:
                    self.producer.poll(0.05)
            self.producer.poll(0)
        self.producer.flush(120)

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged[message.partition()][int(message.value())] = message.offset()


def crash_repeatedly(server: KetchServer, topic: str, crash: Callable[[], None]) -> FullSpeed:
    """Crashes again and again, each time once the producer has got on."""
    writer = FullSpeed(server.bootstrap, topic)
    writer.start()
    for _ in range(CRASHES):
        before = writer.count
        eventually(lambda: writer.count > before + 500, 60, "acknowledgements")  # noqa: B023
        crash()
    before = writer.count
    eventually(lambda: writer.count > before + 500, 60, "acknowledgements behind the last crash")
    writer.stopping.set()
    writer.join(120)
    return writer


def check(server: KetchServer, writer: FullSpeed, implied: bool = False) -> None:
    """Every record that was sent is there once, in order, at the offset it was acknowledged at.

    Args:
        implied: some may be acknowledged without an offset. librdkafka does so where a request has failed and a later
            one was stored, for then that one's records must have been, too: Redis moved again between their deadlines.
    """
    assert not writer.errors
    for partition in range(PARTITIONS):
        records = stored(server.redis(), f"korvet:stream:{writer.topic}:{partition}")
        assert [int(value) for _, value in records] == list(range(writer.sent[partition]))
        offsets = dict(enumerate(offset for offset, _ in records))
        told = {n: offset for n, offset in writer.acknowledged[partition].items() if offset is not None}
        assert writer.acknowledged[partition].keys() == offsets.keys()
        assert told == {n: offsets[n] for n in told}
        assert len(told) > 0.9 * len(offsets) if implied else told == offsets


@pytest.mark.storage("record", "batch")
@pytest.mark.only_storage("record", "batch")
def test_broker_killed(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    server = start_ketch("--default-partitions", str(PARTITIONS))

    def crash() -> None:
        server.kill()
        server.start()

    check(server, crash_repeatedly(server, topic, crash))


@pytest.mark.only_storage("record", "batch")
def test_valkey_killed(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    server = start_ketch("--default-partitions", str(PARTITIONS), "--fsync", "always")
    check(server, crash_repeatedly(server, topic, server.kill_valkey))


@pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
@pytest.mark.only_storage("record", "batch")
def test_valkey_killed_while_the_disk_is_slow(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    """Each sync takes a second, so that with `everysec` one is nearly always under way when Valkey is killed."""
    server = start_ketch("--default-partitions", str(PARTITIONS), "--fsync", "everysec", env=slow_disk(1000))
    check(server, crash_repeatedly(server, topic, server.kill_valkey))


@pytest.mark.only_storage("record", "batch")
def test_redis_hangs(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    """A Redis that is stopped, not gone: producers get a retriable error in time and go on when it moves again."""
    server = start_ketch("--default-partitions", str(PARTITIONS), "--redis-timeout-ms", "500")
    writer = FullSpeed(server.bootstrap, topic)
    writer.start()
    eventually(lambda: writer.count > 500)
    pid = int(server.redis().info("server")["process_id"])
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: "KAFKA_STORAGE_ERROR" in server.log.upper(), 30, "a refusal in the log")
    finally:
        os.kill(pid, signal.SIGCONT)
    before = writer.count
    eventually(lambda: writer.count > before + 500, 60)
    writer.stopping.set()
    writer.join(120)
    check(server, writer, implied=True)
