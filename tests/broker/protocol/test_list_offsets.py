"""ListOffsets: the ends, by timestamp, and what it refuses. With time ids and with dense ones."""

from __future__ import annotations

import time

import pytest

from tests.support.batches import batch, record
from tests.support.kafka import LIST_OFFSETS, Kafka, ms
from tests.support.ketch import KetchServer

pytestmark = pytest.mark.storage("record", "batch")

NOW = time.time_ns() // 1_000_000
DAY = 86_400_000
KINDS = ["time", "dense"]


def write(kafka: Kafka, topic: str, *timestamps: int) -> list[int]:
    """A record for each, a batch each; their offsets."""
    return [kafka.stored(topic, batch([record(b"%d" % t)], base_timestamp=t)) for t in timestamps]


def find(kafka: Kafka, topic: str, timestamp: int) -> tuple[int, int]:
    answer = kafka.list_offsets(topic, timestamp)
    assert answer.error_code == 0, answer
    return answer.offset, answer.timestamp


@pytest.fixture(params=KINDS)
def either(request: pytest.FixtureRequest, kafka: Kafka, topic: str) -> str:
    """A topic with time ids and one with dense ids."""
    kafka.create(topic, offset_ids=request.param)
    return topic


def test_an_empty_partition(kafka: Kafka, either: str) -> None:
    start, _ = find(kafka, either, -2)
    assert find(kafka, either, -1) == (start, -1)
    assert [find(kafka, either, timestamp) for timestamp in (-3, -5, 0, NOW)] == [(-1, -1)] * 4
    assert [kafka.list_offsets(either, timestamp).leader_epoch for timestamp in (-1, -2, -3, 0)] == [0, 0, -1, -1]


def test_timestamps_in_the_past(kafka: Kafka, either: str) -> None:
    offsets = write(kafka, either, 1000, 2000, 3000)
    expected = [(0, 0), (999, 0), (1000, 0), (1001, 1), (2000, 1), (2500, 2), (3000, 2)]
    assert [find(kafka, either, t) for t, _ in expected] == [(offsets[n], [1000, 2000, 3000][n]) for _, n in expected]
    assert find(kafka, either, 3001) == find(kafka, either, NOW) == (-1, -1)


def test_timestamps_in_the_future(kafka: Kafka, either: str) -> None:
    future = NOW + 400 * DAY
    offsets = write(kafka, either, future, future + 1000)
    assert find(kafka, either, NOW) == (offsets[0], future)
    assert find(kafka, either, future + 1) == (offsets[1], future + 1000)
    assert find(kafka, either, future + 1001) == (-1, -1)


def test_timestamps_out_of_order(kafka: Kafka, either: str) -> None:
    stamps = [5000, 1000, NOW, 3000, NOW + DAY, 2000, NOW + DAY]
    offsets = write(kafka, either, *stamps)
    for wanted in (0, 1000, 3001, 5001, NOW, NOW + 1, NOW + DAY):
        first = next(n for n, stamp in enumerate(stamps) if stamp >= wanted)
        assert find(kafka, either, wanted) == (offsets[first], stamps[first])
    assert find(kafka, either, NOW + DAY + 1) == (-1, -1)
    assert find(kafka, either, -3) == (offsets[4], NOW + DAY), "the first of those with the latest timestamp"


@pytest.mark.parametrize("timestamp", [2**63 - 1, 2**53, 2**62])
def test_a_timestamp_beyond_everything(kafka: Kafka, either: str, timestamp: int) -> None:
    offsets = write(kafka, either, 1000)
    assert find(kafka, either, timestamp) == (-1, -1)
    offsets += write(kafka, either, timestamp)
    assert find(kafka, either, timestamp) == find(kafka, either, 1001) == (offsets[1], timestamp)
    assert find(kafka, either, -3) == (offsets[1], timestamp)


def test_records_without_a_timestamp(kafka: Kafka, either: str) -> None:
    write(kafka, either, -1, -1)
    assert find(kafka, either, 0) == (-1, -1)
    offsets = write(kafka, either, 1000)
    assert find(kafka, either, 0) == (offsets[0], 1000)


@pytest.mark.parametrize("kind", KINDS)
def test_log_append_time(kafka: Kafka, topic: str, kind: str) -> None:
    kafka.create(topic, offset_ids=kind, message_timestamp_type="LogAppendTime")
    answers = [kafka.produce(topic, batch([record(b"a")], base_timestamp=5 * DAY)) for _ in range(2)]
    stamps = [ms(answer.log_append_time) for answer in answers]
    assert find(kafka, topic, 5 * DAY) == find(kafka, topic, stamps[0]) == (answers[0].base_offset, stamps[0])
    assert find(kafka, topic, stamps[1] + 1) == (-1, -1)


def test_many_records(kafka: Kafka, either: str) -> None:
    """More than one step of every search."""
    count = 5000
    for start in range(0, count, 1000):
        kafka.stored(either, batch([record(b"", offset_delta=n, timestamp_delta=n) for n in range(1000)],
                                   base_timestamp=NOW + start, max_timestamp=NOW + start + 999))  # fmt: skip
    offsets = [record.offset for record in kafka.read_all(either)]
    for n in (0, 1, 999, 1000, 2500, 4999):
        assert find(kafka, either, NOW + n) == (offsets[n], NOW + n)
    assert find(kafka, either, NOW + count) == (-1, -1)
    assert find(kafka, either, -3) == (offsets[-1], NOW + count - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_added_by_hand(broker: KetchServer, kafka: Kafka, topic: str, kind: str) -> None:
    kafka.create(topic, offset_ids=kind)
    redis, stream = broker.redis(), f"korvet:stream:{topic}:0"
    ids = ["0-2", "0-3", "1-0"] if kind == "dense" else [f"{NOW}-0", f"{NOW}-1", f"{NOW + 5}-0"]
    for entry in ids:
        redis.xadd(stream, {"value": "by hand"}, entry)
    offsets = [record.offset for record in kafka.read_all(topic)]
    if kind == "dense":  # no timestamp at all
        assert offsets == [1, 2, 1023]
        assert find(kafka, topic, 0) == (-1, -1)
    else:
        assert offsets == [NOW << 10, (NOW << 10) + 1, (NOW + 5) << 10]
        assert find(kafka, topic, NOW) == (offsets[0], NOW)
        assert find(kafka, topic, NOW + 1) == (offsets[2], NOW + 5)
    redis.xadd(stream, {"value": "x", "timestamp": NOW + DAY}, "*" if kind == "time" else "1-1")
    assert find(kafka, topic, NOW + 6)[1] == NOW + DAY


def test_trimmed(broker: KetchServer, kafka: Kafka, either: str) -> None:
    offsets = write(kafka, either, 1000, 2000, 3000)
    broker.redis().xtrim(f"korvet:stream:{either}:0", maxlen=2, approximate=False)
    assert find(kafka, either, 0) == (offsets[1], 2000)
    broker.redis().xtrim(f"korvet:stream:{either}:0", maxlen=0, approximate=False)
    assert find(kafka, either, 0) == find(kafka, either, -3) == (-1, -1)
    assert find(kafka, either, -1) == find(kafka, either, -2) == (offsets[2] + 1, -1)


# -- what it refuses


@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 99), (-(2**63), 99)])
def test_special_timestamps_have_versions(kafka: Kafka, made: str, timestamp: int, since: int) -> None:
    for version in (1, 6, 7, 8, 9):
        answer = kafka.list_offsets(made, timestamp, version)
        assert answer.error_code == (0 if version >= since else 35)
        if version < since:
            assert (answer.offset, answer.timestamp) == (-1, -1)


@pytest.mark.parametrize("timestamp", [-1, -2, -3, 0])
def test_no_such_partition(kafka: Kafka, made: str, timestamp: int) -> None:
    for name, partition in (("nowhere", 0), ("a b", 0), (made, 2), (made, -1)):
        answer = kafka.list_offsets(name, timestamp, partition=partition)
        assert (answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch) == (3, -1, -1, -1)


def test_an_unknown_partition_among_others(kafka: Kafka, made: str) -> None:
    parts = [{"partition_index": n, "timestamp": -1} for n in (0, 7, 1)]
    answer = kafka.ask(LIST_OFFSETS, 9, replica_id=-1, topics=[{"name": made, "partitions": parts}])
    assert [(p.partition_index, p.error_code) for p in answer.topics[0].partitions] == [(0, 0), (7, 3), (1, 0)]


def test_leader_epochs(kafka: Kafka, made: str) -> None:
    codes = [kafka.list_offsets(made, -1, current_leader_epoch=epoch).error_code for epoch in (-1, 0, 7)]
    assert codes == [0, 0, 75]


def test_a_partition_twice_and_no_topics(kafka: Kafka, made: str) -> None:
    parts = [{"partition_index": n, "timestamp": -1} for n in (0, 1, 0)]
    answer = kafka.ask(LIST_OFFSETS, 9, replica_id=5, topics=[{"name": made, "partitions": parts}])
    assert [(p.partition_index, p.error_code) for p in answer.topics[0].partitions] == [(0, 42), (1, 0)]
    assert kafka.ask(LIST_OFFSETS, 9, replica_id=-1, topics=[]).topics == ()
