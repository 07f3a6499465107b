"""A group in Redis: XINFO GROUPS and XPENDING follow what members read and commit, and never decide what they get."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ketch.configs.settings import Settings
from ketch.log.log import Log
from ketch.redis.links import links
from ketch.redis.question import Question
from ketch.redis.url import RedisAddress
from ketch.store.coordination import native
from tests.support.batches import batch, records
from tests.support.groups import Member, assignment, subscription
from tests.support.kafka import CREATE_PARTITIONS, FETCH, Kafka, fetch, part, split
from tests.support.ketch import KetchServer, eventually
from tests.support.redis_servers import RedisServer, binaries

PENDING_MAX = 50


@pytest.fixture(scope="module", params=["valkey", "redis-server", "redis-6.2"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    directory: Path = tmp_path_factory.mktemp("native-position")
    arguments, other = ["--group-pending-max", str(PENDING_MAX)], None
    if request.param != "valkey":
        binary = binaries().get(request.param) or pytest.skip(f"{request.param} is not installed")
        other = RedisServer(binary, directory / "redis")
        arguments += ["--redis", other.url]
    ketch = KetchServer(directory / "ketch", *arguments).start()
    if other is not None:
        ketch.redis_port = other.port
    yield ketch
    assert ketch.stop() == 0
    if other is not None:
        other.stop()


class Reader(Member):
    """The only member of a group; it has been assigned partition 0 of a topic."""

    def __init__(self, server: KetchServer, topic: str, group: str = "", client_id: str = "raw") -> None:
        super().__init__(server.port, group or f"g-{topic}", client_id=client_id)
        self.topic, self.redis, self.stream = topic, server.redis(), f"korvet:stream:{topic}:0"
        if not self.redis.exists(f"korvet:topic:{topic}"):
            self.create(topic)
        self.enter(protocols={"range": subscription(topic)})
        assert self.sync({self.id: assignment({topic: [0]})}).error_code == 0
        self.dense = False
        self.fetches: Kafka = self  # the connection for fetches

    def fetch(self, *args: Any, **given: Any) -> Any:
        return super().fetch(*args, **given) if self.fetches is self else self.fetches.fetch(*args, **given)

    @contextmanager
    def own_connection(self) -> Iterator[None]:
        """Fetches go through a connection of their own, as those of Java's and librdkafka's consumers do."""
        with Kafka(self.port, client_id="raw") as self.fetches:
            yield
        self.fetches = self

    def write(self, count: int) -> list[int]:
        base = self.stored(self.topic, batch(records([b"%d" % n for n in range(count)])))
        return list(range(base, base + count))

    def read(self, offset: int, max_bytes: int = 1 << 20) -> list[int]:
        """The offsets from one on that a single fetch gives."""
        answer = self.fetch(self.topic, offset, partition_max_bytes=max_bytes)
        assert answer.error_code == 0
        return [r.offset for b in split(answer.records) for r in b.records]

    def read_on(self, offset: int, end: int) -> list[int]:
        """Fetch after fetch, up to `end`."""
        found: list[int] = []
        while offset < end:
            found += self.read(offset)
            offset = found[-1] + 1
        return found

    @property
    def native(self) -> dict[str, Any]:
        groups = {row["name"].decode(): row for row in self.redis.xinfo_groups(self.stream)}
        return groups.get(self.group, {})

    @property
    def pending(self) -> int:
        """-1 where there is no native group."""
        return int(self.native.get("pending", -1))

    def delivered(self) -> int:
        """-1 where there is no native group."""
        if not self.native:
            return -1
        ms, seq = self.native["last-delivered-id"].split(b"-")
        return (int(ms) << 10) + int(seq) - self.dense

    def untouched(self, count: int) -> bool:
        """Whether the native group is there, as its assignment made it, with so many records to come."""
        return (self.pending, self.delivered()) == (0, -int(self.dense)) and self.lags(count)

    def lags(self, count: int) -> bool:
        """Whether XINFO says so; before Redis 7 it says nothing."""
        native = self.native
        return bool(native) and native.get("lag", count) == count


@pytest.fixture(params=["time", "dense"])
def reader(request: pytest.FixtureRequest, server: KetchServer, topic: str) -> Iterator[Reader]:
    with Member(server.port, "") as admin:
        admin.create(topic, offset_ids=request.param)
    with Reader(server, topic) as member:
        member.dense = request.param == "dense"
        yield member


def test_reading_and_committing(reader: Reader) -> None:
    offsets = reader.write(10)
    assert reader.read(offsets[0]) == offsets
    eventually(lambda: (reader.pending, reader.delivered()) == (10, offsets[-1]))
    eventually(lambda: reader.lags(0))
    (consumer,) = reader.redis.xinfo_consumers(reader.stream, reader.group)
    assert (consumer["name"].decode(), consumer["pending"]) == (reader.id, 10)
    reader.commit(reader.topic, offsets[4])
    eventually(lambda: reader.pending == 6)
    more = reader.write(5)
    eventually(lambda: reader.lags(5))
    assert reader.read(more[0]) == more
    reader.commit(reader.topic, more[-1] + 1)
    eventually(lambda: reader.pending == 0)
    eventually(lambda: reader.lags(0))


@pytest.mark.parametrize("step", [-10, -3, 0, 4, 9])
def test_seeking(reader: Reader, step: int) -> None:
    offsets = reader.write(10)
    assert reader.read(offsets[0]) == offsets
    offsets += reader.write(10)
    at = 10 + step
    assert reader.read(offsets[at]) == offsets[at:]
    eventually(lambda: reader.pending == 20 - max(step, 0), what="what was passed over was never delivered")
    eventually(lambda: reader.delivered() == offsets[-1])
    eventually(lambda: reader.lags(0))
    reader.commit(reader.topic, offsets[-1] + 1)
    eventually(lambda: reader.pending == 0)


def test_the_window(reader: Reader) -> None:
    """Up to 50 are tracked, what is beyond moves the position alone, commits make room."""
    offsets = reader.write(120)
    assert reader.read_on(offsets[0], offsets[-1] + 1) == offsets
    eventually(lambda: reader.pending == PENDING_MAX)
    eventually(lambda: reader.delivered() == offsets[-1])  # the answer did not wait for it
    reader.commit(reader.topic, offsets[20])
    eventually(lambda: reader.pending == 30)
    more = reader.write(10)
    assert reader.read_on(more[0], more[-1] + 1) == more
    eventually(lambda: reader.pending == 40)
    reader.commit(reader.topic, more[-1] + 1)
    eventually(lambda: reader.pending == 0)


def test_a_fetch_that_takes_fewer_than_were_delivered(reader: Reader) -> None:
    offsets = reader.write(40)
    assert reader.read(offsets[0], max_bytes=1) == offsets[:1]
    given = reader.read(offsets[1], max_bytes=60)
    assert given == offsets[1 : 1 + len(given)]
    at = 1 + len(given)
    eventually(lambda: (reader.pending, reader.delivered()) == (at, offsets[at - 1]))
    eventually(lambda: reader.lags(40 - at))
    assert reader.read_on(offsets[at], offsets[-1] + 1) == offsets[at:]


def test_what_does_not_fit_behind_another_partition_is_not_delivered(reader: Reader, topic: str) -> None:
    reader.ask(CREATE_PARTITIONS, 3, topics=[{"name": topic, "count": 2, "assignments": None}], timeout=5000)
    reader.enter(protocols={"range": subscription(topic)})
    assert reader.sync({reader.id: assignment({topic: [0, 1]})}).error_code == 0
    second = reader.stored(topic, batch(records([b"small"])), partition=1)
    large = reader.stored(topic, batch(records([bytes(5000)])))
    asked = [part(topic, 1, second), part(topic, 0, large)]
    answer = reader.ask(FETCH, 12, **fetch(asked, max_bytes=2000))
    found = [len(split(p.records)) for each in answer.responses for p in each.partitions]
    assert found == [1, 0]
    eventually(lambda: (reader.pending, reader.delivered() < large) == (0, True))
    eventually(lambda: reader.lags(1))
    assert reader.read(large) == [large]
    eventually(lambda: (reader.pending, reader.delivered()) == (1, large))


def test_records_that_go_on_are_asked_for_once_and_no_more_than_fit(reader: Reader) -> None:
    offsets = reader.write(40)
    assert reader.read(offsets[0]) == offsets  # the size of one is known now
    more = reader.write(PENDING_MAX - 40)
    reader.redis.config_resetstat()
    given = reader.read(offsets[-1] + 1, max_bytes=100)
    assert given == more[: len(given)]
    calls = reader.redis.info("commandstats")
    assert not {"cmdstat_xrange", "cmdstat_xgroup|setid", "cmdstat_xgroup", "cmdstat_xack"} & {*calls}
    assert calls["cmdstat_xreadgroup"]["calls"] == 1


def test_what_operators_do_by_hand(reader: Reader) -> None:
    offsets = reader.write(60)
    for n, act in enumerate(
        [
            lambda: reader.redis.xgroup_setid(reader.stream, reader.group, "0"),
            lambda: reader.redis.xgroup_setid(reader.stream, reader.group, "$"),
            lambda: reader.redis.xgroup_destroy(reader.stream, reader.group),
            lambda: reader.redis.xgroup_delconsumer(reader.stream, reader.group, reader.id),
            lambda: reader.redis.xreadgroup(reader.group, "other", {reader.stream: ">"}, count=3),
        ]
    ):
        at = offsets[10 * n]
        got = reader.read(at, max_bytes=30)
        assert got == offsets[10 * n : 10 * n + len(got)]
        act()
        nxt = 10 * n + len(got)
        rest = reader.read(offsets[nxt])
        assert rest
        assert rest == offsets[nxt : nxt + len(rest)]
        assert reader.commit(reader.topic, offsets[nxt]) == 0
        assert reader.read_on(offsets[nxt], offsets[-1] + 1) == offsets[nxt:]
        eventually(lambda: reader.delivered() == offsets[-1])  # beyond the window, the answer does not wait for it


def test_a_reset_to_earliest(reader: Reader) -> None:
    offsets = reader.write(10)
    reader.read(offsets[0])
    reader.commit(reader.topic, offsets[-1] + 1)
    reader.leave()
    eventually(lambda: reader.redis.xinfo_consumers(reader.stream, reader.group) == [])
    with Member(reader.port, reader.group) as admin:
        assert admin.commit(reader.topic, offsets[0]) == 0
    eventually(lambda: reader.lags(10))
    eventually(lambda: reader.delivered() == offsets[0] - 1)
    eventually(lambda: reader.pending == 0)


def test_two_groups(server: KetchServer, reader: Reader) -> None:
    offsets = reader.write(10)
    with Reader(server, reader.topic, f"second-{reader.topic}", "another") as second:
        second.dense = reader.dense
        assert reader.read(offsets[0]) == offsets
        eventually(lambda: second.untouched(10))
        assert second.read(offsets[5]) == offsets[5:]
        eventually(lambda: (reader.pending, second.pending) == (10, 5))
        second.commit(reader.topic, offsets[-1] + 1)
        eventually(lambda: (reader.pending, second.pending) == (10, 0))


@pytest.fixture
def second(server: KetchServer, reader: Reader) -> Iterator[Callable[[], AbstractContextManager[Reader]]]:
    """Makes a member of another group with the same client id, host and partition; both fetch on own connections."""

    @contextmanager
    def join() -> Iterator[Reader]:
        with Reader(server, reader.topic, f"second-{reader.topic}") as other, other.own_connection():
            other.dense = reader.dense
            yield other

    with reader.own_connection():
        yield join


Second = Callable[[], AbstractContextManager[Reader]]


def test_readers_that_cannot_be_told_apart(reader: Reader, second: Second) -> None:
    """Both groups are there before either reads: they read by offset, commits drive the positions."""
    offsets = reader.write(10)
    with second() as other:
        assert reader.read(offsets[0]) == other.read(offsets[0]) == reader.read(offsets[0]) == offsets
        eventually(lambda: reader.untouched(10) and other.untouched(10))
        reader.commit(reader.topic, offsets[4])
        eventually(lambda: (reader.delivered(), reader.pending) == (offsets[3], 0))
        assert other.untouched(10)
        eventually(lambda: reader.lags(6))
        other.commit(reader.topic, offsets[-1] + 1)
        eventually(lambda: other.lags(0))


def test_a_commit_where_another_broker_makes_the_native_group_at_that_moment(
    server: KetchServer, reader: Reader
) -> None:
    offsets = reader.write(10)

    async def commit() -> None:
        log = Log(Settings(), links(RedisAddress.parse(server.redis_url), 5))
        await log.start()
        ask = log.driver.ask

        async def late(question: Question[Any]) -> Any:
            if question.gi_code is native.create.__code__:  # type: ignore[attr-defined]
                reader.redis.xgroup_create(reader.stream, "two-brokers", "0")
            return await ask(question)

        log.driver.ask = late  # type: ignore[method-assign]
        partition = log.partition(await log.topic(reader.topic), 0)
        await partition.group_positions.committed("two-brokers", offsets[4], tracked=False, elsewhere=False)
        await log.stop()

    asyncio.run(commit())
    rows = {row["name"].decode(): row for row in reader.redis.xinfo_groups(reader.stream)}
    assert rows["two-brokers"].get("lag", 6) == 6
    (entry,) = reader.redis.xrange(reader.stream, min=rows["two-brokers"]["last-delivered-id"], count=1)
    assert entry[1][b"value"] == b"3"


def test_a_reader_is_known_by_its_heartbeats(server: KetchServer, reader: Reader) -> None:
    offsets = reader.write(10)
    with Reader(server, reader.topic, f"second-{reader.topic}") as other:
        other.dense = reader.dense
        assert reader.read(offsets[0]) == other.read(offsets[0]) == offsets
        eventually(lambda: (reader.pending, other.pending) == (10, 10))


def test_a_reader_is_known_from_before_the_second_group(reader: Reader, second: Second) -> None:
    offsets = reader.write(10)
    assert reader.read(offsets[0]) == offsets
    eventually(lambda: reader.pending == 10)
    with second() as other:
        assert other.read(offsets[0], max_bytes=1) == offsets[:1]
        assert other.untouched(10), "it may be the first one's new connection"
        more = reader.write(3)
        assert reader.read(more[0]) == more
        assert other.read(offsets[0]) == [*offsets, *more]
        eventually(lambda: (reader.pending, other.pending) == (13, 13))
        reader.commit(reader.topic, offsets[4])
        other.commit(reader.topic, offsets[7])
        eventually(lambda: (reader.pending, other.pending) == (9, 6))
        eventually(lambda: reader.delivered() == other.delivered() == more[-1])


def test_readers_that_can_no_longer_be_told_apart(server: KetchServer, reader: Reader, second: Second) -> None:
    """While a third connection of the same client id reads, commits alone drive both groups."""
    offsets = reader.write(10)
    assert reader.read(offsets[0]) == offsets
    with second() as other:
        for at in (0, 5):
            assert other.read(offsets[at]) == reader.read(offsets[at]) == offsets[at:]
        eventually(lambda: (reader.pending, other.pending) == (10, 5))
        with Kafka(server.port, client_id="raw") as third:
            for _ in range(2):
                third.fetch(reader.topic, offsets[0])
                assert other.read(offsets[5]) == reader.read(offsets[5]) == offsets[5:]
            for committed in (2, 7, 4, 9, 1):  # also back, as behind a seek
                reader.commit(reader.topic, offsets[committed])
                eventually(lambda at=offsets[committed - 1]: (reader.delivered(), reader.pending) == (at, 0))
                eventually(partial(reader.lags, 10 - committed))
            other.commit(reader.topic, offsets[3])
            eventually(lambda: (other.delivered(), other.pending) == (offsets[2], 0))

        def tracked() -> bool:
            return reader.read(offsets[1]) == offsets[1:] and reader.pending == 9

        eventually(tracked)  # once the broker has noticed that the connection is gone


def test_a_consumer_that_assigned_itself(server: KetchServer, reader: Reader) -> None:
    offsets = reader.write(10)
    with Member(server.port, f"alone-{reader.topic}", client_id="alone") as alone:

        def lags(left: int) -> bool:
            groups = {row["name"].decode(): row for row in reader.redis.xinfo_groups(reader.stream)}
            return alone.group in groups and bool(groups[alone.group].get("lag", left) == left)

        for committed in (offsets[7], offsets[2], offsets[-1] + 1):
            alone.commit(reader.topic, committed)
            left = sum(offset >= committed for offset in offsets)
            eventually(partial(lags, left))


def test_a_replay_after_a_rebalance(server: KetchServer, reader: Reader) -> None:
    """What one member had and did not commit is delivered to the next, and is the next one's."""
    offsets = reader.write(10)
    reader.read(offsets[0])
    reader.commit(reader.topic, offsets[4])
    reader.leave()
    with Reader(server, reader.topic, client_id="next") as successor:
        successor.dense = reader.dense
        assert successor.read(offsets[4]) == offsets[4:]
        eventually(lambda: len(reader.redis.xinfo_consumers(reader.stream, reader.group)) == 1)
        (consumer,) = reader.redis.xinfo_consumers(reader.stream, reader.group)
        assert (consumer["name"].decode(), consumer["pending"]) == (successor.id, 6)


def test_a_member_that_lost_a_partition_is_no_consumer_of_it(server: KetchServer, reader: Reader) -> None:
    offsets = reader.write(3)
    reader.read(offsets[0])
    assert reader.join(protocols={"range": subscription(reader.topic)}).error_code == 0
    assert reader.sync({reader.id: assignment({})}).error_code == 0
    eventually(lambda: reader.redis.xinfo_consumers(reader.stream, reader.group) == [])
    assert reader.read(offsets[0]) == offsets
    eventually(lambda: reader.pending == 0)


def test_a_trimmed_stream(reader: Reader) -> None:
    offsets = reader.write(30)
    reader.read(offsets[0], max_bytes=30)
    reader.redis.xtrim(reader.stream, maxlen=10, approximate=False)
    eventually(lambda: reader.fetch(reader.topic, offsets[5]).error_code == 1)  # once Redis has told the broker
    assert reader.read(offsets[20]) == offsets[20:]
    eventually(lambda: reader.lags(0))
    reader.commit(reader.topic, offsets[25])
    reader.redis.xtrim(reader.stream, maxlen=0, approximate=False)
    reader.commit(reader.topic, offsets[-1] + 1)
    eventually(lambda: reader.pending == 0)
    assert reader.read(offsets[-1] + 1) == []


def test_a_commit_where_the_stream_was_trimmed_empty(server: KetchServer, reader: Reader) -> None:
    offsets = reader.write(10)
    with Reader(server, reader.topic, f"other-{reader.topic}") as other:
        other.dense = reader.dense
        eventually(lambda: other.untouched(10))
        reader.redis.xtrim(reader.stream, maxlen=0, approximate=False)
        eventually(lambda: reader.fetch(reader.topic, offsets[5]).error_code == 1)  # once Redis has told the broker
        reader.redis.xgroup_destroy(reader.stream, other.group)
        other.commit(reader.topic, offsets[-1] + 1)
        eventually(lambda: (other.pending, other.delivered()) == (0, offsets[-1]))
        assert other.lags(0)


def test_entries_deleted_in_the_middle(reader: Reader) -> None:
    offsets = reader.write(10)
    reader.read(offsets[0], max_bytes=1)
    entries = [entry for entry, _ in reader.redis.xrange(reader.stream)]
    reader.redis.xdel(reader.stream, entries[1], entries[2])
    assert reader.read(offsets[1]) == offsets[3:]


@pytest.mark.only_storage("record")
def test_nothing_is_tracked(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    server = start_ketch("--group-pending-max", "0")
    with Reader(server, topic) as reader:
        offsets = reader.write(10)
        assert reader.read(offsets[0]) == offsets
        eventually(lambda: (reader.pending, reader.delivered()) == (0, offsets[-1]))
        reader.commit(topic, offsets[5])
        eventually(lambda: reader.delivered() == offsets[-1])
        eventually(lambda: reader.lags(0))


@pytest.mark.only_storage("record", "record-dense")
def test_metrics_say_which_of_the_two(start_ketch: Callable[..., KetchServer], topic: str) -> None:
    server = start_ketch("--group-pending-max", "5", "--http-port", "0")
    port = server.log.split(", http 127.0.0.1:")[1].split(",")[0]
    with Reader(server, topic) as reader:
        offsets = reader.write(20)
        reader.read_on(offsets[0], offsets[-1] + 1)
        reader.commit(topic, offsets[-1] + 1)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
    labels = f'group="{reader.group}",topic="{topic}"'
    assert f'ketch_group_deliveries_total{{{labels},tracked="yes"}} 5.0' in text
    assert f'ketch_group_deliveries_total{{{labels},tracked="no"}} 15.0' in text
    assert f"ketch_group_commits_total{{{labels}}} 1.0" in text
    assert f'ketch_group_rebalances_total{{group="{reader.group}"}} 1.0' in text
