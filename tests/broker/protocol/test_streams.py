"""What others do to the streams, and what consumers see of it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import redis

from tests.support.batches import batch, records
from tests.support.kafka import Kafka, split
from tests.support.ketch import KetchServer, eventually

FIVE = records([b"0", b"1", b"2", b"3", b"4"])
HOUR = 3_600_000
STORAGE_ERROR = 56


class Log:
    """A topic and its stream."""

    def __init__(self, kafka: Kafka, client: redis.Redis, topic: str, kind: str, **configs: str) -> None:
        kafka.create(topic, offset_ids=kind, **configs)
        self.kafka, self.redis, self.topic, self.dense = kafka, client, topic, kind == "dense"
        self.stream = f"korvet:stream:{topic}:0"

    def write(self) -> int:
        return self.kafka.stored(self.topic, batch(FIVE))

    def entry(self, offset: int) -> str:
        number = offset + self.dense
        return f"{number >> 10}-{number & 1023}"

    def bounds(self) -> tuple[int, int]:
        """Log start and high watermark, as ListOffsets and as Fetch say."""
        start, end = (self.kafka.list_offsets(self.topic, timestamp).offset for timestamp in (-2, -1))
        answer = self.kafka.fetch(self.topic, end)
        assert (answer.error_code, answer.log_start_offset, answer.high_watermark) == (0, start, end)
        return start, end

    def code(self, offset: int) -> int:
        return int(self.kafka.fetch(self.topic, offset).error_code)

    def offsets(self, offset: int | None = None) -> list[int]:
        return [record.offset for record in self.kafka.read_all(self.topic, offset)]


@pytest.fixture(params=["time", "dense"])
def log(request: pytest.FixtureRequest, broker: KetchServer, kafka: Kafka, topic: str) -> Log:
    return Log(kafka, broker.redis(), topic, request.param)


def test_a_new_partition_is_empty(log: Log) -> None:
    start, end = log.bounds()
    assert start == end
    assert (start == 0) == log.dense
    assert log.offsets() == []
    assert [log.code(start), log.code(start + 1), log.code(-1)] == [0, 1, 1]


def test_the_log_starts_where_the_topic_began_until_it_is_trimmed(log: Log) -> None:
    start, _ = log.bounds()
    base = log.write()
    assert log.bounds() == (start, base + 5)
    assert log.offsets(start) == [base + n for n in range(5)]


@pytest.mark.only_storage("record", "record-dense")
def test_trimmed_partly(log: Log) -> None:
    base = log.write()
    log.redis.xtrim(log.stream, maxlen=2, approximate=False)
    assert log.bounds() == (base + 3, base + 5)
    assert [log.code(base + n) for n in (2, 3, 5, 6)] == [1, 0, 0, 1]
    assert log.offsets() == [base + 3, base + 4]


@pytest.mark.only_storage("record", "record-dense")
def test_produce_says_where_the_log_starts(log: Log) -> None:
    """Behind a removal by another client, while nobody reads."""

    def start() -> int:
        return int(log.kafka.produce(log.topic, batch(FIVE)).log_start_offset)

    first = start()
    assert start() == first
    base = log.write()
    log.redis.xtrim(log.stream, minid=log.entry(base + 1), approximate=False)
    eventually(lambda: start() == base + 1)  # the word of the removal may come behind the next request
    assert start() == base + 1
    log.redis.xtrim(log.stream, minid=log.entry(base + 3), approximate=False)
    eventually(lambda: start() == base + 3)
    assert log.bounds()[0] == base + 3


@pytest.mark.only_storage("record", "record-dense")
def test_trimmed_by_id(log: Log) -> None:
    base = log.write()
    log.redis.xtrim(log.stream, minid=log.entry(base + 1), approximate=False)
    assert log.bounds() == (base + 1, base + 5)


def empty(log: Log) -> None:
    log.redis.xtrim(log.stream, maxlen=0, approximate=False)


def delete_all(log: Log) -> None:
    log.redis.xdel(log.stream, *(entry for entry, _ in log.redis.xrange(log.stream)))


@pytest.mark.parametrize("how", [empty, delete_all])
def test_emptied(log: Log, how: Callable[[Log], None]) -> None:
    end = log.write() + 5
    how(log)
    assert log.bounds() == (end, end), "the high watermark never goes back"
    assert [log.code(end), log.code(end - 1), log.code(end + 1)] == [0, 1, 1]
    base = log.write()
    assert base >= end
    assert log.offsets() == [base + n for n in range(5)]


@pytest.mark.parametrize("how", [empty, delete_all])
def test_emptied_behind_a_consumer_that_had_read_everything(
    broker: KetchServer, kafka: Kafka, topic: str, how: Callable[[Log], None]
) -> None:
    log = Log(kafka, broker.redis(), topic, "time")
    end = log.write() + 5
    how(log)
    assert log.bounds() == (end, end)
    base = log.write()
    assert log.offsets(end) == [base + n for n in range(5)]


@pytest.mark.only_storage("record", "record-dense")
def test_the_tail_deleted(log: Log) -> None:
    base = log.write()
    log.redis.xdel(log.stream, log.entry(base + 3), log.entry(base + 4))
    assert log.bounds()[1] == base + 5
    assert log.offsets(base) == [base, base + 1, base + 2]
    for offset in (base + 3, base + 4):
        answer = log.kafka.fetch(log.topic, offset, max_wait=60_000)
        (gap,) = split(answer.records)
        assert (gap.base_offset, gap.last_offset, gap.count) == (offset, base + 4, 0)
    assert log.write() >= base + 5


@pytest.mark.only_storage("record", "record-dense")
def test_a_hole_in_the_middle(log: Log) -> None:
    base = log.write()
    log.redis.xdel(log.stream, log.entry(base + 1), log.entry(base + 2))
    assert log.offsets(base + 1) == [base + 3, base + 4]
    assert log.offsets(base) == [base, base + 3, base + 4]


@pytest.mark.only_storage("record", "record-dense")
def test_the_head_deleted(log: Log) -> None:
    base = log.write()
    log.redis.xdel(log.stream, log.entry(base))
    start, end = log.bounds()
    assert start <= base + 1
    assert end == base + 5
    assert log.offsets() == [base + n for n in range(1, 5)]


def test_the_stream_deleted(log: Log) -> None:
    """Nothing tells where it ended. The broker goes on, and time ids go on rising."""
    base = log.write()
    log.redis.delete(log.stream)
    start, end = log.bounds()
    assert start == end
    again = log.write()
    assert (again == 0) if log.dense else (again > base + 4)
    assert log.offsets() == [again + n for n in range(5)]
    assert log.bounds()[1] == again + 5


def test_a_key_of_another_type_is_a_storage_error(log: Log) -> None:
    log.redis.set(log.stream, "x")
    assert log.kafka.produce(log.topic, batch(FIVE)).error_code == 56
    assert log.code(0) == 56
    assert log.kafka.list_offsets(log.topic, -1).error_code == 56
    log.redis.delete(log.stream)
    assert log.offsets(log.write())


# -- XADD by hand


def test_any_fields_in_any_order(broker: KetchServer, kafka: Kafka, topic: str) -> None:
    log = Log(kafka, broker.redis(), topic, "time")
    now = time.time_ns() // 1_000_000
    entries: list[dict[str, str]] = [
        {"value": "v"},
        {"header.h": "1", "value": "v", "timestamp": "5", "key": "k"},
        {"temperature": "21", "unit": "C"},
        {"timestamp": "soon", "value": ""},
        {"key": "", "nullheader.n": "ignored", "header.": "e"},
    ]
    for n, fields in enumerate(entries):
        log.redis.xadd(log.stream, fields, f"{now}-{n}")  # type: ignore[arg-type]
    found = [record[1:] for record in kafka.read_all(topic)]
    assert found == [
        (now, None, b"v", ()),
        (5, b"k", b"v", ((b"h", b"1"),)),
        (now, None, None, ()),
        (now, None, b"", ()),
        (now, b"", None, ((b"n", None), (b"", b"e"))),
    ]


def test_a_batch_spans_no_more_than_an_int32(broker: KetchServer, kafka: Kafka, topic: str) -> None:
    log = Log(kafka, broker.redis(), topic, "time")
    now = time.time_ns() // 1_000_000
    for n in range(4):
        log.redis.xadd(log.stream, {"value": str(n)}, f"{now + n * HOUR}-0")
    read = split(kafka.fetch(topic, now << 10).records)
    assert [one.base_offset for one in read] == [(now + n * HOUR) << 10 for n in range(4)]
    assert [one.count for one in read] == [1] * 4
    assert log.write() > (now + 3 * HOUR) << 10, "ids rise although the clock is behind"


def test_a_gap_wider_than_an_int32(broker: KetchServer, kafka: Kafka, topic: str) -> None:
    log = Log(kafka, broker.redis(), topic, "time")
    now = time.time_ns() // 1_000_000
    log.redis.xadd(log.stream, {"value": "a"}, f"{now}-0")
    log.redis.xadd(log.stream, {"value": "b"}, f"{now + HOUR}-0")
    log.redis.xdel(log.stream, f"{now + HOUR}-0")
    assert log.offsets(now << 10) == [now << 10]
    assert log.bounds()[1] == ((now + HOUR) << 10) + 1


def test_written_by_hand_between_produced_batches(log: Log) -> None:
    produced, by_hand = [], []
    for _ in range(20):
        produced.append(log.write())
        entry = log.redis.xadd(log.stream, {"value": "hand"}, "*" if not log.dense else log.entry(produced[-1] + 5))
        ms, seq = entry.decode().split("-")
        by_hand.append((int(ms) << 10) + int(seq) - log.dense)
    expected = sorted([base + n for base in produced for n in range(5)] + by_hand)
    assert log.offsets() == expected


@pytest.mark.parametrize("entry", ["9007199254740992-0", "18446744073709551615-1"])
@pytest.mark.parametrize("layout", ["record", "batch"])
@pytest.mark.parametrize("kind", ["time", "dense"])
@pytest.mark.parametrize("count", [1, 5], ids=["one record", "five"])
def test_nothing_is_stored_behind_an_id_beyond_kafkas_offsets(
    broker: KetchServer, kafka: Kafka, topic: str, entry: str, layout: str, kind: str, count: int
) -> None:
    """Neither where this broker would choose the ids nor where Redis does, behind another client's write."""
    log = Log(kafka, broker.redis(), topic, kind, storage_layout=layout)
    producer = kafka.producer_id()
    plain = batch(FIVE[:count])
    idempotent = [batch(FIVE[:count], producer_id=producer, base_sequence=n, producer_epoch=0) for n in (0, count)]
    kafka.stored(topic, plain)
    base = kafka.stored(topic, idempotent[0])
    states = log.redis.hgetall(f"korvet:producers:{{{log.stream}}}")
    log.redis.xadd(log.stream, {"value": "far"}, entry)
    entries = log.redis.xlen(log.stream)
    for data in (plain, idempotent[1], plain, idempotent[1]):  # the first by Redis's ids, the others by the broker's
        answer = kafka.produce(topic, data)
        assert (answer.error_code, answer.base_offset) == (STORAGE_ERROR, -1)
        assert "beyond Kafka's offsets" in answer.error_message
    assert log.redis.xlen(log.stream) == entries
    assert log.redis.hgetall(f"korvet:producers:{{{log.stream}}}") == states
    assert log.code(base) == STORAGE_ERROR
    assert {kafka.list_offsets(topic, timestamp).error_code for timestamp in (-1, -2, 0)} == {STORAGE_ERROR}
    log.redis.delete(log.stream)
    assert kafka.stored(topic, idempotent[1]) < 2**62, "a new stream can be used"


@pytest.mark.parametrize("layout", ["record", "batch"])
@pytest.mark.parametrize("kind", ["time", "dense"])
def test_the_last_of_kafkas_offsets(broker: KetchServer, kafka: Kafka, topic: str, layout: str, kind: str) -> None:
    """A batch that would cross it is refused whole; what fits is stored and read, up to the last offset of all."""
    log = Log(kafka, broker.redis(), topic, kind, storage_layout=layout)
    last = 2**63 - 2  # the high watermark behind it is an int64 too
    log.redis.xadd(log.stream, {"value": "far"}, log.entry(last - 2))
    assert kafka.produce(topic, batch(FIVE)).error_code == STORAGE_ERROR
    assert kafka.stored(topic, batch(FIVE[:1])) == last - 1
    log.redis.xdel(log.stream, log.entry(last - 2))  # another client's change: Redis chooses the next ids
    assert kafka.produce(topic, batch(FIVE[:2])).error_code == STORAGE_ERROR
    assert kafka.stored(topic, batch(FIVE[:1])) == last
    assert kafka.produce(topic, batch(FIVE[:1])).error_code == STORAGE_ERROR
    assert log.redis.xlen(log.stream) == 2
    assert log.offsets(last - 1) == [last - 1, last]
    assert log.bounds()[1] == last + 1


def test_a_run_of_large_records_between_small_ones(broker: KetchServer, kafka: Kafka, topic: str) -> None:
    """What one XRANGE is asked for is bounded by the largest record, not by the average of those seen."""
    log = Log(kafka, broker.redis(), topic, "time")
    log.write()
    noted = log.redis.hget(f"korvet:topic:{topic}", "largestRecord")
    assert noted is None
    kafka.stored(topic, batch(records([b"x" * 300_000, b"y"])))
    assert int(log.redis.hget(f"korvet:topic:{topic}", "largestRecord")) == 1 << 19
