"""Fetch: limits, errors, waiting. Sessions have a file of their own."""

from __future__ import annotations

import random
import subprocess
import threading
import time

import pytest

from tests.support.batches import CODECS, batch, record, records
from tests.support.kafka import FETCH, NO_ID, Kafka, fetch, part, split
from tests.support.ketch import KetchServer

pytestmark = pytest.mark.storage("record", "batch")

THREE = records([b"a", b"b", b"c"])
LONG = 5_000  # ms; a test that waits so long has failed


def fill(kafka: Kafka, topic: str, count: int, size: int, partition: int = 0) -> int:
    """`count` records of `size` bytes, one batch each; the first offset."""
    return min(kafka.stored(topic, batch([record(bytes(size))]), partition=partition) for _ in range(count))


def values(answer: object) -> list[bytes | None]:
    return [record.value for read in split(answer.records) for record in read.records]  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", [4, 7, 12])
@pytest.mark.only_storage("record", "batch")
def test_an_offset_outside_the_log(kafka: Kafka, made: str, version: int) -> None:
    end = kafka.stored(made, batch(THREE)) + 3
    start = kafka.list_offsets(made, -2).offset
    for offset in (end + 1, start - 1, 0, -1, -(2**63), 2**63 - 1):
        answer = kafka.fetch(made, offset, version, max_wait=LONG)
        assert (answer.error_code, answer.high_watermark, answer.last_stable_offset, answer.records) == (1, -1, -1, b"")
        if version >= 5:
            assert answer.log_start_offset == -1


@pytest.mark.parametrize("version", [4, 12])
def test_an_unknown_topic_or_partition(kafka: Kafka, made: str, version: int) -> None:
    for name, partition in (("nowhere", 0), ("a b", 0), ("", 0), (made, 2), (made, -1)):
        answer = kafka.fetch(name, 0, version, partition, max_wait=LONG)
        assert (answer.error_code, answer.high_watermark, answer.records) == (3, -1, b"")


@pytest.mark.parametrize("version", [13, 16])
def test_an_unknown_topic_id(kafka: Kafka, made: str, version: int) -> None:
    for topic_id in (NO_ID, kafka.topic_id(made).__class__(int=7)):
        answer = kafka.fetch(topic_id, 0, version, max_wait=LONG)
        assert (answer.error_code, answer.high_watermark, answer.records) == (100, -1, b"")
    assert kafka.fetch(kafka.topic_id(made), 0, version, 2, max_wait=LONG).error_code == 3


def test_leader_epochs_and_replicas(kafka: Kafka, made: str) -> None:
    base = kafka.stored(made, batch(THREE))
    codes = [kafka.fetch(made, base, current_leader_epoch=epoch).error_code for epoch in (-1, 0, 3)]
    assert codes == [0, 0, 75]


def test_read_committed_gets_an_empty_list_of_aborted_transactions(kafka: Kafka, made: str) -> None:
    base = kafka.stored(made, batch(THREE))
    assert [kafka.fetch(made, base, isolation_level=level).aborted_transactions for level in (0, 1)] == [None, ()]


def test_from_the_middle_of_a_batch(kafka: Kafka, made: str) -> None:
    base = kafka.stored(made, batch(THREE))
    read = [r for b in split(kafka.fetch(made, base + 2).records) for r in b.records if r.offset >= base + 2]
    assert [record.value for record in read] == [b"c"]


@pytest.mark.parametrize("limits", [{"max_bytes": 0}, {"max_bytes": 1}, {"partition_max_bytes": 0}, {"max_bytes": -5}])
def test_one_record_at_least(kafka: Kafka, made: str, limits: dict[str, int]) -> None:
    base = fill(kafka, made, 3, 1000)
    assert values(kafka.fetch(made, base, **limits)) == [bytes(1000)]


def test_one_record_at_least_from_one_partition_only(kafka: Kafka, made: str) -> None:
    bases = [fill(kafka, made, 2, 1000, partition) for partition in (0, 1)]
    asked = [part(made, n, base) for n, base in enumerate(bases)]
    answer = kafka.ask(FETCH, 12, **fetch(asked, max_bytes=1))
    assert [len(values(topic.partitions[0])) for topic in merge(answer)] == [1, 0]


def merge(answer: object) -> list[object]:
    """The topics of the answer, a partition each."""

    class One:
        def __init__(self, partition: object) -> None:
            self.partitions = [partition]

    return [One(p) for topic in answer.responses for p in topic.partitions]  # type: ignore[attr-defined]


def test_limits_are_kept(kafka: Kafka, made: str) -> None:
    base = fill(kafka, made, 20, 1000)
    assert 9 <= len(values(kafka.fetch(made, base, partition_max_bytes=10_500))) <= 10
    assert 9 <= len(values(kafka.fetch(made, base, max_bytes=10_500))) <= 10
    assert len(values(kafka.fetch(made, base))) == 20


SIZES = {0: [1000, 1000], 1: [50_000, 1000]}  # of the records in each partition


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize(
    ("order", "limits", "given"),
    [
        ((0, 1), {"max_bytes": 20_000}, {0: 2, 1: 0}),
        ((1, 0), {"max_bytes": 20_000}, {0: 0, 1: 1}),
        ((0, 1), {"partition_max_bytes": 20_000}, {0: 2, 1: 0}),
        ((1, 0), {"partition_max_bytes": 20_000}, {0: 2, 1: 1}),
        ((1, 0), {"max_bytes": 50_500, "partition_max_bytes": 20_000}, {0: 0, 1: 1}),
        ((0, 1), {"max_bytes": 150_000}, {0: 2, 1: 2}),
    ],
)
@pytest.mark.parametrize("twice", [False, True], ids=["from Redis", "from memory"])
def test_only_the_first_partition_may_exceed_the_limits(
    kafka: Kafka,
    made: str,
    codec: str,
    order: tuple[int, ...],
    limits: dict[str, int],
    given: dict[int, int],
    twice: bool,
) -> None:
    """By the one record that has to be given (KIP-74, ReplicaManager.readFromLog)."""
    bases = {}
    for partition, sizes in SIZES.items():
        batches = [batch([record(random.Random(size).randbytes(size))], codec=CODECS[codec]) for size in sizes]
        bases[partition] = min(kafka.stored(made, data, partition=partition) for data in batches)
    if twice:
        kafka.ask(FETCH, 12, **fetch([part(made, n, bases[n]) for n in order]))
    inner = {key: value for key, value in limits.items() if key == "partition_max_bytes"}
    asked = [part(made, n, bases[n], **inner) for n in order]
    answer = kafka.ask(FETCH, 12, **fetch(asked, max_bytes=limits.get("max_bytes", 1 << 20)))
    assert {p.partition_index: len(values(p)) for t in answer.responses for p in t.partitions} == given


@pytest.mark.parametrize("stamp", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("limit", [100, 2_000, 10_000, 10_500])
def test_headers_of_batches_count(kafka: Kafka, topic: str, limit: int, stamp: str) -> None:
    kafka.create(topic, message_timestamp_type=stamp)
    base = fill(kafka, topic, 40, 400)
    for given in ({"max_bytes": limit}, {"partition_max_bytes": limit}):
        answer = kafka.fetch(topic, base, **given)
        assert len(answer.records) <= limit or len(values(answer)) == 1
        assert len(values(answer)) >= limit // 800


def test_several_partitions_share_max_bytes(kafka: Kafka, made: str) -> None:
    bases = [fill(kafka, made, 10, 1000, partition) for partition in (0, 1)]
    asked = [part(made, n, base) for n, base in enumerate(bases)]
    first, second = merge(kafka.ask(FETCH, 12, **fetch(asked, max_bytes=15_000)))
    assert len(values(first.partitions[0])) == 10  # type: ignore[attr-defined]
    assert 2 <= len(values(second.partitions[0])) <= 5  # type: ignore[attr-defined]


def test_hundreds_of_partitions(kafka: Kafka, topic: str) -> None:
    kafka.create(topic, partitions=300)
    bases = [kafka.stored(topic, batch(THREE), partition=n) for n in range(300)]
    for limit in (1 << 20, 1 << 19):  # what the first reader got will do for the second
        asked = [part(topic, n, base, partition_max_bytes=limit) for n, base in enumerate(bases)]
        answer = kafka.ask(FETCH, 12, **fetch(asked))
        found = [(p.partition_index, len(values(p))) for each in answer.responses for p in each.partitions]
        assert found == [(n, 3) for n in range(300)]


def test_answers_come_in_the_order_asked_and_the_later_of_two_wins(kafka: Kafka, made: str) -> None:
    bases = [kafka.stored(made, batch(THREE), partition=n) for n in (0, 1)]
    asked = [part(made, 1, bases[1]), part("nowhere", 0, 0), part(made, 0, 7), part(made, 0, bases[0])]
    answer = kafka.ask(FETCH, 12, **fetch(asked))
    found = [
        (t.topic, [(p.partition_index, p.error_code, len(values(p))) for p in t.partitions]) for t in answer.responses
    ]
    assert found == [(made, [(1, 0, 3), (0, 0, 3)]), ("nowhere", [(0, 3, 0)])]


def test_no_topics(kafka: Kafka) -> None:
    answer = kafka.ask(FETCH, 12, **fetch([], max_wait=LONG))
    assert (answer.error_code, answer.session_id, answer.responses) == (0, 0, ())


# -- waiting


WAITED = 0.198  # s of 200 ms: the broker's loop counts whole milliseconds, from when it last looked at the clock


def waited(kafka: Kafka, topic: str, offset: int, **given: int) -> tuple[float, object]:
    begin = time.monotonic()
    answer = kafka.fetch(topic, offset, **given)
    return time.monotonic() - begin, answer


@pytest.mark.parametrize(
    "given",
    [{"max_wait": 0}, {"max_wait": -1}, {"max_wait": LONG, "min_bytes": 0}, {"max_wait": LONG, "min_bytes": -1}],
)
def test_at_the_high_watermark_without_waiting(kafka: Kafka, made: str, given: dict[str, int]) -> None:
    end = kafka.stored(made, batch(THREE)) + 3
    _, answer = waited(kafka, made, end, **given)
    assert (answer.error_code, answer.high_watermark, answer.records) == (0, end, b"")  # type: ignore[attr-defined]


def test_at_the_high_watermark_it_waits(kafka: Kafka, made: str) -> None:
    end = kafka.stored(made, batch(THREE)) + 3
    took, answer = waited(kafka, made, end, max_wait=200)
    assert took >= WAITED
    assert (answer.error_code, answer.high_watermark, answer.records) == (0, end, b"")  # type: ignore[attr-defined]


def test_min_bytes_holds_it_back_and_then_gives_what_there_is(kafka: Kafka, made: str) -> None:
    base = kafka.stored(made, batch(THREE))
    took, answer = waited(kafka, made, base, max_wait=200, min_bytes=10_000)
    assert took >= WAITED
    assert values(answer) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("compression", ["uncompressed", "zstd"])
def test_min_bytes_hold_back_nobody_who_is_behind(kafka: Kafka, topic: str, compression: str) -> None:
    """Whatever becomes of the bytes that were asked for: sizes are a guess, and entries may be served compressed."""
    kafka.create(topic, 1, compression_type=compression)
    offset = kafka.stored(topic, batch(records([bytes(300)])))  # larger than all that follow
    for _ in range(30):
        kafka.stored(topic, batch(records([b"%0100d" % n for n in range(100)])))
    begin, count = time.monotonic(), 0
    while count < 1500:
        answer = kafka.fetch(topic, offset, max_wait=LONG, min_bytes=5000, partition_max_bytes=5000)
        read = [record.offset for one in split(answer.records) for record in one.records]
        offset, count = read[-1] + 1, count + len(read)
        assert time.monotonic() - begin < LONG / 1000


def test_an_offset_out_of_range_ends_the_wait_of_the_others(kafka: Kafka, made: str) -> None:
    end = kafka.stored(made, batch(THREE)) + 3
    asked = [part(made, 0, end), part(made, 1, 5)]
    answer = kafka.ask(FETCH, 12, **fetch(asked, max_wait=60_000))
    assert [p.error_code for p in answer.responses[0].partitions] == [0, 1]


def test_an_unknown_partition_does_not(kafka: Kafka, made: str) -> None:
    end = kafka.stored(made, batch(THREE)) + 3
    begin = time.monotonic()
    answer = kafka.ask(FETCH, 12, **fetch([part(made, 0, end), part(made, 9, 5)], max_wait=200))
    assert time.monotonic() - begin >= WAITED
    assert [p.error_code for p in answer.responses[0].partitions] == [0, 3]


class Waiting:
    """A fetch at the end of two partitions that waits for ever, as good as."""

    def __init__(self, port: int, topic: str, **given: int) -> None:
        self.kafka = Kafka(port, timeout=20)
        ends = [self.kafka.list_offsets(topic, -1, partition=n).offset for n in (0, 1)]
        self.kafka.send(
            FETCH, 12, **fetch([part(topic, n, end) for n, end in enumerate(ends)], max_wait=60_000, **given)
        )

    def values(self) -> list[list[bytes | None]]:
        _, answer = self.kafka.answer(FETCH, 12)
        self.kafka.close()
        return [values(p) for p in answer.responses[0].partitions]


def test_a_produce_wakes_all_who_wait(broker: KetchServer, kafka: Kafka, made: str) -> None:
    waiting = [Waiting(broker.port, made) for _ in range(20)]
    kafka.stored(made, batch(THREE), partition=1)
    assert [one.values() for one in waiting] == [[[], [b"a", b"b", b"c"]]] * 20


def test_a_native_xadd_wakes_who_waits(broker: KetchServer, made: str) -> None:
    waiting = Waiting(broker.port, made)
    stream = f"korvet:stream:{made}:1"
    subprocess.run(["redis-cli", "-c", "-p", str(broker.redis_port), "XADD", stream, "*", "value", "hello"], check=True)
    assert waiting.values() == [[], [b"hello"]]


def test_it_wakes_when_min_bytes_are_there(broker: KetchServer, kafka: Kafka, made: str) -> None:
    waiting = Waiting(broker.port, made, min_bytes=3000)
    for _ in range(4):
        kafka.stored(made, batch([record(bytes(1000))]))
    assert len(waiting.values()[0]) in (3, 4)


def test_a_topic_deleted_meanwhile_ends_the_wait(broker: KetchServer, kafka: Kafka, made: str) -> None:
    waiting = Waiting(broker.port, made)
    kafka.ask(20, 5, topic_names=[made], timeout=5000)
    _, answer = waiting.kafka.answer(FETCH, 12)
    assert [p.error_code for p in answer.responses[0].partitions] == [3, 3]


def test_waiting_holds_up_nobody_else(broker: KetchServer, kafka: Kafka, made: str) -> None:
    waiting = [Waiting(broker.port, made) for _ in range(50)]
    assert kafka.stored(made, batch(THREE)) >= 0
    assert all(one.values() for one in waiting)


def test_many_writers_and_one_who_waits(broker: KetchServer, kafka: Kafka, made: str) -> None:
    """Nothing is missed between an answer and the next wait."""

    def write() -> None:
        with Kafka(broker.port) as writer:
            for n in range(50):
                writer.stored(made, batch([record(b"%d" % n)]))

    offset = kafka.list_offsets(made, -1).offset
    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    found = 0
    while found < 150:
        answer = kafka.fetch(made, offset, max_wait=60_000)
        read = split(answer.records)
        found += sum(one.count for one in read)
        offset = read[-1].last_offset + 1
    for thread in threads:
        thread.join()
    assert found == 150
