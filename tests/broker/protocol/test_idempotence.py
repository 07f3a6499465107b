"""Sequences and epochs of idempotent producers (KIP-98)."""

from __future__ import annotations

import pytest

from tests.broker.protocol.test_alter import DELETE, SET, change
from tests.support.batches import batch, records
from tests.support.kafka import INIT_PRODUCER_ID, PRODUCE, Kafka, produce
from tests.support.ketch import KetchServer

pytestmark = pytest.mark.storage("record", "batch")

OK, NOT_ENOUGH, GAP, OLD_EPOCH, STORAGE_ERROR = 0, 19, 45, 47, 56
LAST = 2**31 - 1


class Producer:
    """One producer id on one partition."""

    def __init__(self, kafka: Kafka, topic: str, pid: int | None = None, epoch: int = 0) -> None:
        self.kafka, self.topic, self.epoch = kafka, topic, epoch
        self.pid = kafka.producer_id() if pid is None else pid

    def batch(self, sequence: int, count: int = 3, epoch: int | None = None) -> bytes:
        values = records([b"%d" % (sequence + n) for n in range(count)])
        epoch = self.epoch if epoch is None else epoch
        return batch(values, producer_id=self.pid, producer_epoch=epoch, base_sequence=sequence)

    def send(self, sequence: int, count: int = 3, epoch: int | None = None) -> tuple[int, int]:
        answer = self.kafka.produce(self.topic, self.batch(sequence, count, epoch))
        assert (answer.base_offset == -1) == bool(answer.error_code)
        return int(answer.error_code), int(answer.base_offset)

    def code(self, sequence: int, count: int = 3, epoch: int | None = None) -> int:
        return self.send(sequence, count, epoch)[0]

    def count(self) -> int:
        return len(self.kafka.read_all(self.topic))


@pytest.fixture
def producer(kafka: Kafka, made: str) -> Producer:
    return Producer(kafka, made)


def test_a_gap(producer: Producer) -> None:
    assert [producer.code(sequence) for sequence in (0, 5, 3, 5, 6)] == [OK, GAP, OK, GAP, OK]
    assert producer.count() == 9


def test_what_follows_a_refused_batch_comes_again_after_it(kafka: Kafka, producer: Producer) -> None:
    """librdkafka would take a new epoch for a gap, and send again what is stored."""
    assert producer.code(0) == OK
    assert change(kafka, producer.topic, ("min.insync.replicas", SET, "2"))[0] == OK
    assert producer.code(3) == NOT_ENOUGH
    assert change(kafka, producer.topic, ("min.insync.replicas", DELETE, None))[0] == OK
    assert [producer.code(sequence) for sequence in (6, 9, 3, 6, 9)] == [NOT_ENOUGH, NOT_ENOUGH, OK, OK, OK]
    other = Producer(kafka, producer.topic)
    assert [other.code(sequence) for sequence in (0, 5)] == [OK, GAP]
    assert producer.count() == 15


def test_duplicates_of_the_last_five_get_their_offsets(producer: Producer) -> None:
    offsets = [producer.send(3 * n)[1] for n in range(7)]
    for n in (6, 2, 4, 3, 5, 6):
        assert producer.send(3 * n) == (OK, offsets[n])
    assert [producer.code(3 * n) for n in (0, 1)] == [GAP, GAP]
    assert producer.count() == 21
    assert producer.code(21) == OK


def test_what_only_resembles_a_duplicate(producer: Producer) -> None:
    assert [producer.code(0), producer.code(0, 2), producer.code(0, 4), producer.code(1, 3)] == [OK, GAP, GAP, GAP]
    assert producer.count() == 3


def test_epochs(producer: Producer) -> None:
    assert producer.code(0) == OK
    assert producer.code(3, epoch=1) == GAP
    assert producer.code(0, epoch=3) == OK
    assert [producer.code(0, epoch=0), producer.code(3, epoch=2)] == [OLD_EPOCH, OLD_EPOCH]
    assert producer.code(3, epoch=3) == OK
    assert producer.count() == 9


@pytest.mark.parametrize(("sequence", "epoch"), [(5, 0), (LAST - 1, 0), (7, 5)])
def test_an_unknown_producer_may_start_anywhere(kafka: Kafka, made: str, sequence: int, epoch: int) -> None:
    producer = Producer(kafka, made, 2**40 + sequence, epoch)
    assert producer.code(sequence, 1) == OK
    assert producer.code(sequence + 1, 1) == OK


def test_sequences_wrap_between_batches(producer: Producer) -> None:
    assert [producer.code(LAST, 1), producer.code(0), producer.code(3)] == [OK, OK, OK]


def test_sequences_wrap_within_a_batch(producer: Producer) -> None:
    code, offset = producer.send(LAST - 1)
    assert code == OK
    assert producer.send(LAST - 1) == (OK, offset)
    assert [producer.code(0, 1), producer.code(1, 1)] == [GAP, OK]


def test_acks_0_and_1_move_the_state_too(producer: Producer) -> None:
    producer.kafka.send(PRODUCE, 9, **produce(producer.topic, producer.batch(0), acks=0))
    assert producer.kafka.produce(producer.topic, producer.batch(3), acks=1).error_code == OK
    assert producer.code(6) == OK


def test_partitions_have_states_of_their_own(producer: Producer) -> None:
    assert producer.code(0) == OK
    assert producer.kafka.produce(producer.topic, producer.batch(0), partition=1).error_code == OK
    assert producer.code(3) == OK


@pytest.mark.parametrize(("pid", "epoch", "sequence"), [(-1, 0, 0), (-2, 0, 0), (-1, -1, 5)])
def test_no_producer_id_is_no_idempotent_producer(kafka: Kafka, made: str, pid: int, epoch: int, sequence: int) -> None:
    data = batch(records([b"a"]), producer_id=pid, producer_epoch=epoch, base_sequence=sequence)
    assert [kafka.produce(made, data).error_code for _ in range(2)] == [OK, OK]
    assert len(kafka.read_all(made)) == 2


def test_five_in_flight_and_a_retry_of_all(producer: Producer) -> None:
    kafka, topic = producer.kafka, producer.topic
    offsets = []
    for _ in range(2):
        sent = [kafka.send(PRODUCE, 9, **produce(topic, producer.batch(3 * n))) for n in range(5)]
        answers = [kafka.answer(PRODUCE, 9) for _ in sent]
        assert [correlation_id for correlation_id, _ in answers] == sent
        parts = [answer.responses[0].partition_responses[0] for _, answer in answers]
        assert {part.error_code for part in parts} == {OK}
        offsets.append([part.base_offset for part in parts])
    assert offsets[0] == offsets[1]
    assert producer.count() == 15


def test_the_batches_behind_a_refused_one_are_refused(producer: Producer) -> None:
    kafka = producer.kafka
    data = [producer.batch(0), producer.batch(6), producer.batch(9), producer.batch(3)]
    for one in data:
        kafka.send(PRODUCE, 9, **produce(producer.topic, one))
    codes = [kafka.answer(PRODUCE, 9)[1].responses[0].partition_responses[0].error_code for _ in data]
    assert codes == [OK, GAP, GAP, OK]


def test_the_state_survives_a_restart(broker: KetchServer, start_ketch: type[KetchServer], topic: str) -> None:
    server = start_ketch()
    with Kafka(server.port) as kafka:
        kafka.create(topic)
        producer = Producer(kafka, topic)
        offsets = [producer.send(3 * n)[1] for n in range(6)]
    assert server.stop() == 0
    server.start()
    with Kafka(server.port) as kafka:
        again = Producer(kafka, topic, producer.pid)
        assert again.send(15) == (OK, offsets[5])
        assert again.send(3) == (OK, offsets[1])
        assert [again.code(0), again.code(21), again.code(18, epoch=-1)] == [GAP, GAP, 87]
        assert again.code(18) == OK
        assert kafka.producer_id() > producer.pid


@pytest.mark.only_storage("record", "batch")
@pytest.mark.parametrize(
    "state", ["0 2 1700000000000 0:2:18446744073709551615-1", "0 2 1700000000000 0:2:9007199254740991-1023", "none"]
)
def test_a_state_written_by_hand_that_no_answer_can_hold(
    broker: KetchServer, kafka: Kafka, made: str, state: str
) -> None:
    """Its producer gets an error and the others of the connection their answers."""
    producer = Producer(kafka, made)
    broker.redis().hset(f"korvet:producers:{{korvet:stream:{made}:0}}", str(producer.pid), state)
    assert producer.send(0) == (STORAGE_ERROR, -1)
    assert Producer(kafka, made).code(0) == OK
    assert producer.count() == 3


def test_init_producer_id_with_an_id(kafka: Kafka) -> None:
    def ask(pid: int, epoch: int) -> tuple[int, int, int]:
        given = {"transactional_id": None, "producer_id": pid, "producer_epoch": epoch}
        answer = kafka.ask(INIT_PRODUCER_ID, 4, **given)
        return answer.error_code, answer.producer_id, answer.producer_epoch

    first = kafka.producer_id()
    code, second, epoch = ask(first, 0)
    assert (code, epoch) == (0, 0)
    assert second > first
    assert ask(first, -1) == ask(-1, 0) == (42, -1, -1)
