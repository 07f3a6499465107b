"""Fetches of many partitions whose records have to be read from Redis: some reads are on their way while others end."""

from __future__ import annotations

import itertools
import os
import random
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.lane.conftest import LASTING
from tests.lane.test_fetch_states import BACK, DATA, KINDS, LONG, TAKEN, leave, of_kind, stopped
from tests.lane.test_states import Bench
from tests.support.batches import batch, records
from tests.support.kafka import FETCH, METADATA, Kafka, fetch, split
from tests.support.ketch import KetchServer, eventually

PARTITIONS = 24  # more than those up to which what is read is kept
Read = dict[int, list[bytes | None]]


class Wide:
    """A topic of many partitions; what is in them is in Redis alone, as the broker has started since.

    Args:
        sizes: bytes of the records of each partition, one batch for each.
    """

    def __init__(self, start: Callable[..., KetchServer], kind: str, sizes: Callable[[int], list[int]]):
        self.bench = bench = of_kind(start, kind, PARTITIONS)
        self.values: Read = {n: [b"%d" % n + bytes(size) for size in sizes(n)] for n in range(PARTITIONS)}
        self.starts = {n: bench.kafka.list_offsets("t", -1, partition=n).offset for n in range(PARTITIONS)}
        for n, values in self.values.items():
            for value in values:
                bench.kafka.stored("t", batch(records([value or b""])), partition=n)
        bench.restart()
        self.ask(self.starts)  # by Python

    def wanted(self, offsets: dict[int, int], most: int = 1 << 20) -> list[Any]:
        parts = [{"partition": n, "fetch_offset": offset, "partition_max_bytes": most, "current_leader_epoch": -1}
                 for n, offset in offsets.items()]  # fmt: skip
        return [{"topic": "t", "topic_id": "t", "partitions": parts}]

    def check(self, answer: Any) -> None:
        """It has all that there is."""
        seen: Read = {n: [] for n in self.values}
        found(answer, dict(self.starts), seen)
        assert seen == self.values

    def ask(self, offsets: dict[int, int], most: int = 1 << 20, **given: Any) -> Any:
        return self.bench.kafka.ask(FETCH, 12, **fetch(self.wanted(offsets, most), **given))

    def send(self, kafka: Kafka) -> None:
        """A fetch of all that there is, which the lane takes."""
        before = self.bench.count(TAKEN)
        kafka.send(FETCH, 12, **fetch(self.wanted(self.starts), LONG))
        eventually(lambda: self.bench.count(TAKEN) == before + 1, what="the lane to take it")


def nothing() -> Read:
    return {n: [] for n in range(PARTITIONS)}


def found(answer: Any, offsets: dict[int, int], seen: Read) -> set[int]:
    """Adds the values from these offsets on, which become those of what comes next; the partitions that gave some."""
    gave = set()
    for topic in answer.responses:
        for each in topic.partitions:
            n = each.partition_index
            assert each.error_code == 0
            lot = [record for one in split(each.records or b"") for record in one.records]
            lot = [record for record in lot if record.offset >= offsets[n]]
            seen[n] += [record.value for record in lot]
            if lot:
                offsets[n] = lot[-1].offset + 1
                gave.add(n)
    return gave


@pytest.fixture(params=KINDS)
def wide(request: pytest.FixtureRequest, start_ketch: Callable[..., KetchServer]) -> Iterator[Wide]:
    """Three megabytes, in some partitions nothing."""
    made = Wide(start_ketch, request.param, lambda n: [20_000 + 1000 * n] * (n % 8))
    yield made
    made.bench.kafka.close()


few = pytest.mark.parametrize("wide", KINDS[:2], indirect=True)


def test_all_at_once(wide: Wide) -> None:
    """The first of them lie behind a gap where offsets have the time in them: whether an archive has it, is asked."""
    bench, before = wide.bench, wide.bench.count(TAKEN)
    wide.check(wide.ask(wide.starts))
    for _ in range(100):  # what others have less room by is given back: else answers would become smaller
        wide.ask(wide.starts)
    wide.check(wide.ask(wide.starts))
    assert (bench.count(TAKEN), bench.count(BACK)) == (before + 102, 0)


def test_in_pieces(wide: Wide) -> None:
    """As in the handler: each within its limit, all together within theirs, the first one whatever its size."""
    before, asked = wide.bench.count(TAKEN), 0
    for most, max_bytes in itertools.product((1 << 20, 50_000, 1), (50 << 20, 200_000, 1)):
        offsets, seen = dict(wide.starts), nothing()
        order = list(offsets)
        while seen != wide.values:
            answer = wide.ask({n: offsets[n] for n in order}, most, max_bytes=max_bytes)
            asked += 1
            sizes = [len(each.records or b"") for topic in answer.responses for each in topic.partitions]
            first, *others = [size for size in sizes if size]
            assert sum(others) <= max(0, max_bytes - first)
            assert all(size <= most for size in others)
            got = found(answer, offsets, seen)
            order.sort(key=got.__contains__)  # who gave something comes last
    assert wide.bench.count(TAKEN) > before + asked // 3  # not where the first is in memory, and larger than its limit
    assert wide.bench.count(BACK) == 0


@few
def test_beside_what_is_in_memory(wide: Wide) -> None:
    """A batch that has just been appended, and has no room any more when others have been read, comes with the next."""
    bench, fresh = wide.bench, b"x" * 150_000
    at = bench.kafka.stored("t", batch(records([fresh])), partition=0)
    offsets = {**wide.starts, 0: at}
    order = [*range(1, PARTITIONS), 0]
    given, before, asked = set[int](), bench.count(TAKEN), 0
    while 0 not in given:
        asked += 1
        answer = wide.ask({n: offsets[n] for n in order}, max_bytes=300_000)
        given = found(answer, offsets, nothing())
        order.sort(key=given.__contains__)
    assert asked > 5
    assert (bench.count(TAKEN), bench.count(BACK)) == (before + asked, 0)


@pytest.mark.parametrize(("kind", "session"), [("record-time", True), ("record-dense", False), ("batch-time", False)])
def test_sizes_that_nobody_would_guess(start_ketch: Callable[..., KetchServer], kind: str, session: bool) -> None:
    """Large records among small ones: more comes than there is room for, and what is left out comes with the next."""
    some = random.Random(7)
    wide = Wide(start_ketch, kind, lambda n: [some.choice([10, 10, 10, 90_000]) for _ in range(12)])
    kafka, before = wide.bench.kafka, wide.bench.count(TAKEN)
    offsets, seen = dict(wide.starts), nothing()
    opened = kafka.ask(FETCH, 12, **fetch(wide.wanted(offsets), session_epoch=0 if session else -1, max_bytes=1))
    changed = found(opened, offsets, seen)
    epoch = 0
    while seen != wide.values:
        epoch += 1
        whose = {"session_id": opened.session_id, "session_epoch": epoch} if session else {}
        asked = {n: offsets[n] for n in changed} if session else offsets
        answer = kafka.ask(FETCH, 12, **fetch(wide.wanted(asked), max_bytes=300_000, **whose))
        assert sum(len(each.records or b"") for topic in answer.responses for each in topic.partitions) <= 400_000
        changed = found(answer, offsets, seen)
        assert changed
    assert (wide.bench.count(TAKEN), wide.bench.count(BACK)) == (before + epoch + (not session), 0)
    kafka.close()


@few
def test_redis_takes_its_time(wide: Wide) -> None:
    """Others are served, and what comes behind it waits."""
    bench = wide.bench
    with stopped(bench):
        wide.send(bench.kafka)
        bench.kafka.send(METADATA, 9, topics=[{"name": "t"}])
        with Kafka(bench.server.port) as other:
            other.ask(METADATA, 9, topics=[{"name": "t"}])
    wide.check(bench.kafka.answer(FETCH, 12)[1])
    assert bench.kafka.answer(METADATA, 9)[1].topics[0].error_code == 0
    assert bench.count(BACK) == 0


@few
def test_redis_dies(wide: Wide) -> None:
    bench = wide.bench
    with stopped(bench) as pid:
        wide.send(bench.kafka)
        os.kill(pid, signal.SIGKILL)
    bench.kafka.answer(FETCH, 12)  # errors, or the records from the Redis that comes next
    assert bench.count(BACK) == 1
    bench.redis = bench.server.redis()

    eventually(lambda: bench.kafka.produce("t", DATA).error_code == 0, what="the broker to be back")
    del wide.values[0], wide.starts[0]
    wide.check(wide.ask(wide.starts))


@few
def test_the_client_leaves(wide: Wide) -> None:
    """What its reads bring is nobody's; those of the next one are its own."""
    bench = wide.bench
    leave(bench, wide.send)
    wide.send(bench.kafka)
    wide.check(bench.kafka.answer(FETCH, 12)[1])
    assert bench.count(BACK) == 0


@few
def test_one_of_them_cannot_be_read(wide: Wide) -> None:
    """Its key holds no stream any more: Python gives its error, and the records of all others."""
    wide.bench.redis.set("korvet:stream:t:7", "no stream")
    answer = wide.ask(wide.starts)
    by_index = {each.partition_index: each for topic in answer.responses for each in topic.partitions}
    assert by_index.pop(7).error_code != 0
    for n, each in by_index.items():
        assert [record.value for one in split(each.records or b"") for record in one.records] == wide.values[n]


@pytest.mark.parametrize(("partitions", "taken"), [(4096, 1), (4097, 0)])
def test_as_many_as_the_lane_takes(start_ketch: Callable[..., KetchServer], partitions: int, taken: int) -> None:
    bench = Bench(start_ketch("--lane", "on", "--http-port", "0", "--default-offset-ids", "dense", *LASTING))
    bench.kafka.create("many", partitions)
    with Kafka(bench.server.port, timeout=60) as kafka:
        asked = [{"partition": n, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
                 for n in range(partitions)]  # fmt: skip
        asked[7]["fetch_offset"] = kafka.stored("many", DATA, partition=7)
        request = fetch([{"topic": "many", "topic_id": "many", "partitions": asked}])

        def answer() -> list[int]:
            (topic,) = kafka.ask(FETCH, 12, **request).responses
            return [each.partition_index for each in topic.partitions if each.records]

        assert answer() == [7]  # by Python, which looks at all of them
        before = bench.count(TAKEN)
        assert answer() == [7]
        assert bench.count(TAKEN) == before + taken
    bench.kafka.close()
