"""Byte positions over a real log: exact, and the same for ever, whoever writes, trims, reads or restarts."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ketch.clock import now_ms
from ketch.legacy07.bytelog import EARLIEST, LATEST, ByteLog
from ketch.legacy07.messages import GZIP, NONE, SNAPPY, Message
from ketch.log.reading import PartitionReader, Records
from ketch.store.offsets import OffsetNumbering
from ketch.store.stream import positions
from tests.legacy07.byte_logs import Broker, Walker, brokers, compressed, keyed, plain, refused
from tests.support.long import rest_long
from tests.support.redis_servers import RedisServer, binaries
from tests.support.transactions import Written

LAYOUTS = [(layout, ids) for layout in ("record", "batch") for ids in ("time", "dense")]
_names = itertools.count()


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(next(iter(binaries().values())), tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


Group = list[tuple[bytes, int]]
"""Messages that one batch of records becomes: the bytes of each, and how many records it is."""


class Partition:
    """A partition, what is written to it, and the messages that 0.7 should see of that."""

    def __init__(self, redis: RedisServer) -> None:
        self.redis, self.name = redis.client(), f"t{next(_names)}"
        self.stream = f"korvet:stream:{self.name}:0"
        self.index = f"korvet:legacy07:{{{self.stream}}}"
        self.messages: list[tuple[bytes, bytes]] = []  # the id of its last entry, its bytes
        self._last = b"0-0"

    async def create(self, broker: Broker, layout: str, ids: str) -> None:
        self.layout = layout
        self.topic = await broker.log.topics.create(self.name, 1, {"storage.layout": layout, "offset.ids": ids})

    async def produce(self, broker: Broker, messages: list[tuple[Message, int]]) -> None:
        """By a 0.7 client: messages and how many records they are."""
        await (await (await broker.get(self.name)).append([message for message, _ in messages]))
        groups: list[Group] = []
        run: int | None = None  # the magic of the run of plain messages that goes on
        for message, count in messages:
            if message.compression or message.magic != run:
                groups.append([])
            run = None if message.compression else message.magic
            groups[-1].append((message.encode(), count))
        self._note(groups)

    async def produce_today(self, broker: Broker, values: list[bytes | None]) -> None:
        """By a client of today, with keys and headers."""
        payload = self.topic.layout.pack(keyed(values), 0)
        await broker.log.partition(self.topic, 0).append(payload)
        self._note([[(usual(value or b"").encode(), 1) for value in values]])

    def add(self, value: bytes) -> None:
        """By redis-cli."""
        entry = "*"
        if self.topic.numbering.dense:
            entry = f"0-{int(self._last.partition(b'-')[2]) + 1}"
        self.redis.xadd(self.stream, {"other": "x", "value": value}, id=entry)
        self._note([[(usual(value).encode(), 1)]])

    def trim(self, length: int) -> None:
        """Leaves the last entries."""
        self.redis.xtrim(self.stream, maxlen=length, approximate=False)
        left = self.redis.xrange(self.stream, count=1)
        self.messages = [each for each in self.messages if left and _id(each[0]) >= _id(left[0][0])]

    def _note(self, groups: list[Group]) -> None:
        ids = iter([entry_id for entry_id, _ in self.redis.xrange(self.stream, min=b"(" + self._last)])
        for group in groups:
            if self.layout == "batch":
                self._last = next(ids)
            for message, count in group:
                if self.layout == "record":
                    self._last = [next(ids) for _ in range(count)][-1]
                self.messages.append((self._last, message))
        assert next(ids, None) is None

    def offset(self, entry: bytes) -> int:
        return self.topic.numbering.to_offset(*OffsetNumbering.parse_id(entry))

    @property
    def expected(self) -> list[bytes]:
        return [message for _, message in self.messages]


def usual(value: bytes) -> Message:
    """As a record of today is served."""
    return Message(1, NONE, value)


def _id(entry: bytes) -> tuple[int, ...]:
    return tuple(map(int, entry.split(b"-")))


VALUES = st.lists(st.binary(max_size=60), min_size=1, max_size=8)
LEGACY = st.lists(
    st.one_of(
        st.builds(lambda value: (plain(value), 1), st.binary(max_size=60)),
        st.builds(lambda value: (Message(1, 0, value), 1), st.binary(max_size=60)),
        st.builds(
            lambda codec, values, nested: (compressed(codec, values, nested), len(values)),
            st.sampled_from([GZIP, SNAPPY]), VALUES, st.booleans(),
        ),
    ),
    min_size=1,
    max_size=5,
)  # fmt: skip
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("legacy"), LEGACY),
        st.tuples(st.just("today"), st.lists(st.none() | st.binary(max_size=60), min_size=1, max_size=20)),
        st.tuples(st.just("xadd"), st.binary(max_size=60)),
        st.tuples(st.just("walk"), st.integers(0, 1)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("trim"), st.integers(0, 30)),
    ),
    max_size=14,
)


@pytest.mark.parametrize(("layout", "ids"), rest_long(LAYOUTS, [("record", "time"), ("batch", "dense")]))
@given(steps=STEPS, seed=st.integers(0, 1 << 30))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("small_steps")
def test_every_message_once_and_for_ever_in_its_place(
    redis: RedisServer, layout: str, ids: str, steps: list[tuple[str, Any]], seed: int
) -> None:
    async def run() -> None:
        partition, walker = Partition(redis), Walker(seed)
        async with brokers(redis, 4) as started:
            await partition.create(started[0], layout, ids)
            for number, (step, what) in enumerate([*steps, ("walk", 0), ("walk", 1), ("walk", 2)]):
                one = started[number % 2]
                if step == "legacy":
                    await partition.produce(one, what)
                elif step == "today":
                    await partition.produce_today(one, what)
                elif step == "xadd":
                    partition.add(what)
                elif step == "trim":
                    partition.trim(what)
                elif step == "restart":
                    await started[0].log.stop()
                    started[0] = Broker(redis)
                    await started[0].log.start()
                else:
                    started[what].log.watcher.changed(partition.stream.encode())  # its push may be on its way
                    await check(await started[what].get(partition.name), walker, partition.expected)

    asyncio.run(run())


ONE = st.one_of(
    st.builds(lambda magic, value: (magic, 0, value), st.integers(0, 1), st.binary(max_size=60)),
    st.builds(lambda codec, value: (1, codec, value), st.sampled_from([GZIP, SNAPPY]), st.binary(max_size=60)),
    st.builds(lambda value: (None, 0, value), st.binary(max_size=60)),
)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 1), st.lists(ONE, min_size=1, max_size=8)),
        st.tuples(st.just("count"), st.integers(0, 1), st.integers(0, 700)),
        st.tuples(st.just("trim"), st.just(0), st.integers(0, 20)),
    ),
    max_size=14,
)


@pytest.mark.parametrize("layout", ["record", "batch"])
@example(
    steps=[
        ("count", 1, 0), ("write", 0, [(None, 0, b"")]), ("count", 0, 0), ("write", 0, [(0, 0, b"")]), ("trim", 0, 0),
        ("write", 0, [(None, 0, b"")]), ("count", 1, 0),
    ],
    seed=0,
)  # fmt: skip
@given(steps=CHANGES, seed=st.integers(0, 1 << 30))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("small_steps")
def test_positions_hold_where_the_usual_magic_changes(
    redis: RedisServer, layout: str, steps: list[tuple[str, int, Any]], seed: int
) -> None:
    """`legacy_magic` holds for what is counted from then on; the brokers have different ones here all the time."""

    async def run() -> None:
        partition, walker = Partition(redis), Walker(seed)
        free = dict[int, bytes]()  # payloads of messages whose magic is settled when they are counted, by index
        trimmed = 0
        async with AsyncExitStack() as stack:
            started = [(await stack.enter_async_context(brokers(redis, 1, magic)))[0] for magic in (0, 1)]
            await partition.create(started[0], layout, "dense")

            def settle(magic: int) -> None:
                end = int(partition.redis.xinfo_stream(partition.index)["last-generated-id"].partition(b"-")[2]) - 1
                for at in list(free):
                    if at < trimmed:
                        del free[at]
                    elif partition.offset(partition.messages[at - trimmed][0]) < end:
                        seen = Message(magic, NONE, free.pop(at)).encode()
                        partition.messages[at - trimmed] = partition.messages[at - trimmed][0], seen

            for step, magic, what in [*steps, ("count", 0, 1 << 20), ("count", 1, 1 << 20), ("count", 0, 1 << 20)]:
                broker = started[magic]
                if step == "trim":
                    before = len(partition.messages)
                    partition.trim(what)
                    trimmed += before - len(partition.messages)
                elif step == "write":
                    for sent, codec, value in what:
                        if sent is None:
                            await partition.produce_today(broker, [value])
                        elif codec:
                            await partition.produce(broker, [(compressed(codec, [value, b"y"]), 2)])
                        else:
                            await partition.produce(broker, [(Message(sent, NONE, value), 1)])
                        if not codec and sent in (None, magic):  # what is usual has no mark
                            free[trimmed + len(partition.messages) - 1] = value
                else:
                    log = await broker.get(partition.name)
                    for each in started:
                        each.log.watcher.changed(partition.stream.encode())
                    (first,) = await log.offsets(EARLIEST, 1)
                    if what < 1 << 20:
                        walker.note(first, await log.read(first, 2_000))  # counts some of it
                        settle(magic)
                    else:
                        await log.offsets(LATEST, 1)
                        settle(magic)
                        await check(log, walker, partition.expected)

    asyncio.run(run())


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize(("layout", "ids"), LAYOUTS)
@pytest.mark.parametrize("counted", [0, 1, 41, 60])
def test_an_index_of_the_version_before(redis: RedisServer, layout: str, ids: str, counted: int) -> None:
    """It served all plain messages with magic 0 and kept places without a magic. Its positions mean what they meant."""

    async def run() -> None:
        partition, walker, choice = Partition(redis), Walker(11), random.Random(11)
        async with brokers(redis, 3) as started:
            await partition.create(started[0], layout, ids)
            start = (await started[0].log.partition(partition.topic, 0).bounds.get()).log_start
            for n in range(20):  # three messages each
                values = [b"%d" % n] * choice.randint(1, 9)
                await partition.produce(started[0], [(compressed(SNAPPY, values), len(values))])
                await partition.produce_today(started[0], [None, b"z" * choice.randint(0, 90)])
            partition.messages = [
                (entry, as_before(message) if n < counted else message)
                for n, (entry, message) in enumerate(partition.messages)
            ]
            count_as_before(partition, start, counted)
            before = [message for _, message in partition.messages[:counted]]
            if counted:
                position = 0
                for message in before:  # a consumer goes on where it was, and reads again what it has read
                    assert await (await started[1].get(partition.name)).read(position, len(message)) == message
                    position += len(message)
            await check(await started[1].get(partition.name), walker, partition.expected)
            partition.trim(9 if layout == "batch" else 25)
            await partition.produce(started[2], [(Message(0, NONE, b"of 0.6"), 1), (usual(b"of 0.7"), 1)])
            for broker in started:
                broker.log.watcher.changed(partition.stream.encode())
                await check(await broker.get(partition.name), walker, partition.expected)

    asyncio.run(run())


def as_before(message: bytes) -> bytes:
    """As the version before served it: a plain message has magic 0."""
    return message if message[5] else plain(message[10:]).encode()


def count_as_before(partition: Partition, start: int, count: int) -> None:
    """Writes the index as the version before did, for the first messages."""
    redis, position, next_, kept = partition.redis, 0, start, 0
    redis.xadd(partition.index, {"time": 1}, id=f"0-{start + 1}")
    entries = [entry for entry, _ in partition.messages]
    for n, (entry, message) in enumerate(partition.messages[:count]):
        behind = entries[n + 1 :].count(entry)  # messages of the same batch
        position, next_ = position + len(message), partition.offset(entry) - behind + 1
        if position // 300 > kept:
            kept = position // 300
            redis.xadd(partition.index, {"time": 1}, id=f"{position}-{next_ + 1}")
    redis.execute_command("XSETID", partition.index, f"{position}-{next_ + 1}")


async def check(log: ByteLog, walker: Walker, expected: list[bytes]) -> None:
    """All that is expected lies between the ends that OFFSETS tells, and positions beyond these are refused."""
    found = await walker.walk(log)
    assert [message for _, message in found] == expected
    (first,), (end,) = await log.offsets(EARLIEST, 1), await log.offsets(LATEST, 1)
    assert end == first + sum(map(len, expected))
    assert await log.read(end, 100) == b""
    assert await refused(log, end + 1)
    assert first == 0 or await refused(log, first - 1)


@pytest.mark.usefixtures("small_steps")
def test_brokers_that_count_at_the_same_time_agree(redis: RedisServer) -> None:
    async def run() -> None:
        partition, walker = Partition(redis), Walker(7)
        async with brokers(redis, 4) as started:
            await partition.create(started[0], "record", "time")
            for n in range(30):
                values = [b"%d" % n] * 7
                await partition.produce(started[n % 2], [(plain(b"x" * n), 1), (compressed(SNAPPY, values), 7)])
            logs = [await broker.get(partition.name) for broker in started]
            # All of them begin with no positions there, and refuse each other's.
            walks = await asyncio.gather(*(walker.walk(log) for log in logs), logs[0].offsets(LATEST, 1))
            assert [[message for _, message in found] for found in walks[:-1]] == [partition.expected] * len(logs)
            assert walks[0] == walks[1] == walks[2] == walks[3]

    asyncio.run(run())


@pytest.mark.parametrize("counted", [False, True])
def test_the_next_block_is_laid_out_while_the_client_takes_a_chunk(
    redis: RedisServer, counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with brokers(redis, 2) as (broker, other):
            partition = Partition(redis)
            await partition.create(broker, "batch", "dense")
            messages = [plain(b"%05d" % n * 2_000) for n in range(1_000)]
            log, whole = await broker.get(partition.name), b"".join(each.encode() for each in messages)
            for start in range(0, 1_000, 50):
                await (await log.append(messages[start : start + 50]))
            if counted:
                assert await (await other.get(partition.name)).offsets(LATEST, 1) == [len(whole)]
            records, read_at = PartitionReader.records, list[int]()

            def noted(reader: PartitionReader, offset: int, *rest: int) -> Coroutine[Any, Any, Records]:
                read_at.append(offset)
                return records(reader, offset, *rest)

            monkeypatch.setattr(PartitionReader, "records", noted)
            chunk, position, ahead = 700_001, 0, 0
            while position < len(whole):
                before = len(read_at)
                read = await log.read(position, chunk)
                assert read == whole[position : position + chunk]
                ahead += len(read_at) == before
                position += len(read)
                if broker.logs.coming:
                    await asyncio.wait(broker.logs.coming)
            # In memory but for two: the first, and the next, which finds out where the log begins.
            assert ahead >= -(-len(whole) // chunk) - 2
            assert not broker.logs.coming

    asyncio.run(run())


def test_the_index_is_small_and_appends_do_not_touch_it(redis: RedisServer) -> None:
    async def run() -> None:
        partition = Partition(redis)
        async with brokers(redis) as (broker,):
            await partition.create(broker, "batch", "dense")
            log = await broker.get(partition.name)
            messages = [plain(b"v" * 10_000)] * 50
            for _ in range(60):
                await (await log.append(messages))
            assert not partition.redis.exists(partition.index)
            (end,) = await log.offsets(LATEST, 1)
            megabytes = end / (1 << 20)
            assert megabytes > 28
            assert partition.redis.xlen(partition.index) <= megabytes + 1
            before = partition.redis.xinfo_stream(partition.index)
            await (await log.append(messages))
            assert partition.redis.xinfo_stream(partition.index) == before
            assert await memory_per_place(broker, partition) < 40

    asyncio.run(run())


async def memory_per_place(broker: Broker, partition: Partition) -> float:
    """Bytes that Redis takes for a place, of many: those of a terabyte of messages."""
    key, places = partition.index.encode(), 20_000
    kept = [(positions.Place(n * 1_050_000, n * 10_000 + (1_800_000_000_000 << 10)), now_ms()) for n in range(places)]
    known = None
    partition.redis.delete(key)
    for n in range(0, places, 1_000):
        to, time = kept[n + 999]
        known = await broker.log.driver.ask(positions.extend(key, known, to, kept[n : n + 1_000], 1, time))
    assert known == kept[-1][0]
    return float(partition.redis.memory_usage(key, samples=0)) / places


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize(("layout", "ids"), LAYOUTS)
def test_offsets_by_time(redis: RedisServer, layout: str, ids: str) -> None:
    async def run() -> None:
        partition, times, walker = Partition(redis), list[int](), Walker(3)
        async with brokers(redis) as (broker,):
            await partition.create(broker, layout, ids)
            log = await broker.get(partition.name)
            assert await log.offsets(LATEST, 10) == [0] == await log.offsets(EARLIEST, 10)
            for n in range(8):
                times.append(now_ms())
                await partition.produce(broker, [(compressed(GZIP, [b"%d" % n] * 5), 5), (plain(b"y" * 200), 1)])
                stored = now_ms()
                while now_ms() == stored:
                    await asyncio.sleep(0.001)
            starts = [position for position, _ in await walker.walk(log)]
            (end,) = await log.offsets(LATEST, 1)
            for n, time in enumerate(times):
                found = await log.offsets(time, 100)
                assert found[:1] == ([starts[2 * n]] if n else [])
                assert found == sorted(set(found), reverse=True)
                assert found[-1:] == ([0] if n else [])
                assert set(found) <= set(starts)
                assert await log.offsets(time, 2) == found[:2]
            assert (await log.offsets(now_ms() + 60_000, 3))[0] == end
            assert (await log.offsets(LATEST, 100))[-1] == 0
            assert await log.offsets(0, 5) == []
            assert await log.offsets(LATEST, 0) == []

    asyncio.run(run())


def test_a_topic_made_again_has_positions_of_its_own(redis: RedisServer) -> None:
    async def run() -> None:
        partition = Partition(redis)
        async with brokers(redis) as (broker,):
            await partition.create(broker, "record", "dense")
            await partition.produce(broker, [(plain(b"of the first one"), 1)])
            assert (await (await broker.get(partition.name)).offsets(LATEST, 1)) > [0]
            await broker.log.delete(partition.topic)
            assert not partition.redis.exists(partition.index)
            await partition.create(broker, "record", "dense")
            log = await broker.get(partition.name)
            await (await log.append([plain(b"of the second")]))
            assert await log.read(0, 1 << 20) == plain(b"of the second").encode()

    asyncio.run(run())


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize(("layout", "ids"), LAYOUTS)
def test_records_of_transactions_wait_for_their_end(redis: RedisServer, layout: str, ids: str) -> None:
    async def run() -> None:
        partition, walker, choice = Partition(redis), Walker(5), random.Random(5)
        async with brokers(redis, 2) as started:
            await partition.create(started[0], layout, ids)
            written = Written(partition.redis, partition.name, layout if ids == "time" else f"{layout}-dense")
            for n in range(60):
                producer = choice.choice((None, 1, 2, 3))
                if producer in written.open and choice.random() < 0.4:
                    written.finish(producer, commit=choice.random() < 0.5)
                else:
                    written.append([b"%d" % n] * choice.randint(1, 9), producer)
                if choice.random() < 0.3 or n == 59:
                    await check_committed(started[n % 2], partition, walker, written)
            for producer in list(written.open):
                written.finish(producer, commit=True)
            await check_committed(started[0], partition, walker, written)

    asyncio.run(run())


async def check_committed(broker: Broker, partition: Partition, walker: Walker, written: Written) -> None:
    broker.log.watcher.changed(partition.stream.encode())
    broker.log.watcher.changed(written.transactions.encode())
    expected = [usual(value).encode() for _, value in written.committed()]
    await check(await broker.get(partition.name), walker, expected)


@pytest.mark.usefixtures("small_steps")
def test_the_index_goes_with_the_records(redis: RedisServer) -> None:
    async def run() -> None:
        partition, walker = Partition(redis), Walker(9)
        async with brokers(redis) as (broker,):
            await partition.create(broker, "record", "dense")
            await partition.produce(broker, [(plain(b"x" * 300), 1)] * 1_000)
            log = await broker.get(partition.name)
            await log.offsets(LATEST, 1)
            assert partition.redis.xlen(partition.index) > 900
            partition.trim(10)
            broker.log.watcher.changed(partition.stream.encode())
            await check(log, walker, partition.expected)
            assert partition.redis.xlen(partition.index) < 120  # whole nodes of a hundred go

    asyncio.run(run())
