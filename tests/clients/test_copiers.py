"""Consume, transform, produce, with the offsets in the transaction (KIP-447), while the group rebalances.

Copiers of one group copy a topic whose records keep coming; each has a transactional id of its own. A third one joins
two and leaves. Readers of committed records get of the copy what is in the topic, exactly once and in order.

The copiers are clients/members/confluent_copier.py, clients/go/copier.go and Kafka's own TransactionalMessageCopier,
which its system tests use. Maven has it in the test jar of kafka-tools. KafkaJS has none: it sends no member with the
offsets of a transaction, so that nothing tells a member that has lost its partitions.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support import programs
from tests.support.apache_kafka import VERSION, libraries, missing_tools
from tests.support.cache import jars, missing
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually
from tests.support.members import Feed

PARTITIONS = 4
WAIT = 90.0
MISSING = missing_tools()
needs_kafka = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
NO_GO = missing("go")
needs_go = pytest.mark.skipif(NO_GO is not None, reason=str(NO_GO))
IN_A_GROUP = ("--group-mode", "--use-group-metadata", "--input-partition", "0", "--transaction-timeout", "10000")

Command = Callable[..., list[str]]
"""The command of a copier, from the broker, the topic and its transactional id. It copies to TOPIC-copy."""


def confluent(bootstrap: str, topic: str, id: str) -> list[str]:
    program = Path(__file__).parent / "members" / "confluent_copier.py"
    return [sys.executable, str(program), bootstrap, topic, topic, f"{topic}-copy", id]


def franz(bootstrap: str, topic: str, id: str) -> list[str]:
    return [*programs.go("copier"), bootstrap, topic, topic, f"{topic}-copy", id]


def kafkas(bootstrap: str, topic: str, id: str, *options: str) -> list[str]:
    tests = jars("kafka-tools-test", (f"org.apache.kafka:kafka-tools:{VERSION}:test",), "-DexcludeTransitive=true")
    java = ["java", "-Xmx128M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{tests}/*:{libraries()}/*"]
    options = options or IN_A_GROUP
    topics = ["--input-topic", topic, "--output-topic", f"{topic}-copy", "--consumer-group", topic]
    where = ["--broker-list", bootstrap, "--transactional-id", id, "--transaction-size", "20"]
    return [*java, "org.apache.kafka.tools.TransactionalMessageCopier", *where, *topics, *options]


class Copier:
    """A process, and how many records it says it has copied and committed."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.log, self.committed, self._command = log, 0, command
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.log.with_suffix(".out").open("w") as kept:
            for line in self.process.stdout:
                kept.write(line)
                if "totalProcessed" in line:
                    self.committed = json.loads(line)["totalProcessed"]
                elif line.startswith("copied"):
                    self.committed += int(line.split()[1])

    def leave(self) -> None:
        """At the end of its input, or of SIGTERM, it leaves the group."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        if self._command[0] == "java":
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(WAIT) in (0, 143), self.log.read_text()
        self._listener.join()

    def goes_on(self) -> None:
        """Waits until it has copied something more."""
        before = self.committed

        def more() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return self.committed > before

        eventually(more, WAIT, f"copies of {self.log}")

    def clean_up(self) -> None:
        self.process.kill()
        self.process.wait()
        self._listener.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def made(broker: KetchServer, topic: str) -> str:
    """A topic and the one for its copy. Kafka's copier ends when it has copied as many records as there were offsets
    before the end at its last rebalance: with time offsets never.
    """
    with Kafka(broker.port) as client:
        for name in (topic, f"{topic}-copy"):
            client.create(name, PARTITIONS, offset_ids="time")
    return topic


@pytest.fixture
def start(broker: KetchServer, made: str, tmp_path: Path) -> Iterator[Callable[[Command], Copier]]:
    copiers: list[Copier] = []

    def begin(command: Command) -> Copier:
        id = f"{made}-{len(copiers)}"
        copiers.append(Copier(command(broker.bootstrap, made, id), tmp_path / f"copier-{len(copiers)}.log"))
        return copiers[-1]

    yield begin
    for copier in copiers:
        copier.clean_up()


@pytest.mark.storage("record", "batch")
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(confluent, id="confluent"),
        pytest.param(franz, id="franz-go", marks=needs_go),
        pytest.param(kafkas, id="kafka", marks=[needs_kafka, pytest.mark.long(minutes=1)]),
    ],
)
def test_a_third_joins_and_leaves(
    broker: KetchServer, made: str, start: Callable[[Command], Copier], command: Command
) -> None:
    feed = Feed(broker.bootstrap, made, PARTITIONS)
    feed.start()
    try:
        two = [start(command), start(command)]
        for copier in two:
            copier.goes_on()
        third = start(command)
        third.goes_on()
        third.leave()
        for copier in two:
            copier.goes_on()
    finally:
        count = feed.finish()
    found = committed(broker, f"{made}-copy", count)
    assert found == [list(range(index, count, PARTITIONS)) for index in range(PARTITIONS)]
    assert third.committed > 0


@needs_kafka
@pytest.mark.long(minutes=0.5)
@pytest.mark.storage("record-dense", "batch-dense")
def test_kafkas_copier(broker: KetchServer, topic: str) -> None:
    """A partition at a time, as Kafka's system tests run it: it aborts every third transaction and copies it again."""
    count = 500
    with Kafka(broker.port) as client:
        for name in (topic, f"{topic}-copy"):
            client.create(name, PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(count * PARTITIONS):
        producer.produce(topic, str(n), partition=n % PARTITIONS)
    assert producer.flush(30) == 0
    aborted = f"korvet:aborted:{{korvet:stream:{topic}-copy:0}}"
    for index, most in ((0, 200), (0, -1), (1, -1), (2, -1), (3, -1)):
        options = ["--input-partition", str(index), "--max-messages", str(most), "--enable-random-aborts"]
        done = subprocess.run(
            kafkas(broker.bootstrap, topic, topic, *options), capture_output=True, text=True, timeout=WAIT
        )
        assert done.returncode == 0, done.stdout + done.stderr
    found = committed(broker, f"{topic}-copy", count * PARTITIONS)
    assert found == [list(range(index, count * PARTITIONS, PARTITIONS)) for index in range(PARTITIONS)]
    assert broker.redis().xlen(aborted) > 0
    assert broker.redis().keys(f"korvet:transactions:*{topic}*") == []


def committed(broker: KetchServer, topic: str, count: int) -> list[list[int]]:
    """The numbers in each partition, once there are so many and nothing more comes."""
    config = {"bootstrap.servers": broker.bootstrap, "group.id": f"reader-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]

    def enough() -> bool:
        messages = consumer.consume(500, 1.0)
        for message in messages:
            assert not message.error(), message.error()
            found[message.partition()].append(int(message.value()))
        return not messages and sum(map(len, found)) >= count

    eventually(enough, WAIT, f"{count} copies in {topic}")
    consumer.close()
    return found
