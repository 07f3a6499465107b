"""A zombie: a transactional producer whose process is paused while another one takes its transactional id over.

Its process is stopped (SIGSTOP) in the middle of a transaction, with batches on their way, and goes on (SIGCONT) while
its successor has a transaction of its own open. The programs are the senders of clients/members, java, go and node,
started as `program BOOTSTRAP ID TOPIC PARTITIONS`. Each says `open` once a hundred records are stored, and sends on. At
the end of its standard input it commits. Its last line is `committed`, `fenced` or the error's name.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support import cache, programs
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually

pytestmark = pytest.mark.storage("record", "batch")

PARTITIONS = 2


def python(client: str) -> list[str]:
    return [sys.executable, str(Path(__file__).parent / "members" / f"{client}_sender.py")]


def needs(*tools: str) -> pytest.MarkDecorator:
    missing = cache.missing(*tools)
    return pytest.mark.skipif(missing is not None, reason=str(missing))


PROGRAMS = {
    "confluent": (partial(python, "confluent"), ()),
    "aiokafka": (partial(python, "aiokafka"), ()),
    "java": (programs.java_sender, ("java", "javac", "mvn")),
    "franz-go": (partial(programs.go, "sender"), ("go",)),
    "kafkajs": (partial(programs.node, "sender"), ("node", "npm")),
}


@pytest.fixture(params=[pytest.param(made, id=id, marks=needs(*tools)) for id, (made, tools) in PROGRAMS.items()])
def zombie(
    request: pytest.FixtureRequest, broker: KetchServer, topic: str, tmp_path: Path
) -> Iterator[subprocess.Popen[str]]:
    """Stopped in the middle of its transaction."""
    with Kafka(broker.port) as client:
        client.create(topic, PARTITIONS)
    program: Callable[[], list[str]] = request.param
    command = [*program(), broker.bootstrap, topic, topic, str(PARTITIONS)]
    with (tmp_path / "zombie.log").open("wb") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n", (tmp_path / "zombie.log").read_text()
    process.send_signal(signal.SIGSTOP)
    yield process
    process.kill()
    process.communicate()


def test_a_producer_that_was_paused(zombie: subprocess.Popen[str], broker: KetchServer, topic: str) -> None:
    successor = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "linger.ms": 0})
    successor.init_transactions(30)

    def send(value: str) -> None:
        for index in range(PARTITIONS):
            successor.produce(topic, value, partition=index)
        assert successor.flush(30) == 0

    successor.begin_transaction()
    send("first")
    successor.commit_transaction(30)
    successor.begin_transaction()
    send("second")
    zombie.send_signal(signal.SIGCONT)
    said, _ = zombie.communicate(timeout=60)  # the end of its input: it commits
    assert said == "fenced\n"
    send("third")
    successor.commit_transaction(30)

    assert values(broker, topic, "read_committed") == [["first", "second", "third"]] * PARTITIONS
    for everything in values(broker, topic, "read_uncommitted"):
        at = everything.index("first")
        assert everything[at:] == ["first", "second", "third"], "the zombie wrote after it was fenced"
        assert at >= 50
    redis = broker.redis()
    assert redis.keys(f"korvet:transactions:*{topic}*") == []
    for index in range(PARTITIONS):
        assert redis.xlen(f"korvet:aborted:{{korvet:stream:{topic}:{index}}}") == 1


def values(broker: KetchServer, topic: str, isolation: str) -> list[list[str]]:
    """Of each partition, all that such a reader gets, in order."""
    config = {"bootstrap.servers": broker.bootstrap, "group.id": f"reader-{topic}", "enable.partition.eof": True}
    consumer = Consumer({**config, "isolation.level": isolation, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    ended: set[int] = set()

    def all_ended() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error():
            ended.add(message.partition())
        elif message is not None:
            found[message.partition()].append(message.value().decode())
        return len(ended) == PARTITIONS

    eventually(all_ended, 30)
    consumer.close()
    return found
