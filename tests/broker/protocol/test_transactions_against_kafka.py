"""Transactions: the same requests to Ketch's coordinator and to Apache Kafka's, and every answer compared.

A run is a list of steps drawn from a seed. Producer ids are compared by which one it is of those seen so far. Kafka
finishes a transaction after it has answered, so each step waits until nothing is being finished.
"""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from tests.support.apache_kafka import ApacheKafka, missing_tools
from tests.support.batches import batch, records
from tests.support.kafka import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Kafka,
    entity,
    produce,
)
from tests.support.ketch import KetchServer, eventually

NO_KAFKA = missing_tools()
pytestmark = [pytest.mark.long(minutes=2), pytest.mark.skipif(NO_KAFKA is not None, reason=str(NO_KAFKA))]

APIS = (0, 22, 24, 25, 26, 27, 28, 61, 65, 66)


@pytest.fixture(scope="module")
def apache_kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka() as server:
        with Kafka(server.port) as client:
            eventually(lambda: client.ask(INIT_PRODUCER_ID, 4, transactional_id=None).error_code == 0, 60)
            for kind in (0, 1):  # a first look for a coordinator makes its topic
                eventually(lambda: _has_coordinator(client, kind), 60)  # noqa: B023
            eventually(lambda: Driver(client, "warm", "warm-topic", ()).init(-1, -1)[0] == "none", 60)
        yield server


def _has_coordinator(client: Kafka, kind: int) -> bool:
    asked = entity(load_request_schema(FIND_COORDINATOR, 4), {"key_type": kind, "coordinator_keys": ["warm"]})
    client.send_frame(client.encode(asked))
    _, answer = client.answer(FIND_COORDINATOR, 4)
    return not answer.coordinators[0].error_code


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


class Driver:
    """Asks one server in the name of transactional ids; answers in a form that can be compared."""

    def __init__(self, client: Kafka, id: str, topic: str, pids: tuple[int, ...]) -> None:
        self.client, self.id, self.topic = client, id, topic
        self.pids = list(pids)
        self.epoch = -1

    def alias(self, pid: int) -> int:
        if pid >= 0 and pid not in self.pids:
            self.pids.append(pid)
        return self.pids.index(pid) if pid >= 0 else -1

    @property
    def pid(self) -> int:
        return self.pids[-1] if self.pids else 12345

    def settled(self) -> tuple[Any, ...]:
        """Error, state, producer and partitions, once nothing is being finished."""
        while True:
            found = described(self.client, self.id)
            if not found[1].startswith("Prepare"):
                error, state, pid, epoch, topics = found
                return error, state, self.alias(pid), epoch, topics.get(self.topic, ())

    def init(self, pid: int, epoch: int, timeout: int = 60_000, version: int = 5) -> tuple[Any, ...]:
        given = {"transactional_id": self.id, "producer_id": pid, "producer_epoch": epoch}
        answer = self.client.ask(INIT_PRODUCER_ID, version, transaction_timeout=timeout, **given)
        if not answer.error_code:
            self.epoch = answer.producer_epoch
        return ErrorCode(answer.error_code).name, self.alias(answer.producer_id), answer.producer_epoch

    def add(self, pid: int, epoch: int, index: int, version: int, verify: bool = False) -> tuple[Any, ...]:
        topics = [{"name": self.topic, "partitions": [index]}]
        if version < 4:
            answer = self.client.ask(
                ADD_PARTITIONS_TO_TXN, version, v3_and_below_transactional_id=self.id, v3_and_below_producer_id=pid,
                v3_and_below_producer_epoch=epoch, v3_and_below_topics=topics,
            )  # fmt: skip
            (result,) = answer.results_by_topic_v3_and_below
        else:
            one = {"transactional_id": self.id, "producer_id": pid, "producer_epoch": epoch, "topics": topics}
            answer = self.client.ask(ADD_PARTITIONS_TO_TXN, version, transactions=[{**one, "verify_only": verify}])
            (result,) = answer.results_by_transaction[0].topic_results
        return tuple(ErrorCode(part.partition_error_code).name for part in result.results_by_partition)

    def add_offsets(self, pid: int, epoch: int, version: int) -> str:
        given = {"transactional_id": self.id, "producer_id": pid, "producer_epoch": epoch, "group_id": self.id}
        return ErrorCode(self.client.ask(ADD_OFFSETS_TO_TXN, version, **given).error_code).name

    def commit_offset(self, pid: int, epoch: int, version: int) -> str:
        partitions = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": "m"}]
        given = {"transactional_id": self.id, "producer_id": pid, "producer_epoch": epoch, "group_id": self.id}
        answer = self.client.ask(
            TXN_OFFSET_COMMIT, version, **given, generation_id=-1, member_id="", group_instance_id=None,
            topics=[{"name": self.topic, "partitions": partitions}],
        )  # fmt: skip
        return ErrorCode(answer.topics[0].partitions[0].error_code).name

    def end(self, pid: int, epoch: int, commit: bool, version: int) -> tuple[Any, ...]:
        given = {"transactional_id": self.id, "producer_id": pid, "producer_epoch": epoch, "committed": commit}
        answer = self.client.ask(END_TXN, version, **given)
        error = ErrorCode(answer.error_code).name
        if version < 5 or answer.error_code:
            return (error,)
        self.epoch = answer.producer_epoch
        return error, self.alias(answer.producer_id), answer.producer_epoch

    def produce(self, pid: int, epoch: int, sequence: int, index: int, version: int) -> str:
        data = batch(records([b"x"]), attributes=0x10, producer_id=pid, producer_epoch=epoch, base_sequence=sequence)
        given = produce(self.topic, data, index, transactional_id=self.id)
        answer = self.client.ask(PRODUCE, version, **given)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code).name

    def producers(self, index: int) -> list[tuple[Any, ...]]:
        answer = self.client.ask(DESCRIBE_PRODUCERS, 0, topics=[{"name": self.topic, "partition_indexes": [index]}])
        (part,) = answer.topics[0].partitions
        return sorted(
            (self.alias(p.producer_id), p.producer_epoch, p.last_sequence, p.current_txn_start_offset >= 0)
            for p in part.active_producers
        )


def described(client: Kafka, id: str) -> tuple[str, str, int, int, dict[str, tuple[int, ...]]]:
    """Read by hand: kio refuses the start time -1 that Kafka gives before the first transaction."""
    client.send(DESCRIBE_TRANSACTIONS, 0, transactional_ids=[id])
    frame = client.receive()
    assert frame is not None
    data = io.BytesIO(frame[4:])
    _, _, states, error = data.read(1), data.read(4), data.read(1)[0], int.from_bytes(data.read(2), signed=True)
    assert states == 2

    def text() -> str:
        return data.read(data.read(1)[0] - 1).decode()

    assert text() == id
    state = text()
    _, _, pid, epoch = struct.unpack(">iqqh", data.read(22))
    topics = {}
    for _ in range(data.read(1)[0] - 1):
        name = text()
        indexes = [int.from_bytes(data.read(4)) for _ in range(data.read(1)[0] - 1)]
        data.read(1)
        topics[name] = tuple(sorted(indexes))
    return ErrorCode(error).name, state, pid, epoch, topics


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
