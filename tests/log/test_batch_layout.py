"""The batch layout: what lies in the stream, and all that works on the record layout works on it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from ketch.store.layouts.table import LAYOUTS
from ketch.store.offsets import OffsetNumbering
from ketch.wire.pieces import Pieces
from tests.support.batches import HEADER, batch, record, records
from tests.support.groups import Member, assignment, subscription
from tests.support.kafka import DELETE_RECORDS, Kafka, ms, split
from tests.support.ketch import KetchServer, eventually

FIVE = records([b"0", b"1", b"2", b"3", b"4"])
NOW = time.time_ns() // 1_000_000
ACCEPTED_THOUGH = {  # batches that only a look at the records would refuse
    "a record more than the header says": batch(FIVE, count=4, last_offset_delta=3),
    "no varint": batch([b"\xff" * 20]),
    "gzip that is none": batch(FIVE, codec=1, payload=b"this is compressed by no codec"),
    "zstd that is none": batch(FIVE, codec=4, payload=b"this is compressed by no codec"),
}


class Log:
    """A topic in the batch layout and its stream."""

    def __init__(self, kafka: Kafka, client: redis.Redis, topic: str, kind: str, **configs: Any) -> None:
        kafka.create(topic, offset_ids=kind, storage_layout="batch", **configs)
        self.kafka, self.redis, self.topic, self.dense = kafka, client, topic, kind == "dense"
        self.stream = f"korvet:stream:{topic}:0"

    def write(self, data: bytes | None = None) -> int:
        return self.kafka.stored(self.topic, data or batch(FIVE))

    def entry(self, offset: int) -> str:
        number = offset + self.dense
        return f"{number >> 10}-{number & 1023}"

    @property
    def entries(self) -> list[tuple[str, dict[bytes, bytes]]]:
        return [(entry.decode(), fields) for entry, fields in self.redis.xrange(self.stream)]

    def bounds(self) -> tuple[int, int]:
        start, end = (self.kafka.list_offsets(self.topic, timestamp).offset for timestamp in (-2, -1))
        answer = self.kafka.fetch(self.topic, end)
        assert (answer.error_code, answer.log_start_offset, answer.high_watermark) == (0, start, end)
        return start, end

    def fetched(self, offset: int, **given: Any) -> Any:
        answer = self.kafka.fetch(self.topic, offset, **given)
        assert answer.error_code == 0
        return split(answer.records)

    def code(self, offset: int) -> int:
        return int(self.kafka.fetch(self.topic, offset).error_code)

    def offsets(self, offset: int | None = None) -> list[int]:
        return [record.offset for record in self.kafka.read_all(self.topic, offset)]

    def starts_at(self, offset: int) -> None:
        """Waits until the broker has heard of what was done to the stream."""
        eventually(lambda: self.kafka.list_offsets(self.topic, -2).offset == offset)

    def delete_before(self, offset: int) -> int:
        asked = {"partition_index": 0, "offset": offset}
        topics = [{"name": self.topic, "partitions": [asked]}]
        answer = self.kafka.ask(DELETE_RECORDS, 2, topics=topics, timeout=10_000).topics[0].partitions[0]
        assert answer.error_code == 0
        return int(answer.low_watermark)

    def find(self, timestamp: int) -> tuple[int, int]:
        answer = self.kafka.list_offsets(self.topic, timestamp)
        return answer.offset, ms(answer.timestamp) if not isinstance(answer.timestamp, int) else answer.timestamp


@pytest.fixture(params=["time", "dense"])
def log(request: pytest.FixtureRequest, broker: KetchServer, kafka: Kafka, topic: str) -> Log:
    return Log(kafka, broker.redis(), topic, request.param)


@pytest.fixture
def kafka(broker: KetchServer) -> Iterator[Kafka]:
    with Kafka(broker.port) as client:
        yield client


# -- what lies in Redis, and what comes back


@pytest.mark.parametrize("codec", range(5))
def test_an_entry_is_the_batch_as_it_was_produced(log: Log, codec: int) -> None:
    data = batch(FIVE, codec=codec, producer_id=7, producer_epoch=0, base_sequence=0)
    base = log.write(data)
    assert log.entries == [(log.entry(base + 4), {b"batch": data})]
    answer = log.kafka.fetch(log.topic, base)
    assert answer.records[16:] == data[16:]
    assert HEADER.unpack_from(answer.records)[:3] == (base, len(data) - 12, 0)


def test_a_fetch_in_the_middle_gives_the_whole_batch(log: Log) -> None:
    first, second = log.write(), log.write()
    (one, two) = log.fetched(first + 3)
    assert (one.base_offset, two.base_offset) == (first, second)
    assert log.offsets(first + 3) == [first + 3, first + 4, *range(second, second + 5)]
    assert [b.base_offset for b in log.fetched(second + 4)] == [second]


def test_max_bytes_and_at_least_one_batch(log: Log) -> None:
    bases = [log.write() for _ in range(5)]
    size = len(batch(FIVE))
    for limit, count in ((1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (4 * size, 4)):
        assert [b.base_offset for b in log.fetched(bases[0], partition_max_bytes=limit)] == bases[:count]


def test_log_append_time(broker: KetchServer, kafka: Kafka, topic: str) -> None:
    log = Log(kafka, broker.redis(), topic, "dense", message_timestamp_type="LogAppendTime")
    stamps = []
    for codec in range(5):
        answer = kafka.produce(topic, batch(FIVE, codec=codec))
        assert answer.error_code == 0
        stamps.append(ms(answer.log_append_time))
    for n, found in enumerate(log.fetched(0)):  # split checks the checksum
        assert {r.timestamp for r in found.records} == {stamps[n]}
    assert log.find(stamps[0]) == (0, stamps[0])


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_another_compression_than_the_producers(broker: KetchServer, kafka: Kafka, topic: str, wanted: str) -> None:
    log = Log(kafka, broker.redis(), topic, "dense", compression_type=wanted)
    number = ["uncompressed", "gzip", "snappy", "lz4", "zstd"].index(wanted)
    for codec in range(5):
        log.write(batch(FIVE, codec=codec))
    assert {HEADER.unpack_from(fields[b"batch"])[5] & 7 for _, fields in log.entries} == {number}
    assert [r.value for r in kafka.read_all(topic)] == [b"0", b"1", b"2", b"3", b"4"] * 5


def test_zstd_for_a_client_that_does_not_know_it(log: Log) -> None:
    base = log.write(batch(FIVE, codec=4))
    assert HEADER.unpack_from(log.kafka.fetch(log.topic, base, version=10).records)[5] == 4
    old = log.kafka.fetch(log.topic, base, version=9).records
    assert HEADER.unpack_from(old)[5] == 0
    assert [r.value for r in split(old)[0].records] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_count_that_cannot_be_uses_up_no_offsets(log: Log) -> None:
    end = log.write() + 5
    for codec in (0, 1):
        data = batch(FIVE, codec=codec, count=10**9, last_offset_delta=10**9 - 1)
        assert log.kafka.produce(log.topic, data).error_code == 87
    assert log.bounds()[1] == end


@pytest.mark.parametrize("case", list(ACCEPTED_THOUGH))
def test_a_batch_whose_records_are_damaged_harms_no_other(log: Log, case: str) -> None:
    first = log.write(batch(FIVE, base_timestamp=NOW - 10))
    log.write(ACCEPTED_THOUGH[case])
    last = log.write(batch(FIVE, base_timestamp=NOW))
    assert log.fetched(first, partition_max_bytes=1)[0].base_offset == first
    assert log.offsets(last) == [last + n for n in range(5)]
    assert log.find(NOW - 10) == (first, NOW - 10)
    assert log.find(NOW) == (last, NOW)


# -- trimming


def test_trimming_takes_whole_batches(log: Log) -> None:
    first, second = log.write(), log.write()
    log.redis.xtrim(log.stream, minid=log.entry(first + 3), approximate=False)
    assert len(log.entries) == 2, "the batch holds a record that stays"
    log.redis.xtrim(log.stream, minid=log.entry(first + 5), approximate=False)
    log.starts_at(second)
    assert log.bounds() == (second, second + 5)
    assert [log.code(offset) for offset in (second - 1, second, second + 5, second + 6)] == [1, 0, 0, 1]


def test_emptied(log: Log) -> None:
    end = log.write() + 5
    log.redis.xtrim(log.stream, maxlen=0, approximate=False)
    log.starts_at(end)
    assert log.bounds() == (end, end)
    base = log.write()
    assert base >= end
    assert log.offsets() == [base + n for n in range(5)]


def test_delete_records_to_the_middle_of_a_batch(log: Log) -> None:
    first, second = log.write(), log.write()
    assert log.delete_before(second + 2) == second + 2
    assert log.bounds() == (second + 2, second + 5)
    assert [entry for entry, _ in log.entries] == [log.entry(second + 4)]
    assert [log.code(offset) for offset in (first, second, second + 1, second + 2)] == [1, 1, 1, 0]
    assert log.offsets() == [second + 2, second + 3, second + 4]
    assert log.kafka.list_offsets(log.topic, 0).offset == second + 2
    assert log.kafka.list_offsets(log.topic, -3).offset >= second + 2
    assert log.delete_before(-1) == second + 5
    assert log.bounds() == (second + 5, second + 5)


def test_a_batch_deleted_in_the_middle(log: Log) -> None:
    bases = [log.write() for _ in range(3)]
    log.redis.xdel(log.stream, log.entry(bases[1] + 4))
    for offset in (bases[1], bases[1] + 3):
        assert log.offsets(offset) == [bases[2] + n for n in range(5)]
    log.redis.xdel(log.stream, log.entry(bases[2] + 4))
    (gap,) = log.fetched(bases[2] + 1, max_wait=60_000)
    assert (gap.base_offset, gap.last_offset, gap.count) == (bases[2] + 1, bases[2] + 4, 0)


# -- by hand


def test_somebody_elses_entries_are_records(log: Log) -> None:
    bases, by_hand = [], []
    for n in range(3):
        bases.append(log.write())
        fields: dict[str, str | bytes] = {"key": "k", "value": f"hand {n}", "header.a": "b"}
        by_hand.append(log.redis.xadd(log.stream, fields, log.entry(bases[-1] + 5)))
    produced = [base + n for base in bases for n in range(5)]
    assert log.offsets() == sorted(produced + [base + 5 for base in bases])
    found = [r for r in log.kafka.read_all(log.topic) if r.value.startswith(b"hand")]
    assert [(r.key, r.headers) for r in found] == [(b"k", ((b"a", b"b"),))] * 3
    log.redis.xadd(log.stream, {"batch": "none"}, log.entry(bases[-1] + 6))
    assert log.kafka.read_all(log.topic)[-1].value is None
    log.redis.xtrim(log.stream, minid=by_hand[0], approximate=False)
    log.starts_at(bases[0] + 5)


def test_the_recipe_of_the_documentation(broker: KetchServer, log: Log) -> None:
    page = (Path(__file__).parents[2] / "docs/redis-layout.md").read_text()
    (recipe,) = (text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if ":fast" in text)
    first, second = log.write(), log.write(batch(FIVE, codec=4))
    recipe = recipe.replace("6380", str(broker.redis_port)).replace(":fast", f":{log.topic}")
    printed = subprocess.run([sys.executable, "-c", recipe], capture_output=True, text=True, check=True).stdout
    offsets = [base + n for base in (first, second) for n in range(5)]
    assert printed.splitlines() == [f"{offset} None b'{n % 5}'" for n, offset in enumerate(offsets)]


# -- searching


def test_by_timestamp_within_a_batch(log: Log) -> None:
    bases = []
    for start in range(0, 300, 100):
        rows = [record(b"", offset_delta=n, timestamp_delta=n) for n in range(100)]
        data = batch(rows, codec=start // 100, base_timestamp=NOW + start, max_timestamp=NOW + start + 99)
        bases.append(log.write(data))
    for n in (0, 1, 99, 100, 150, 299):
        assert log.find(NOW + n) == (bases[n // 100] + n % 100, NOW + n)
    assert log.find(NOW + 300) == (-1, -1)
    assert log.find(-3) == (bases[2] + 99, NOW + 299)


def test_bisection(broker: KetchServer, kafka: Kafka, topic: str) -> None:
    log = Log(kafka, broker.redis(), topic, "dense")
    rows = [record(b"x" * 30_000, offset_delta=n, timestamp_delta=n) for n in range(10)]
    for start in range(0, 2000, 10):
        log.write(batch(rows, base_timestamp=NOW + start, max_timestamp=NOW + start + 9))
    for n in (0, 7, 10, 1234, 1999):
        assert log.find(NOW + n) == (n, NOW + n)


# -- groups


class Reader(Member):
    """The only member of a group; it has been assigned partition 0 of a topic."""

    def __init__(self, server: KetchServer, topic: str) -> None:
        super().__init__(server.port, f"g-{topic}")
        self.topic, self.redis, self.stream = topic, server.redis(), f"korvet:stream:{topic}:0"
        self.enter(protocols={"range": subscription(topic)})
        assert self.sync({self.id: assignment({topic: [0]})}).error_code == 0

    def read(self, offset: int) -> list[int]:
        answer = self.fetch(self.topic, offset)
        assert answer.error_code == 0
        return [r.offset for b in split(answer.records) for r in b.records if r.offset >= offset]

    @property
    def pending(self) -> int:
        (row,) = self.redis.xinfo_groups(self.stream)
        return int(row["pending"])


def test_a_commit_acknowledges_the_batches_below_it(broker: KetchServer, log: Log) -> None:
    bases = [log.write() for _ in range(3)]
    end = bases[-1] + 5
    with Reader(broker, log.topic) as reader:
        assert len(reader.read(bases[0])) == 15
        assert reader.pending == 3
        for offset, left in ((bases[0] + 4, 3), (bases[0] + 5, 2), (bases[1] + 3, 2), (bases[2], 1), (end, 0)):
            assert reader.commit(log.topic, offset) == 0
            eventually(lambda left=left: reader.pending == left)
        (row,) = reader.redis.xinfo_groups(reader.stream)
        assert row["last-delivered-id"].decode() == log.entry(end - 1)
        assert row.get("lag", 0) == 0
        base = log.write()
        assert reader.read(base + 2) == [base + 2, base + 3, base + 4]
        assert reader.pending == 1
        reader.leave()
    eventually(lambda: log.redis.xinfo_consumers(log.stream, f"g-{log.topic}") == [])
    with Reader(broker, log.topic) as successor:
        assert successor.read(base) == [base + n for n in range(5)], "what was not committed is delivered anew"


@pytest.mark.parametrize("large", [1, 30])
def test_what_is_served_does_not_keep_a_much_larger_reply(large: int) -> None:
    """Which the first batch's size has let nobody expect."""
    batches = [batch(records([bytes(40_000)])), *[batch(records([bytes(50_000)]))] * large]
    entries = [
        b"*2\r\n$4\r\n1-%02d\r\n*2\r\n$5\r\nbatch\r\n$%d\r\n%b\r\n" % (n, len(data), data)
        for n, data in enumerate(batches)
    ]
    reply = b"*%d\r\n%b" % (len(entries), b"".join(entries))
    chunk = LAYOUTS["batch"].read(reply, OffsetNumbering(), 60_000, False)
    served = chunk.served(0, True)
    assert isinstance(served, Pieces)
    assert b"".join(served.pieces)[16:] == batches[0][16:]
    kept = [len(piece.obj) for piece in served.pieces if isinstance(piece, memoryview)]
    assert sum(kept) <= 3 * len(batches[0])
