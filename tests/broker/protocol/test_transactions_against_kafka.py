"""Transactions: the same requests to Ketch's coordinator and to Apache Kafka's, and every answer compared.

A run is a list of steps drawn from a seed. Producer ids are compared by which one it is of those seen so far. Kafka
finishes a transaction after it has answered, so each step waits until nothing is being finished.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support.apache_kafka import ApacheKafka, missing_tools
from tests.support.coordinator import Driver, wait_for_coordinators
from tests.support.kafka import API_VERSIONS, LIST_TRANSACTIONS, Kafka
from tests.support.ketch import KetchServer, eventually

NO_KAFKA = missing_tools()
pytestmark = [pytest.mark.long(minutes=2), pytest.mark.skipif(NO_KAFKA is not None, reason=str(NO_KAFKA))]

APIS = (0, 22, 24, 25, 26, 27, 28, 61, 65, 66)


@pytest.fixture(scope="module")
def apache_kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka() as server:
        with Kafka(server.port) as client:
            wait_for_coordinators(client)
        yield server


@pytest.fixture
def both(broker: KetchServer, apache_kafka: ApacheKafka) -> Iterator[tuple[Kafka, Kafka]]:
    with Kafka(broker.port) as ketch, Kafka(apache_kafka.port) as reference:
        yield ketch, reference


def test_versions(both: tuple[Kafka, Kafka]) -> None:
    def seen(client: Kafka) -> tuple[dict[int, tuple[int, int]], list[tuple[str, int, int]]]:
        answer = client.ask(API_VERSIONS, 4, client_software_name="x", client_software_version="1")
        ranges = {a.api_key: (a.min_version, a.max_version) for a in answer.api_keys if a.api_key in APIS}
        features = [
            (f.name, f.min_version_level, f.max_version_level)
            for f in answer.finalized_features
            if f.name == "transaction.version"
        ]
        return ranges, features

    ketch, reference = map(seen, both)
    assert ketch == reference


def steps(seed: int, bumps: bool) -> Iterator[tuple[Any, ...]]:
    """What is asked, with epochs relative to the current one."""
    chosen = random.Random(seed)
    end, put, commit = (5, 12, 5) if bumps else (4, 11, 3)
    for _ in range(60):
        other = chosen.random() < 0.2
        epoch = chosen.choice([-2, -1, 1]) if chosen.random() < 0.25 else 0
        kind = chosen.choice(["init", "known", "add", "add", "produce", "produce", "end", "end", "offsets", "toc"])
        index = chosen.randrange(2)
        match kind:
            case "init":
                yield ("init",)
            case "known":
                yield "known", other, epoch
            case "add":
                yield "add", other, epoch, index, chosen.choice([0, 3, 4]), chosen.random() < 0.3
            case "produce":
                yield "produce", other, epoch, index, put
            case "end":
                yield "end", other, epoch, chosen.random() < 0.6, end
            case "offsets":
                yield "offsets", other, epoch, chosen.choice([0, 3])
            case _:
                yield "toc", other, epoch, commit


def run(client: Kafka, topic: str, id: str, seed: int, bumps: bool) -> list[tuple[Any, ...]]:
    client.create(topic, 2, retention_ms=-1)
    eventually(lambda: all(client.list_offsets(topic, -1, partition=p).error_code == 0 for p in range(2)))
    driver, sequences, found = Driver(client, id, topic, ()), dict[tuple[int, int, int], int](), []
    for step in steps(seed, bumps):
        kind, *rest = step
        pid = 999_999 if rest and rest[0] else driver.pid
        epoch = max(0, driver.epoch + (rest[1] if rest else 0))
        match kind:
            case "init":
                answer: Any = driver.init(-1, -1)
            case "known":
                answer = driver.init(pid, epoch)
            case "add":
                answer = driver.add(pid, epoch, rest[2], rest[3], rest[4])
            case "produce":
                key = (pid, epoch, rest[2])
                answer = driver.produce(pid, epoch, sequences.get(key, 0), rest[2], rest[3])
                sequences[key] = sequences.get(key, 0) + (answer == "none")
            case "end":
                answer = driver.end(pid, epoch, rest[2], rest[3])
            case "offsets":
                answer = driver.add_offsets(pid, epoch, rest[2])
            case _:
                answer = driver.commit_offset(pid, epoch, rest[2])
        state = driver.settled()
        found.append((step, answer, state, driver.producers(0)))
        driver.epoch = state[3] if state[3] >= 0 else driver.epoch
    return found


@pytest.mark.parametrize("bumps", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_same_answers(both: tuple[Kafka, Kafka], topic: str, seed: int, bumps: bool) -> None:
    id = f"id-{topic}"
    answers = [run(client, topic, id, seed, bumps) for client in both]
    for n, (ketch, reference) in enumerate(zip(*answers, strict=True)):
        assert ketch == reference, (n, answers[0][max(0, n - 4) : n + 1])


def test_list_transactions(both: tuple[Kafka, Kafka], topic: str) -> None:
    def scenario(client: Kafka) -> list[tuple[Any, ...]]:
        client.create(topic, 2, retention_ms=-1)
        eventually(lambda: all(client.list_offsets(topic, -1, partition=p).error_code == 0 for p in range(2)))
        drivers = [Driver(client, f"{topic}-{n}", topic, ()) for n in range(3)]
        for driver in drivers:
            driver.init(-1, -1)
        drivers[1].add(drivers[1].pid, 0, 0, 3)
        found = []
        for given in (
            {}, {"state_filters": ["Ongoing"]}, {"state_filters": ["Empty", "nonsense"]},
            {"producer_id_filters": [drivers[2].pid]}, {"duration_filter": 60_000}, {"duration_filter": 0},
        ):  # fmt: skip
            answer = client.ask(LIST_TRANSACTIONS, 1, **{"duration_filter": -1, **given})
            listed = sorted(t.transactional_id for t in answer.transaction_states if topic in t.transactional_id)
            found.append((ErrorCode(answer.error_code).name, listed, sorted(answer.unknown_state_filters)))
        return found

    ketch, reference = map(scenario, both)
    assert ketch == reference
