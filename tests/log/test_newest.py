"""Behind its own appends the broker asks Redis nothing; whatever others do to the stream is seen all the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from ketch.log.recent import Newest
from ketch.records import BatchHeader, Codec, read_header
from ketch.redis.pipe import open_pipe
from ketch.redis.question import Command, call, calls, command, keyed
from ketch.redis.resp import pack, parse
from ketch.redis.url import RedisAddress
from ketch.store.layouts.batch import WholeBatch
from tests.support.batches import batch, records
from tests.support.coordinator import Driver
from tests.support.kafka import FETCH, PRODUCE, Kafka, Record, fetch, part, produce, split
from tests.support.ketch import KetchServer, eventually
from tests.support.transactions import visible

_TURNS = 80


class Stream:
    """A partition: what is done to it through Kafka and behind its back, and what either side sees."""

    def __init__(self, kafka: Kafka, client: redis.Redis, topic: str, kind: str, stamp: str) -> None:
        kafka.create(topic, offset_ids=kind, message_timestamp_type=stamp)
        self.kafka, self.redis, self.topic, self.dense = kafka, client, topic, kind == "dense"
        self.key = f"korvet:stream:{topic}:0"
        self.written = 0

    def values(self, count: int) -> list[bytes]:
        self.written += count
        return [b"%d" % n for n in range(self.written - count, self.written)]

    def produce(self, choose: random.Random) -> None:
        codec = choose.choice([Codec.NONE, Codec.NONE, Codec.LZ4])
        self.kafka.stored(self.topic, batch(records(self.values(choose.choice([1, 1, 2, 7]))), codec=codec))

    def pipeline(self, choose: random.Random) -> None:
        """Several requests on their way at a time."""
        for _ in range(5):
            values = self.values(choose.choice([1, 3]))
            self.kafka.send(PRODUCE, 9, **produce(self.topic, batch(records(values))))
        for _ in range(5):
            _, answer = self.kafka.answer(PRODUCE, 9)
            assert answer.responses[0].partition_responses[0].error_code == 0

    def add(self, choose: random.Random) -> None:
        last = self.redis.xinfo_stream(self.key)["last-generated-id"].decode() if self.redis.exists(self.key) else "0-0"
        ms, seq = map(int, last.split("-"))
        following = f"{ms}-{seq + 1}" if seq < 1023 else f"{ms + 1}-0"
        self.redis.xadd(self.key, {"value": self.values(1)[0]}, id=following if self.dense else "*")

    def trim(self, choose: random.Random) -> None:
        self.redis.xtrim(self.key, maxlen=choose.randrange(1, 4), approximate=False)

    def delete_last(self, choose: random.Random) -> None:
        for entry, _ in self.redis.xrevrange(self.key, count=1):
            self.redis.xdel(self.key, entry)

    def held(self) -> list[tuple[int, bytes | None]]:
        """Offset and value of each record in Redis."""
        found: list[tuple[int, bytes | None]] = []
        for entry, fields in self.redis.xrange(self.key):
            ms, seq = map(int, entry.split(b"-"))
            last = (ms << 10 | seq) - self.dense
            whole = split(fields[b"batch"])[0].records if b"batch" in fields else (None,)
            values = [record.value if record else fields[b"value"] for record in whole]
            found += [(last - len(values) + 1 + n, value) for n, value in enumerate(values)]
        return found

    def check(self) -> None:
        held = self.held()
        for place in (None, *(offset for offset, _ in held[-8:])):
            seen = [(record.offset, record.value) for record in self.seen(place)]
            assert seen == [(offset, value) for offset, value in held if place is None or offset >= place]

    def seen(self, offset: int | None = None) -> list[Record]:
        return self.kafka.read_all(self.topic, offset)


def raises_nothing(check: Callable[[], None]) -> bool:
    try:
        check()
    except AssertionError:
        return False
    return True


@pytest.fixture(params=[("time", "CreateTime"), ("dense", "CreateTime"), ("time", "LogAppendTime")])
def stream(request: pytest.FixtureRequest, broker: KetchServer, topic: str) -> Iterator[Stream]:
    with Kafka(broker.port) as kafka:
        yield Stream(kafka, broker.redis(), topic, *request.param)


@pytest.mark.storage("record", "batch")
@pytest.mark.only_storage("record", "batch")
def test_whatever_happens_to_the_stream(stream: Stream) -> None:
    choose = random.Random(1)
    ours, theirs = [stream.produce, stream.pipeline], [stream.add, stream.trim, stream.delete_last]
    for turn in range(_TURNS):
        choose.choice(theirs if turn and choose.random() < 0.25 else ours)(choose)

        # A push takes its time; what is read before it may even be gone already.
        eventually(lambda: raises_nothing(stream.check), 10, f"turn {turn}: what Redis holds")


@pytest.mark.storage("record", "batch")
@pytest.mark.only_storage("record", "batch")
def test_reads_the_same_from_redis(stream: Stream) -> None:
    choose = random.Random(0)
    stream.produce(choose)
    stream.seen()
    for _ in range(20):
        stream.produce(choose)
    ours = stream.seen()
    stream.add(choose)
    theirs = eventually(lambda: len(both := stream.seen()) > len(ours) and both, 10, "what was added")
    assert theirs[:-1] == ours


@pytest.mark.storage("record", "batch")
@pytest.mark.only_storage("record", "batch")
@pytest.mark.parametrize("how", ["trimmed", "deleted"])
@pytest.mark.parametrize(("count", "size"), [(1, 10), (1, 100_000), (10, 10)])
def test_offsets_of_entries_that_are_gone_are_not_given_again(stream: Stream, count: int, size: int, how: str) -> None:
    """Others have written, and it was taken away, since this broker appended last."""
    stream.kafka.stored(stream.topic, batch(records([b"x" * size])))
    for _ in range(3):
        stream.add(random.Random(0))
    last = stream.held()[-1][0]
    if how == "trimmed":
        stream.redis.xtrim(stream.key, maxlen=0, approximate=False)
    else:
        stream.redis.xdel(stream.key, *(entry for entry, _ in stream.redis.xrevrange(stream.key, count=3)))
        # The answer comes behind the pushes.
        eventually(lambda: stream.kafka.list_offsets(stream.topic, -1).offset == last + 1)
    assert stream.kafka.stored(stream.topic, batch(records([b"x" * size] * count))) > last


class Committed:
    """What a reader gets of a partition with transactions, from several offsets on, with both isolation levels."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.kafka, self.topic = kafka, topic
        self.drivers = [Driver(kafka, f"{topic}-{n}", topic, ()) for n in range(2)]
        self.sequences = {driver.id: 0 for driver in self.drivers}
        self.open: set[str] = set()
        for driver in self.drivers:
            assert driver.init(-1, -1)[0] == "none"

    def step(self, choose: random.Random) -> None:
        driver = choose.choice(self.drivers)
        if driver.id in self.open and choose.random() < 0.4:
            assert driver.end(driver.pid, driver.epoch, choose.random() < 0.7, 5)[0] == "none"
            self.open.discard(driver.id)
            self.sequences[driver.id] = 0
        elif choose.random() < 0.3:
            self.kafka.stored(self.topic, batch(records([b"plain"] * 2)))
        else:
            assert driver.produce(driver.pid, driver.epoch, self.sequences[driver.id], 0, 12) == "none"
            self.sequences[driver.id] += 1
            self.open.add(driver.id)

    def seen(self) -> list[Any]:
        start = self.kafka.list_offsets(self.topic, -2).offset
        end = self.kafka.list_offsets(self.topic, -1).offset
        found = list[Any]()
        for committed in (0, 1):
            for offset in {start, (start + end) // 2, end - 3, end - 2, end - 1, end}:
                answer = self.kafka.fetch(self.topic, max(start, offset), isolation_level=committed)
                ends = answer.error_code, answer.high_watermark, answer.last_stable_offset, answer.log_start_offset
                # A batch from memory may begin before the offset that was asked for.
                records_ = [each for each in visible(answer) if each[0] >= offset]
                found.append((ends, records_, [part.last_offset for part in split(answer.records or b"")[-1:]]))
        return found


@pytest.mark.storage("record", "batch")
@pytest.mark.only_storage("record", "batch")
@pytest.mark.append("module", long=("multi",))
def test_transactions_from_memory_are_those_in_redis(broker: KetchServer, topic: str) -> None:
    choose = random.Random(2)
    with Kafka(broker.port) as kafka:
        kafka.create(topic)
        partition = Committed(kafka, topic)
        for turn in range(60):
            partition.step(choose)
            seen = partition.seen()
            if turn % 6 == 5:
                broker.redis().client_kill_filter(_type="normal", skipme=True)  # the broker forgets all it knows
                eventually(lambda: partition.seen() == seen, 10, f"turn {turn}: the same from Redis")  # noqa: B023


@pytest.mark.storage("record", "batch")
@pytest.mark.only_storage("record", "batch")
@pytest.mark.append("module", long=("multi",))
def test_a_waiting_reader_of_committed_records_costs_no_question(broker: KetchServer, topic: str) -> None:
    with Kafka(broker.port) as kafka, Kafka(broker.port) as reader:
        kafka.create(topic)
        driver = Driver(kafka, topic, topic, ())
        driver.init(-1, -1)
        position = kafka.list_offsets(topic, -1).offset
        with broker.redis().monitor() as monitor:
            for turn in range(4):
                reader.send(FETCH, 12, **fetch([part(topic, 0, position)], max_wait=20_000, isolation_level=1))
                assert driver.produce(driver.pid, driver.epoch, 0, 0, 12) == "none"
                assert driver.end(driver.pid, driver.epoch, True, 5)[0] == "none"
                answer = reader.answer(FETCH, 12)[1].responses[0].partitions[0]
                assert [value for _, value in visible(answer)] == [b"x"]
                position = split(answer.records)[-1].last_offset + 1
                broker.redis().echo(f"turn {turn}")
            turns = [list[str]()]
            while len(turns) < 5:
                told = monitor.next_command()
                command = told["command"]
                if command.startswith("ECHO turn"):
                    turns.append([])
                elif f"korvet:stream:{topic}:0" in command and told["client_type"] != "lua":
                    turns[-1].append(command.split()[0].upper())
        # The first turns teach what the later ones know.
        assert not {"XRANGE", "XINFO", "HGETALL"} & set(turns[3]), turns[3]
        assert "EVAL" in turns[3], "the marker"


def _batch(values: list[bytes]) -> tuple[WholeBatch, BatchHeader]:
    data = batch(records(values))
    return WholeBatch(data, len(values), None), read_header(data)


class TestNewest:
    LINEAGE = object()

    def fill(self, count: int, size: int = 10) -> Newest:
        newest = Newest()
        for n in range(count):
            # Two offsets each, behind a gap of eight.
            newest.put(b"s", self.LINEAGE, (10 * n, 10 * n + 8, _batch([b"x" * size] * 2)[0]))
        return newest

    def read(self, newest: Newest, offset: int, max_bytes: int = 1 << 20, lineage: object = LINEAGE) -> Any:
        chunk = newest.read(b"s", lineage, offset, max_bytes)
        return chunk and (chunk.base, chunk.end, chunk.records)

    def test_from_any_offset_to_the_end(self) -> None:
        newest = self.fill(3)
        assert self.read(newest, 0) == self.read(newest, 5) == self.read(newest, 9) == (8, 30, 6)
        assert self.read(newest, 10) == (18, 30, 4)
        assert self.read(newest, 29) == (28, 30, 2)

    def test_no_more_than_asked_for(self) -> None:
        newest = self.fill(3)
        size = _batch([b"x" * 10] * 2)[1].length
        assert self.read(newest, 0, 2 * size) == (8, 20, 4)
        assert self.read(newest, 0, 2 * size - 1) == (8, 10, 2)
        assert self.read(newest, 0, size - 1) is None

    def test_another_lineage_is_another_stream(self) -> None:
        newest = self.fill(3)
        assert self.read(newest, 0, lineage=object()) is None
        newest.put(b"s", "anew", (30, 30, _batch([b"y"])[0]))
        assert self.read(newest, 0) is None
        assert self.read(newest, 30, lineage="anew") == (30, 31, 1)
        assert newest.read(b"t", self.LINEAGE, 0, 100) is None

    def test_the_oldest_go(self) -> None:
        newest = self.fill(600)
        assert self.read(newest, 10 * 88 - 1) is None
        assert self.read(newest, 10 * 88) == (888, 6000, 1024)

    def test_the_oldest_of_all_streams_go(self) -> None:
        newest = self.fill(3)
        for n in range(20):
            newest.put(b"t", self.LINEAGE, (n, n, _batch([b"x" * (1 << 20)])[0]))
        assert self.read(newest, 0) is self.read(newest, 20) is None
        assert newest.read(b"t", self.LINEAGE, 4, 1 << 30) is None
        chunk = newest.read(b"t", self.LINEAGE, 5, 1 << 30)
        assert chunk is not None
        assert (chunk.base, chunk.end) == (5, 20)


def test_pushes_between_the_replies_of_a_transaction(broker: KetchServer, topic: str) -> None:
    """Tracked keys change all the time while the same connection has transactions under way."""
    keys = [f"{topic}:{n}" for n in range(50)]
    pushed = list[Any]()

    async def run() -> None:
        address = RedisAddress.parse(broker.redis_url)
        pipe = await open_pipe(address, 10, lambda: None, pushed.append)
        other = await open_pipe(address, 10, lambda: None)
        await pipe.ask(call(None, "CLIENT", "TRACKING", "ON", "NOLOOP"))
        transaction = pack("MULTI") + pack("PING") * 300 + pack("EXEC")
        for turn in range(40):
            told = len(pushed)
            await pipe.ask(calls([keyed("GET", key) for key in keys]))
            answers = [pipe.send(Command(None, transaction, 302)) for _ in range(10)]
            answers.append(pipe.send(command(None, "ECHO", turn)))
            await other.ask(calls([keyed("SET", key, turn) for key in keys]))
            for answer in await asyncio.gather(*answers[:-1]):
                assert parse(answer) == [b"PONG"] * 300
            assert parse(await answers[-1]) == b"%d" % turn
            while len(pushed) < told + len(keys):
                await pipe.ask(call(None, "PING"))
        pipe.close()
        other.close()

    asyncio.run(run())
    assert sorted(message[1][0] for message in pushed) == sorted(key.encode() for key in keys * 40)
    broker.redis().delete(*keys)
