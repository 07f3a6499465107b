"""Fetch and ListOffsets over transactions: the same sequence on Ketch and on Apache Kafka, every answer compared.

With dense ids offsets are Kafka's. Kafka finishes a transaction after it has answered, so each step waits for that.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.broker.protocol.test_transactions_against_kafka import Driver, apache_kafka
from tests.support.apache_kafka import ApacheKafka, missing_tools
from tests.support.batches import batch, records
from tests.support.kafka import LIST_OFFSETS, Kafka
from tests.support.ketch import KetchServer, eventually
from tests.support.transactions import read

NO_KAFKA = missing_tools()
pytestmark = [
    pytest.mark.skipif(NO_KAFKA is not None, reason=str(NO_KAFKA)),
    pytest.mark.storage("record-dense", "batch-dense"),
    pytest.mark.long(minutes=1),
]
__all__ = ["apache_kafka"]


def run(client: Kafka, topic: str, seed: int) -> list[Any]:
    client.create(topic, 1, retention_ms=-1)
    eventually(lambda: client.list_offsets(topic, -1).error_code == 0)
    chance = random.Random(seed)
    drivers = [Driver(client, f"{topic}-{n}", topic, ()) for n in range(2)]
    for driver in drivers:
        driver.init(-1, -1)
    sequences, open_ = [0, 0], [False, False]
    found: list[Any] = []
    for _ in range(25):
        n = chance.choice([0, 1, 2])
        if n == 2:
            client.stored(topic, batch(records([b"plain"])))
        elif open_[n] and chance.random() < 0.4:
            driver = drivers[n]
            driver.end(driver.pid, driver.epoch, chance.random() < 0.5, 5)
            driver.settled()
            sequences[n], open_[n] = 0, False
        else:
            driver = drivers[n]
            assert driver.produce(driver.pid, driver.epoch, sequences[n], 0, 12) == "none"
            sequences[n] += 1
            open_[n] = True
        found.append([seen(client, topic, level, chance) for level in (0, 1)])
    return found


def seen(client: Kafka, topic: str, level: int, chance: random.Random) -> Any:
    """What a reader is told, from some offset on."""
    listed = tuple(_listed(client, topic, timestamp, level) for timestamp in (-1, -2, 0))
    start = chance.randrange(listed[0] + 1)
    answer = client.fetch(topic, start, isolation_level=level, max_wait=0)
    ends = answer.error_code, answer.high_watermark, answer.last_stable_offset, answer.log_start_offset
    records_ = read(client, topic, start, committed=bool(level))
    return listed, start, ends, answer.aborted_transactions is None, records_


def _listed(client: Kafka, topic: str, timestamp: int, level: int) -> int:
    asked = {"name": topic, "partitions": [{"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}]}
    answer = client.ask(LIST_OFFSETS, 9, replica_id=-1, isolation_level=level, topics=[asked])
    return int(answer.topics[0].partitions[0].offset)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_answers(broker: KetchServer, apache_kafka: ApacheKafka, topic: str, seed: int) -> None:
    with Kafka(broker.port) as ketch, Kafka(apache_kafka.port) as reference:
        answers = [run(client, topic, seed) for client in (ketch, reference)]
    for n, pair in enumerate(zip(*answers, strict=True)):
        assert pair[0] == pair[1], n
