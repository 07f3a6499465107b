"""Transactional ids that were idle for long are forgotten: what is seen of one, and what its next use gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support.apache_kafka import ApacheKafka, missing_tools
from tests.support.coordinator import Driver, described, wait_for_coordinators
from tests.support.kafka import LIST_TRANSACTIONS, Kafka
from tests.support.ketch import KetchServer, eventually

NO_KAFKA = missing_tools()
USES: dict[str, Callable[[Driver, int, int], Any]] = {
    "produce": lambda driver, pid, epoch: driver.produce(pid, epoch, 1, 0, 12),
    "produce, old": lambda driver, pid, epoch: driver.produce(pid, epoch, 1, 0, 11),
    "add": lambda driver, pid, epoch: driver.add(pid, epoch, 0, 3),
    "verify": lambda driver, pid, epoch: driver.add(pid, epoch, 0, 4, verify=True),
    "add offsets": lambda driver, pid, epoch: driver.add_offsets(pid, epoch, 4),
    "commit offsets": lambda driver, pid, epoch: driver.commit_offset(pid, epoch, 5),
    "end": lambda driver, pid, epoch: driver.end(pid, epoch, True, 5),
    "end, old": lambda driver, pid, epoch: driver.end(pid, epoch, True, 4),
    "go on": lambda driver, pid, epoch: driver.init(pid, epoch),  # KIP-360
}
ENDED, FRESH, OPEN = "ended", "fresh", "open"


def prepare(client: Kafka, topic: str) -> dict[str, Driver]:
    """An id that has committed, one that was only initialized, and one with a transaction open."""
    client.create(topic, 2)
    eventually(lambda: all(client.list_offsets(topic, -1, partition=p).error_code == 0 for p in range(2)))
    drivers = {name: Driver(client, f"{topic}-{name}", topic, ()) for name in (ENDED, FRESH, OPEN)}
    for driver in drivers.values():
        assert driver.init(-1, -1)[0] == "none"
    assert drivers[OPEN].add(drivers[OPEN].pid, 0, 1, 3) == ("none",)
    ended = drivers[ENDED]
    assert ended.produce(ended.pid, 0, 0, 0, 12) == "none"
    assert ended.end(ended.pid, 0, True, 5) == ("none", 0, 1)
    return drivers


def listed(client: Kafka, topic: str) -> list[str]:
    states = client.ask(LIST_TRANSACTIONS, 1, duration_filter=-1).transaction_states
    return sorted(t.transactional_id.removeprefix(topic) for t in states if t.transactional_id.startswith(topic))


def seen(client: Kafka, topic: str, drivers: dict[str, Driver]) -> dict[str, Any]:
    """What is seen of ids that have expired, and what each use of them gets."""
    eventually(lambda: listed(client, topic) == [f"-{OPEN}"], 60)
    found: dict[str, Any] = {}
    for name in (ENDED, FRESH):
        driver = drivers[name]
        driver.client = client
        found[name] = described(client, driver.id)[0]
        pid, epoch = driver.pid, driver.epoch
        found |= {f"{name}, {use}": ask(driver, pid, epoch) for use, ask in USES.items()}
        found[f"{name}, init"] = initialized(driver)
    return found


def initialized(driver: Driver) -> tuple[Any, ...]:
    """What it gets in the end: an id that expires at once may do so in the middle of it."""
    answers: list[tuple[Any, ...]] = []

    def answered() -> bool:
        answers.append(driver.init(-1, -1))
        return answers[-1][0] != ErrorCode.concurrent_transactions.name

    eventually(answered)
    return answers[-1]


def test_an_id_that_is_idle_is_forgotten(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    server = start_ketch()
    with Kafka(server.port) as client:
        drivers = prepare(client, topic)
        before = client.read_all(topic)
    server.stop()
    server.arguments += ("--retention-check-interval-ms", "50", "--transactional-id-expiration-ms", "1")
    server.start()
    with Kafka(server.port) as client:
        found = seen(client, topic, drivers)
        assert client.read_all(topic) == before, "its records are there still"
    unknown = ErrorCode.invalid_producer_id_mapping.name
    for name in (ENDED, FRESH):
        assert found[name] == ErrorCode.transactional_id_not_found.name
        assert found[f"{name}, produce"] == unknown
        assert found[f"{name}, add"] == (unknown,)
        assert found[f"{name}, end"] == (unknown,)
        assert found[f"{name}, init"][0] == "none"
    assert f"transactional id {topic}-{ENDED} has expired" in server.log


@pytest.mark.long(minutes=1)
@pytest.mark.skipif(NO_KAFKA is not None, reason=str(NO_KAFKA))
def test_the_same_answers_as_kafkas(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    ages = {
        "transactional.id.expiration.ms": "6000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    }
    with ApacheKafka(ages) as reference, Kafka(reference.port) as client:
        wait_for_coordinators(client)
        expected = seen(client, topic, prepare(client, topic))
    server = start_ketch("--retention-check-interval-ms", "200", "--transactional-id-expiration-ms", "6000")
    with Kafka(server.port) as client:
        assert seen(client, topic, prepare(client, topic)) == expected
