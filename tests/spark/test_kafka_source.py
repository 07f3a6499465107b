"""Spark's own Kafka source and sink (4.0.0) as clients of the broker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.partitioner.default import murmur2

from bench.model import Unavailable
from bench.spark_kafka import SparkKafka, spark_kafka
from tests.spark.conftest import create
from tests.support.ketch import KetchServer

pytestmark = [
    pytest.mark.long(minutes=2),  # and it fetches a second Spark (400 MB)
    pytest.mark.skipif(shutil.which("mvn") is None, reason="mvn is missing: Spark's Kafka source comes through Maven"),
]

JOB = Path(__file__).parent / "kafka_source_job.py"
RECORDS = 1500
PARTITIONS = 2


@pytest.fixture(scope="module")
def connector() -> SparkKafka:
    try:
        return spark_kafka()
    except Unavailable as reason:
        pytest.skip(str(reason))


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for number in range(RECORDS):
        key = f"k{number % 50}".encode()
        producer.produce(topic, f"{topic} {number}".encode(), key, headers=[("number", str(number).encode())])
    assert producer.flush(30) == 0


def consumed(bootstrap: str, topic: str, count: int) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    consumer.assign([TopicPartition(p.topic, p.partition, consumer.get_watermark_offsets(p, 10)[0]) for p in places])
    messages: list[Any] = []
    while len(messages) < count:
        messages += [message for message in consumer.consume(count - len(messages), 1.0) if not message.error()]
    consumer.close()
    return messages


def run(connector: SparkKafka, *arguments: str) -> dict[str, Any]:
    command = [connector.python, str(JOB), ",".join(connector.jars), *arguments]
    left = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    env = {**left, "PYSPARK_PYTHON": connector.python, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_source_and_sink(broker: KetchServer, connector: SparkKafka, topic: str, tmp_path: Path) -> None:
    names = [f"{topic}-{name}" for name in ("dense", "time", "written", "copied")]
    for name in names:
        create(broker, name, PARTITIONS, {"offset.ids": "time" if name == names[1] else "dense"})
    for name in names[:2]:
        fill(broker.bootstrap, name)
    found = run(connector, broker.bootstrap, str(tmp_path), *names)
    for kind, name in (("dense", names[0]), ("time", names[1])):
        wanted = sorted(f"{name} {number}" for number in range(RECORDS))
        assert found[f"{kind} batch"] == wanted
        assert found[f"{kind} split"] == wanted
        assert found[f"{kind} stream"]["values"] == wanted
    # Dense offsets are numbers of records: the limit is kept to, but for the rounding of each partition's share.
    batches = found["dense stream"]["batches"]
    assert max(batches) <= 200 + PARTITIONS
    assert len(batches) >= RECORDS // (200 + PARTITIONS)
    for name, headers in ((names[2], True), (names[3], False)):
        messages = consumed(broker.bootstrap, name, RECORDS)
        assert sorted(message.value().decode() for message in messages) == found["dense batch"]
        for message in messages:
            assert message.partition() == (murmur2(message.key()) & 0x7FFFFFFF) % PARTITIONS
            number = message.value().rpartition(b" ")[2]
            assert message.headers() == ([("number", number)] if headers else None)
