"""Requests to the coordinator of a transactional id, of Ketch or of Apache Kafka, with answers that can be compared.

Producer ids are compared by which one it is of those seen so far.
"""

from __future__ import annotations

import io
import struct
from typing import Any

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from tests.support.batches import batch, records
from tests.support.kafka import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Kafka,
    entity,
    produce,
)
from tests.support.ketch import eventually


def wait_for_coordinators(client: Kafka) -> None:
    """Of Apache Kafka, which makes a coordinator's topic when the coordinator is first looked for."""
    eventually(lambda: client.ask(INIT_PRODUCER_ID, 4, transactional_id=None).error_code == 0, 60)
    for kind in (0, 1):
        eventually(lambda: _has_coordinator(client, kind), 60)  # noqa: B023
    eventually(lambda: Driver(client, "warm", "warm-topic", ()).init(-1, -1)[0] == "none", 60)


def _has_coordinator(client: Kafka, kind: int) -> bool:
    asked = entity(load_request_schema(FIND_COORDINATOR, 4), {"key_type": kind, "coordinator_keys": ["warm"]})
    client.send_frame(client.encode(asked))
    _, answer = client.answer(FIND_COORDINATOR, 4)
    return not answer.coordinators[0].error_code


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

    def commit_offset(self, pid: int, epoch: int, version: int, metadata: str = "m") -> str:
        partitions = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": metadata}]
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
