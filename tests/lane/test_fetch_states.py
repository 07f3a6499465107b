"""Each state of a fetch of the lane, and each event that ends its wait."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.lane.conftest import LASTING
from tests.lane.test_states import Bench
from tests.support.batches import batch, records
from tests.support.http import metrics
from tests.support.kafka import DELETE_TOPICS, FETCH, METADATA, PRODUCE, Kafka, fetch, part, produce, split
from tests.support.ketch import KetchServer, eventually

OUT_OF_RANGE, CORRUPT_MESSAGE, UNKNOWN_TOPIC, INVALID_EPOCH = 1, 2, 3, 71
TAKEN, BACK = ("ketch_lane_requests_total", "fetch"), ("ketch_lane_requests_taken_back_total", "fetch")
DATA = batch(records([b"news"]))
STREAM = "korvet:stream:t:0"
LONG = 30_000  # ms
PRODUCED = ("ketch_requests_total", "produce")


class Reading:
    """A client that reads a partition of the lane's broker."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.offset = bench.kafka.stored("t", DATA) + 1
        self.kafka = Kafka(bench.server.port)
        self.session, self.epoch = 0, 0
        opened = self.kafka.ask(FETCH, 12, **fetch([part("t", 0, self.offset)], session_epoch=0))
        self.session, self.epoch = opened.session_id, 1

    def send(self, max_wait: int = LONG, topics: list[Any] | None = None, **given: Any) -> int:
        """Sends the session's next fetch, which names nothing new."""
        whose = {"session_id": self.session, "session_epoch": self.epoch}
        self.epoch += 1
        return self.kafka.send(FETCH, 12, **fetch(topics or [], max_wait, **whose, **given))

    def wait(self, **given: Any) -> None:
        """The same, until the lane waits with it."""
        before = self.bench.count(TAKEN)
        self.send(**given)
        eventually(lambda: self.bench.count(TAKEN) == before + 1, what="the lane to wait")

    def answer(self) -> Any:
        return self.kafka.answer(FETCH, 12)[1]

    def values(self) -> list[bytes | None]:
        """Those of the answer, of the one partition there is."""
        (topic,) = self.answer().responses
        return [record.value for each in split(topic.partitions[0].records) for record in each.records]


@pytest.fixture
def reading(bench: Bench) -> Iterator[Reading]:
    made = Reading(bench)
    yield made
    made.kafka.close()


def test_a_wait_behind_a_request_of_another_kind(bench: Bench, reading: Reading) -> None:
    """The lane waits with it, and what comes behind it waits for its answer."""
    before, kafka, produced = bench.count(TAKEN), reading.kafka, metrics(bench.server)[PRODUCED]
    whose = {"session_id": reading.session, "session_epoch": reading.epoch}
    stream = [
        kafka.request(METADATA, 9, topics=[{"name": "t"}]),
        kafka.request(FETCH, 12, **fetch([], LONG, **whose)),
        kafka.request(PRODUCE, 9, **produce("t", DATA, partition=1)),
    ]
    kafka.socket.sendall(b"".join(len(frame).to_bytes(4) + frame for frame in stream))
    kafka.answer(METADATA, 9)
    eventually(lambda: bench.count(TAKEN) == before + 1, what="the lane to wait")
    assert metrics(bench.server)[PRODUCED] == produced
    bench.kafka.stored("t", DATA)
    assert reading.values() == [b"news"]
    assert kafka.answer(PRODUCE, 9)[1].responses[0].partition_responses[0].error_code == 0


def test_records_in_memory(bench: Bench, reading: Reading) -> None:
    before = bench.count(TAKEN)
    bench.kafka.stored("t", DATA)
    reading.send(0)
    assert reading.values() == [b"news"]
    assert bench.count(TAKEN) == before + 1


@pytest.mark.parametrize("session", [True, False])
def test_a_producer_of_this_broker(bench: Bench, reading: Reading, session: bool) -> None:
    if session:
        reading.wait()
    else:
        reading.session, reading.epoch = 0, -1
        reading.wait(topics=[part("t", 0, reading.offset)])
    bench.kafka.stored("t", DATA)
    assert reading.values() == [b"news"]
    assert bench.count(BACK) == 0


def test_another_writer(bench: Bench, reading: Reading) -> None:
    """What it has written is not in memory."""
    reading.wait()
    bench.redis.xadd(STREAM, {"value": "foreign"})
    assert reading.values() == [b"foreign"]
    assert bench.count(BACK) == 1


def test_the_time_is_up(bench: Bench, reading: Reading) -> None:
    reading.wait(max_wait=300)
    assert reading.answer().responses == ()
    assert bench.count(BACK) == 0


def test_too_little(bench: Bench, reading: Reading) -> None:
    """It is Python's from then on."""
    reading.wait(min_bytes=2 * len(DATA))
    bench.kafka.stored("t", DATA)
    eventually(lambda: bench.count(BACK) == 1, what="Python to wait")
    bench.kafka.stored("t", DATA)
    assert reading.values() == [b"news"] * 2


def test_news_of_another_partition(bench: Bench, reading: Reading) -> None:
    reading.wait(topics=[])
    bench.kafka.stored("t", DATA, partition=1)
    bench.kafka.stored("t", DATA)
    assert reading.values() == [b"news"]


def test_the_client_leaves(bench: Bench, reading: Reading) -> None:
    reading.wait()
    reading.kafka.close()
    eventually(lambda: bench.count(("ketch_queued_request_bytes", "")) == 0, what="its bytes to be given back")
    bench.kafka.stored("t", DATA)
    again = Reading(bench)
    again.wait()
    bench.kafka.stored("t", DATA)
    assert again.values() == [b"news"]
    again.kafka.close()


def test_requests_behind_it_wait(bench: Bench, reading: Reading) -> None:
    reading.wait()
    reading.kafka.send(METADATA, 9, topics=[{"name": "t"}])
    reading.offset += 1
    reading.send(0, [part("t", 0, reading.offset)])
    bench.kafka.stored("t", DATA)
    assert reading.values() == [b"news"]
    assert reading.kafka.answer(METADATA, 9)[1].topics[0].error_code == 0
    answer = reading.answer()
    assert (answer.error_code, answer.session_id) == (0, reading.session)


def test_no_answers_are_made_ahead_for_a_client_that_does_not_read(bench: Bench) -> None:
    """Of what it asks for in one go, as much as it may have on its way."""
    offset = min(bench.kafka.stored("t", batch(records([b"x" * 15_000]))) for _ in range(20))
    before = bench.count(TAKEN)
    with Kafka(bench.server.port, timeout=30) as slow:
        assert len(slow.fetch("t", offset).records) > 300_000
        frame = slow.request(FETCH, 12, **fetch([part("t", 0, offset)], 0))
        slow.socket.sendall((len(frame).to_bytes(4, "big") + frame) * 300)
        eventually(lambda: bench.count(TAKEN) > before, what="the lane to answer")
        assert bench.count(TAKEN) < before + 100
        for _ in range(300):
            answer = slow.receive()
            assert answer is not None
            assert len(answer) > 300_000


def test_another_fetch_of_its_session(bench: Bench, reading: Reading) -> None:
    """From another connection, which no client does: the first one has lost its wait, and ends with its time."""
    reading.wait(max_wait=700)
    with Kafka(bench.server.port) as other:
        other.ask(METADATA, 9, topics=[])
        whose = {"session_id": reading.session, "session_epoch": reading.epoch}
        other.send(FETCH, 12, **fetch([part("t", 0, reading.offset)], LONG, **whose))
        bench.kafka.ask(METADATA, 9, topics=[])  # when it is answered, the fetch has been read, and waits
        bench.kafka.stored("t", DATA)
        answer = other.answer(FETCH, 12)[1]
    assert answer.error_code == 0
    assert reading.answer().error_code == 0


def test_a_lost_epoch(reading: Reading) -> None:
    reading.epoch += 1
    reading.send()
    assert reading.answer().error_code == INVALID_EPOCH


def test_the_topic_is_deleted(bench: Bench, reading: Reading) -> None:
    reading.wait()
    deleted = bench.kafka.ask(DELETE_TOPICS, 5, topic_names=["t"], timeout=10_000)
    assert deleted.responses[0].error_code == 0
    (topic,) = reading.answer().responses
    assert topic.partitions[0].error_code in (OUT_OF_RANGE, UNKNOWN_TOPIC)  # records go before the topic does
    assert bench.count(BACK) == 1


def test_the_connection_to_redis_is_lost(bench: Bench, reading: Reading) -> None:
    """What was known is asked for again."""
    reading.wait()
    bench.cut()
    eventually(lambda: bench.count(BACK) == 1, what="Python to look again")
    eventually(lambda: bench.kafka.produce("t", DATA).error_code == 0, what="the broker to be back")
    answer = reading.answer()
    assert answer.error_code == 0


def test_the_broker_stops(bench: Bench, reading: Reading) -> None:
    reading.wait()
    assert bench.server.stop() == 0
    assert reading.answer().error_code == 0
    bench.server.start()
    bench.kafka = Kafka(bench.server.port)


def test_many_wait(bench: Bench) -> None:
    """One write wakes them all, each one once; those who have gone cost nothing."""
    readers = [Reading(bench) for _ in range(8)]
    for each in readers:
        each.epoch = 1
        each.send(0, [part("t", 0, readers[-1].offset)])
        assert each.answer().error_code == 0
        each.wait()
    readers.pop().kafka.close()
    bench.kafka.stored("t", DATA)
    assert [each.values() for each in readers] == [[b"news"]] * 7
    for each in readers:
        each.kafka.close()
    assert bench.count(BACK) == 0


def test_counters(bench: Bench, reading: Reading) -> None:
    def counted() -> dict[tuple[str, str], float]:
        found = metrics(bench.server)
        names = ("total", "queue", "redis", "wait", "send")
        times = {(f"ketch_request_{name}_time_seconds_count", "fetch") for name in names}
        return {key: found.get(key, 0.0) for key in {*times, ("ketch_requests_total", "fetch")}}

    before = counted()
    reading.wait()
    bench.kafka.stored("t", DATA)
    assert reading.values() == [b"news"]
    assert {key: value - before[key] for key, value in counted().items()} == dict.fromkeys(before, 1.0)
    assert metrics(bench.server)["ketch_bytes_out_total", "t"] >= len(DATA)


# -- records that have to be read from Redis


@contextmanager
def stopped(bench: Bench) -> Iterator[int]:
    """Redis, which has this process id, does not answer while the block runs."""
    pid = bench.redis.info("server")["process_id"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def leave(bench: Bench, send: Callable[[Kafka], object]) -> None:
    """Clients send a fetch that the lane takes, and leave before Redis answers; more of them than may read at once."""
    for _ in range(10):
        gone = Kafka(bench.server.port)
        gone.ask(METADATA, 9, topics=[])
        with stopped(bench):
            send(gone)
            gone.close()
    eventually(lambda: bench.count(("ketch_queued_request_bytes", "")) == 0, what="its bytes to be given back")


def of_kind(start: Callable[..., KetchServer], kind: str, partitions: int = 2) -> Bench:
    """A broker with the lane whose topics have this layout and kind of offsets."""
    layout, _, ids = kind.partition("-")
    options = ("--default-storage-layout", layout, "--default-offset-ids", ids, "--http-port", "0", *LASTING)
    return Bench(start("--lane", "on", *options), partitions)


class Far:
    """Forty records that are in Redis, and not in the memory of the lane's broker, which has started since."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._before = bench.redis.xlen(STREAM)
        self._offsets = [bench.kafka.stored("t", batch(records([b"%d" % n]))) for n in range(40)]
        self.forget()
        self._next = iter(range(39))

    def forget(self) -> None:
        """Has the broker start again; where the log starts is known, and that there is no archive."""
        bench = self.bench
        bench.restart()
        bench.warm()
        bench.kafka.fetch("t", self._offsets[-1])  # by Python

    def some(self) -> tuple[int, bytes]:
        """The offset of a record that nobody has read, the next one each time, and its value."""
        n = next(self._next)
        return self._offsets[n], b"%d" % n

    def remove(self, value: bytes) -> None:
        """Deletes the entry with a value of `some`, as any client of Redis may."""
        entries = self.bench.redis.xrange(STREAM)
        assert self.bench.redis.xdel(STREAM, entries[self._before + int(value)][0]) == 1

    def read(self, kafka: Kafka) -> bytes:
        """Sends a fetch that the lane takes; the first value that is to come."""
        offset, value = self.some()
        before = self.bench.count(TAKEN)
        kafka.send(FETCH, 12, **fetch([part("t", 0, offset)], LONG))
        eventually(lambda: self.bench.count(TAKEN) == before + 1, what="the lane to take it")
        return value


KINDS = ("batch-time", "record-time", "batch-dense", "record-dense")


@pytest.fixture(params=KINDS[:2])
def far(request: pytest.FixtureRequest, start_ketch: Callable[..., KetchServer]) -> Iterator[Far]:
    made = Far(of_kind(start_ketch, request.param))
    yield made
    made.bench.kafka.close()


def first_value(kafka: Kafka) -> bytes | None:
    (topic,) = kafka.answer(FETCH, 12)[1].responses
    (answered,) = topic.partitions
    assert answered.error_code == 0
    return split(answered.records)[0].records[0].value


@pytest.mark.parametrize("far", KINDS, indirect=True)
@pytest.mark.parametrize("session", [True, False])
def test_records_in_redis(far: Far, session: bool) -> None:
    bench, before = far.bench, far.bench.count(TAKEN)
    if session:
        reading = Reading(bench)
        for _ in range(3):
            offset, value = far.some()
            reading.send(topics=[part("t", 0, offset)])
            assert reading.values()[0] == value
        reading.kafka.close()
    else:
        for _ in range(3):
            offset, value = far.some()
            answer = bench.kafka.fetch("t", offset)
            assert split(answer.records)[0].records[0].value == value
    assert (bench.count(TAKEN) - before, bench.count(BACK)) == (3, 0)


@pytest.mark.parametrize("far", KINDS, indirect=True)
def test_records_in_memory_of_each_kind(far: Far) -> None:
    bench, reading = far.bench, Reading(far.bench)
    before = bench.count(TAKEN)
    for _ in range(3):
        reading.wait()
        bench.kafka.stored("t", DATA)
        assert reading.values() == [b"news"]
        reading.offset = bench.kafka.list_offsets("t", -1).offset
        reading.send(0, [part("t", 0, reading.offset)])
        assert reading.answer().error_code == 0
    assert (bench.count(TAKEN) - before, bench.count(BACK)) == (6, 0)
    reading.kafka.close()


@pytest.mark.parametrize("far", KINDS, indirect=True)
def test_behind_a_gap(far: Far) -> None:
    """Behind what was deleted, as between batches whose offsets have the time in them."""
    bench, reading = far.bench, Reading(far.bench)
    (first, gone), (_, value) = far.some(), far.some()
    far.remove(gone)
    bench.warm()

    def is_taken() -> bool:
        bench.kafka.fetch("t", first)  # by Python at first, which asks whether there is an archive, twice a second
        before, back = bench.count(TAKEN), bench.count(BACK)
        reading.send(topics=[part("t", 0, first)])
        assert reading.values()[0] == value
        return (bench.count(TAKEN), bench.count(BACK)) == (before + 1, back)

    eventually(is_taken, what="the lane to answer")
    reading.kafka.close()


@pytest.mark.parametrize("far", KINDS, indirect=True)
def test_a_record_larger_than_the_limit(far: Far) -> None:
    """It is given all the same, where its partition is the only one (KIP-74)."""
    bench = far.bench
    before, (offset, value) = bench.count(TAKEN), far.some()
    answer = bench.kafka.fetch("t", offset, partition_max_bytes=1)
    assert split(answer.records)[0].records[0].value == value
    assert (bench.count(TAKEN), bench.count(BACK)) == (before + 1, 0)


@pytest.mark.parametrize("first", [True, False])
def test_a_record_larger_than_the_limit_beside_another_partition(far: Far, first: bool) -> None:
    """Where its partition is the first, it is given. Else it waits."""
    bench, (offset, value) = far.bench, far.some()
    large = bench.kafka.stored("t", batch(records([b"large"])), partition=1)
    far.forget()
    bench.kafka.fetch("t", bench.kafka.list_offsets("t", -1, partition=1).offset - 1, partition=1)  # by Python
    before = bench.count(TAKEN)
    parts = [part("t", 1, large, partition_max_bytes=1), part("t", 0, offset)]
    answer = bench.kafka.ask(FETCH, 12, **fetch(parts if first else parts[::-1]))
    read = {each.partition_index: split(each.records) for topic in answer.responses for each in topic.partitions}
    found = {index: batches[0].records[0].value for index, batches in read.items() if batches}
    assert found == ({0: value, 1: b"large"} if first else {0: value})
    assert (bench.count(TAKEN), bench.count(BACK)) == (before + 1, 0)


def test_a_batch_that_cannot_be_inflated(bench: Bench) -> None:
    """It is an error of the partition, as without the lane."""
    offset = bench.kafka.stored("t", batch(records([b"no zstd"]), attributes=4))
    Far(bench)
    answers = [bench.kafka.fetch("t", offset, version=9).error_code for _ in range(3)]
    assert answers == [CORRUPT_MESSAGE] * 3


def test_redis_takes_its_time(far: Far) -> None:
    """Others are served, and what comes behind it waits."""
    bench = far.bench
    with stopped(bench):
        value = far.read(bench.kafka)
        bench.kafka.send(METADATA, 9, topics=[{"name": "t"}])
        with Kafka(bench.server.port) as other:
            other.ask(METADATA, 9, topics=[{"name": "t"}])
    assert first_value(bench.kafka) == value
    assert bench.kafka.answer(METADATA, 9)[1].topics[0].error_code == 0
    assert bench.count(BACK) == 0


def test_the_client_leaves_before_redis_answers(far: Far) -> None:
    bench = far.bench
    leave(bench, far.read)
    value = far.read(bench.kafka)
    assert first_value(bench.kafka) == value
    assert bench.count(BACK) == 0


def test_redis_dies_before_it_answers(far: Far) -> None:
    bench = far.bench
    with stopped(bench) as pid:
        far.read(bench.kafka)
        os.kill(pid, signal.SIGKILL)
    bench.kafka.answer(FETCH, 12)  # an error, or the record from the Redis that comes next
    assert bench.count(BACK) == 1
    bench.redis = bench.server.redis()
    eventually(lambda: bench.kafka.produce("t", DATA).error_code == 0, what="the broker to be back")
    assert bench.stored() > 40


def test_less_than_is_wanted_is_in_redis(far: Far) -> None:
    """Python waits for the rest."""
    bench = far.bench
    with Kafka(bench.server.port) as kafka:
        kafka.ask(METADATA, 9, topics=[])
        kafka.send(FETCH, 12, **fetch([part("t", 0, far.some()[0])], LONG, min_bytes=100_000))
        eventually(lambda: bench.count(BACK) == 1, what="Python to wait")
        stored = bench.kafka.stored("t", batch(records([bytes(100_000)])))
        (topic,) = kafka.answer(FETCH, 12)[1].responses
    assert topic.partitions[0].high_watermark == stored + 1
    assert topic.partitions[0].error_code == 0


def test_many_read_at_once(far: Far) -> None:
    """More than may read at a time: the others are Python's, and all get what they want."""
    bench = far.bench
    clients = [Kafka(bench.server.port) for _ in range(12)]
    for client in clients:
        client.ask(METADATA, 9, topics=[])
    with stopped(bench):
        before, wanted = bench.count(TAKEN), []
        for client in clients:
            offset, value = far.some()
            client.send(FETCH, 12, **fetch([part("t", 0, offset)], LONG))
            wanted.append(value)
        eventually(lambda: bench.count(TAKEN) == before + 8, what="the lane to take those it may")
    assert [first_value(client) for client in clients] == wanted
    assert bench.count(BACK) == 0
    for client in clients:
        client.close()
