"""What Produce refuses, with which code, and that nothing of it is stored."""

from __future__ import annotations

import time
from uuid import UUID

import pytest

from tests.support.batches import CODECS, batch, record, records
from tests.support.kafka import API_VERSIONS, PRODUCE, Kafka, produce, split
from tests.support.ketch import KetchServer, eventually

pytestmark = pytest.mark.storage("record", "batch")

THREE = records([b"a", b"b", b"c"])
CORRUPT, TOO_LARGE, BAD_ACKS, BAD_TIMESTAMP, UNKNOWN_CODEC, INVALID = 2, 10, 21, 32, 76, 87
LARGEST = 1_048_588  # max.message.bytes


def inflating_to_nothing_sensible(codec: int) -> bytes:
    return batch(THREE, codec=codec, payload=b"this is compressed by no codec at all")


REFUSED = {
    "wrong crc": (batch(THREE, crc=1), CORRUPT),
    "magic 3": (batch(THREE, magic=3), CORRUPT),
    "magic 1": (batch(THREE, magic=1), CORRUPT),
    "magic 0": (batch(THREE, magic=0), CORRUPT),
    "count above the last offset delta": (batch(THREE, count=4), CORRUPT),
    "count below the last offset delta": (batch(THREE, count=2), CORRUPT),
    "last offset delta above the count": (batch(THREE, last_offset_delta=5), CORRUPT),
    "count 0": (batch([], count=0, last_offset_delta=0), CORRUPT),
    "count 0, last offset delta -1": (batch([]), CORRUPT),
    "count -1": (batch(THREE, count=-1), CORRUPT),
    "one record fewer than the header says": (batch(THREE, count=4, last_offset_delta=3), INVALID),
    "one record more than the header says": (batch(THREE, count=2, last_offset_delta=1), INVALID),
    "the same, compressed": (batch(THREE, codec=1, count=4, last_offset_delta=3), INVALID),
    "no varint": (batch([b"\xff" * 20]), INVALID),
    "a record longer than the batch": (batch([b"\x7e" + record(b"a")[1:]]), INVALID),
    "a record of length -1": (batch([b"\x01" + record(b"a")[1:]]), INVALID),
    "malformed and compressed": (batch([b"\xff" * 20], codec=1), INVALID),
    "a billion records": (batch(THREE, count=10**9, last_offset_delta=10**9 - 1), INVALID),
    "gzip that is none": (inflating_to_nothing_sensible(1), CORRUPT),
    "snappy that is none": (inflating_to_nothing_sensible(2), CORRUPT),
    "lz4 that is none": (inflating_to_nothing_sensible(3), CORRUPT),
    "zstd that is none": (inflating_to_nothing_sensible(4), CORRUPT),
    "codec 5": (batch(THREE, codec=5), UNKNOWN_CODEC),
    "codec 7": (batch(THREE, codec=7), UNKNOWN_CODEC),
    "no bytes": (b"", INVALID),
    "null": (None, INVALID),
    "two batches": (batch(THREE) + batch(THREE), INVALID),
    "cut short": (batch(THREE)[:-1], INVALID),
    "half a header": (batch(THREE)[:40], INVALID),
    "bytes behind": (batch(THREE) + bytes(100), INVALID),
    "a base offset": (batch(THREE, base_offset=77), INVALID),
    "a control batch": (batch(THREE, attributes=0x20), INVALID),
    "a transactional batch": (batch(THREE, attributes=0x10), 53),
    "a transactional control batch": (batch(THREE, attributes=0x30, producer_id=1, producer_epoch=0), 53),
    "a producer without a sequence": (batch(THREE, producer_id=1, producer_epoch=0), INVALID),
    "more than max.message.bytes": (batch([record(bytes(LARGEST))]), TOO_LARGE),
}
# What only a look at the records tells, which the batch layout does not take.
INNER = {case for case in REFUSED if case.startswith(("one record more", "the same", "no varint", "a record "))}
INNER |= {case for case in REFUSED if case.startswith("malformed") or case.endswith("that is none")}


@pytest.mark.parametrize("case", list(REFUSED))
@pytest.mark.parametrize("version", [3, 9, 12])
def test_refused(kafka: Kafka, made: str, case: str, version: int) -> None:
    data, code = REFUSED[case]
    if case in INNER:
        made = f"{made}-records"
        kafka.create(made, storage_layout="record")
    before = kafka.list_offsets(made, -1).offset
    answer = kafka.produce(made, data, version)
    assert (answer.error_code, answer.base_offset, answer.log_append_time) == (code, -1, None)
    if version >= 8:
        assert answer.error_message
    assert kafka.list_offsets(made, -1).offset == before
    assert kafka.stored(made, batch(THREE), version) >= before
    assert len(kafka.read_all(made)) == 3


@pytest.mark.parametrize(
    ("name", "partition", "code"),
    [("nowhere", 0, 3), ("nowhere", -1, 3), ("", 0, 17), ("a b", 0, 17), ("..", -1, 17), ("x" * 250, 0, 17)],
)
def test_no_such_topic(kafka: Kafka, name: str, partition: int, code: int) -> None:
    assert kafka.produce(name, batch(THREE), partition=partition).error_code == code


def test_no_such_id(kafka: Kafka, made: str) -> None:
    assert kafka.produce(UUID(int=7), batch(THREE), version=13).error_code == 100
    assert kafka.produce(UUID(int=0), batch(THREE), version=13).error_code == 100
    assert kafka.produce(kafka.topic_id(made), batch(THREE), version=13, partition=2).error_code == 3


@pytest.mark.parametrize("partition", [2, -1, 2**31 - 1])
def test_no_such_partition(kafka: Kafka, made: str, partition: int) -> None:
    assert kafka.produce(made, batch(THREE), partition=partition).error_code == 3


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_bad_acks(kafka: Kafka, made: str, acks: int) -> None:
    assert kafka.produce(made, batch(THREE), acks=acks).error_code == BAD_ACKS
    assert kafka.produce("nowhere", batch(THREE), acks=acks).error_code == 3
    assert kafka.read_all(made) == []


@pytest.mark.parametrize(
    "data", [batch(THREE, attributes=0x80), batch(THREE, attributes=0x40), batch(THREE, attributes=8)]
)
def test_attributes_that_are_let_pass(kafka: Kafka, made: str, data: bytes) -> None:
    kafka.stored(made, data)
    assert len(kafka.read_all(made)) == 3


def test_a_leader_epoch_and_a_wrong_max_timestamp_are_let_pass(kafka: Kafka, made: str) -> None:
    kafka.stored(made, batch(THREE, leader_epoch=7, max_timestamp=5))
    assert {record.timestamp for record in kafka.read_all(made)} == {1_700_000_000_000}


@pytest.mark.parametrize("codec", list(CODECS))
def test_codecs(kafka: Kafka, made: str, codec: str) -> None:
    values = [b"%d" % n * 50 for n in range(300)]
    base = kafka.stored(made, batch(records(values), codec=CODECS[codec]))
    (read,) = split(kafka.fetch(made, base).records)
    assert (read.codec, [record.value for record in read.records]) == (CODECS[codec], values)


def test_zstd_needs_version_7(kafka: Kafka, made: str) -> None:
    data = batch(THREE, codec=4)
    assert kafka.produce(made, data, version=6).error_code == UNKNOWN_CODEC
    assert kafka.produce(made, data, version=7).error_code == 0


def test_zstd_goes_to_no_fetch_before_version_10(kafka: Kafka, made: str) -> None:
    base = kafka.stored(made, batch(THREE, codec=4))
    assert [split(kafka.fetch(made, base, version).records)[0].codec for version in (9, 10)] == [0, 4]


def test_max_message_bytes_counts_the_whole_batch(kafka: Kafka, topic: str) -> None:
    kafka.create(topic, max_message_bytes=1000)
    exact = batch([record(bytes(1000 - 61 - 9))])
    assert len(exact) == 1000
    assert kafka.produce(topic, exact).error_code == 0
    assert kafka.produce(topic, batch([record(bytes(1001 - 61 - 9))])).error_code == TOO_LARGE
    assert kafka.produce(topic, batch([record(bytes(100_000))], codec=1)).error_code == 0


def test_timestamps_outside_the_topics_limits(kafka: Kafka, topic: str) -> None:
    kafka.create(topic, message_timestamp_after_max_ms=1000, message_timestamp_before_max_ms=60_000)
    now = time.time_ns() // 1_000_000
    for timestamp in (now + 3_600_000, now - 3_600_000):
        assert kafka.produce(topic, batch(THREE, base_timestamp=timestamp)).error_code == BAD_TIMESTAMP
    assert kafka.read_all(topic) == []
    assert kafka.produce(topic, batch(THREE, base_timestamp=now)).error_code == 0


@pytest.mark.parametrize("timestamp", [-1, 0, -2, 2**62, 253_402_300_799_999])
def test_any_timestamp_by_default(kafka: Kafka, made: str, timestamp: int) -> None:
    kafka.stored(made, batch(THREE, base_timestamp=timestamp))
    assert {record.timestamp for record in kafka.read_all(made)} == {timestamp}


def test_log_append_time(kafka: Kafka, topic: str) -> None:
    kafka.create(topic, message_timestamp_type="LogAppendTime")
    before = time.time_ns() // 1_000_000
    answer = kafka.produce(topic, batch(THREE, base_timestamp=5))
    stamped = {record.timestamp for record in kafka.read_all(topic)}
    assert answer.log_append_time is not None
    assert stamped == {int(answer.log_append_time.timestamp() * 1000 + 0.5)}
    assert before <= min(stamped) <= time.time_ns() // 1_000_000
    assert all(batch.log_append_time for batch in split(kafka.fetch(topic, answer.base_offset).records))


def test_every_partition_on_its_own(kafka: Kafka, made: str) -> None:
    good, bad = batch(THREE), batch(THREE, crc=1)
    topics = [
        {
            "name": made,
            "partition_data": [{"index": n, "records": data} for n, data in ((1, good), (0, bad), (7, good))],
        },
        {"name": "nowhere", "partition_data": [{"index": 0, "records": good}]},
        {"name": "empty", "partition_data": []},
    ]
    answer = kafka.ask(PRODUCE, 9, acks=-1, timeout=5000, topic_data=topics)
    found = [(t.name, [(p.index, p.error_code) for p in t.partition_responses]) for t in answer.responses]
    assert found == [(made, [(1, 0), (0, CORRUPT), (7, 3)]), ("nowhere", [(0, 3)])]
    assert [len(kafka.read_all(made, partition=n)) for n in (0, 1)] == [0, 3]


def test_a_transactional_id_with_a_plain_batch(kafka: Kafka, made: str) -> None:
    assert kafka.produce(made, batch(THREE), transactional_id="t").error_code == 0


def test_a_timeout_of_nothing_does_not_fail_what_is_stored(kafka: Kafka, made: str) -> None:
    for timeout in (0, -1):
        assert kafka.produce(made, batch(THREE), timeout=timeout).error_code == 0
    assert len(kafka.read_all(made)) == 6


def test_without_acks_there_is_no_answer(kafka: Kafka, made: str) -> None:
    kafka.send(PRODUCE, 9, **produce(made, batch(THREE), acks=0))
    assert kafka.stored(made, batch(THREE)) > 0
    assert len(kafka.read_all(made)) == 6


def test_without_acks_nothing_waits_for_redis(kafka: Kafka, topic: str, broker: KetchServer) -> None:
    """Responses of later requests go out; what is produced later still lands later."""
    kafka.create(topic)
    kafka.stored(topic, batch(THREE))
    client = broker.redis_of(f"korvet:stream:{topic}:0")
    client.client_pause(60_000, all=False)
    try:
        for n in range(3):
            kafka.send(PRODUCE, 9, **produce(topic, batch([record(b"%d" % n)]), acks=0))
            assert kafka.ask(API_VERSIONS, 0).error_code == 0
        last = kafka.send(PRODUCE, 9, **produce(topic, batch([record(b"last")])))
    finally:
        client.client_unpause()
    correlation_id, answer = kafka.answer(PRODUCE, 9)
    assert (correlation_id, answer.responses[0].partition_responses[0].error_code) == (last, 0)
    assert [record.value for record in kafka.read_all(topic)][3:] == [b"0", b"1", b"2", b"last"]


def test_without_acks_redis_that_does_not_answer_closes_the_connection(
    kafka: Kafka, made: str, broker: KetchServer
) -> None:
    kafka.stored(made, batch(THREE))
    client = broker.redis_of(f"korvet:stream:{made}:0")
    client.client_pause(60_000, all=False)
    try:
        kafka.send(PRODUCE, 9, **produce(made, batch(THREE), acks=0, timeout=0))
        assert kafka.ask(API_VERSIONS, 0).error_code == 0
        assert kafka.closed()
    finally:
        client.client_unpause()


@pytest.mark.parametrize(("name", "data"), [(None, batch(THREE, crc=1)), ("nowhere", batch(THREE))])
def test_without_acks_an_error_closes_the_connection(
    broker: KetchServer, kafka: Kafka, made: str, name: str | None, data: bytes
) -> None:
    with Kafka(broker.port, client_id="careless") as client:
        client.send(PRODUCE, 9, **produce(name or made, data, acks=0))
        assert client.closed()
    assert kafka.read_all(made) == []


def test_a_producer_that_does_not_wait_may_close(broker: KetchServer, kafka: Kafka, made: str) -> None:
    """As with Kafka: what came in before the connection closed is stored, whatever the broker waits for meanwhile."""
    large = batch([record(b"x" * 300_000)])  # the first of its size is noted in the topic's hash
    with Kafka(broker.port) as gone:
        for n in range(50):
            gone.send(PRODUCE, 9, **produce(made, large, n % 2, acks=0))
    eventually(lambda: [len(kafka.read_all(made, partition=n)) for n in range(2)] == [25, 25])
