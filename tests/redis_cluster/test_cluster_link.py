"""The asyncio driver against a real cluster of three masters, each with a replica."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from ketch.errors import StorageUnavailable
from ketch.redis.cluster import ClusterLink
from ketch.redis.driver import Node, Reply
from ketch.redis.links import links
from ketch.redis.question import Command, call, calls, command, keyed
from ketch.redis.resp import pack, parse
from ketch.redis.slots import slot
from ketch.redis.url import RedisAddress
from tests.support.clusters import RedisCluster

TIMEOUT = 10.0
_names = itertools.count(1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    made = RedisCluster(tmp_path_factory.mktemp("cluster"), masters=3)
    yield made
    made.stop()


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[RedisCluster]:
    made = RedisCluster(tmp_path, masters=3, replicas=1)
    yield made
    made.stop()


def over(cluster: RedisCluster, work: Callable[[ClusterLink], Coroutine[Any, Any, None]], **hooks: Any) -> None:
    """Runs `work` over a driver of its own."""

    async def run() -> None:
        link = ClusterLink("test", RedisAddress.parse(cluster.url), TIMEOUT, **hooks)
        await link.start()
        try:
            async with asyncio.timeout(60):
                await work(link)
        finally:
            await link.stop()

    asyncio.run(run())


def new_key() -> bytes:
    return b"key-%d" % next(_names)


async def eventually(probe: Callable[[], bool]) -> None:
    while not probe():
        await asyncio.sleep(0.01)


async def stored_twice(link: ClusterLink, key: bytes) -> None:
    """Sets a key to 1, on its node's replica, too."""
    written = Command(key, (pack("SET", key, "1"), pack("WAIT", 1, 10_000)), 2)
    assert parse(await link.send(written)) == 1


class Pushes:
    """Appends numbers to a list, many at a time, and takes the answers as they come."""

    def __init__(self, link: ClusterLink, key: bytes, transactions: bool = False) -> None:
        self._link, self.key, self._transactions = link, key, transactions
        self.sent = 0
        self.answers: list[int] = []
        self.errors: list[Exception] = []

    def push(self) -> None:
        words = pack("RPUSH", self.key, self.sent)
        one = Command(self.key, words)
        several = Command(self.key, (pack("MULTI"), words, pack("EXEC")), 3)
        self._link.post(several if self._transactions else one, self._take)
        self.sent += 1

    def _take(self, reply: Reply) -> None:
        answer = parse(reply) if isinstance(reply, bytes) else reply
        answer = answer[0] if isinstance(answer, list) else answer
        if isinstance(answer, Exception):
            self.errors.append(answer)
        else:
            self.answers.append(answer)

    @property
    def done(self) -> bool:
        return len(self.answers) + len(self.errors) == self.sent

    async def until(self, other: asyncio.Task[None]) -> None:
        """Pushes, a few dozen in flight, until `other` has ended, and waits for all answers."""
        while not other.done():
            for _ in range(5):
                self.push()
            await eventually(lambda: self.sent - len(self.answers) - len(self.errors) < 50)
            await asyncio.sleep(0)
        await other
        await eventually(lambda: self.done)

    async def check(self) -> None:
        """All were executed once, in the order in which they were sent."""
        assert self.errors == []
        assert self.answers == list(range(1, self.sent + 1))
        stored = await self._link.ask(call(self.key, "LRANGE", self.key, 0, -1))
        assert stored == [b"%d" % n for n in range(self.sent)]


def test_a_round_goes_to_the_nodes_of_its_keys(cluster: RedisCluster) -> None:
    async def work(link: ClusterLink) -> None:
        keys = [new_key() for _ in range(100)]
        await link.ask(calls([keyed("SET", key, key) for key in keys]))
        assert await link.ask(calls([keyed("GET", key) for key in keys])) == keys
        sizes = await link.ask_each(lambda: call(None, "DBSIZE"))
        assert len(sizes) == 3
        assert all(sizes)
        assert link.up

    over(cluster, work)


@pytest.mark.parametrize("transactions", [False, True], ids=["commands", "transactions"])
def test_order_survives_migrations(cluster: RedisCluster, transactions: bool) -> None:
    """A slot goes to another node and back, under load: every command is executed once, in order."""

    async def work(link: ClusterLink) -> None:
        pushes = Pushes(link, new_key(), transactions)
        moved = slot(pushes.key)
        home = cluster.owner(moved)
        away = next(node for node in cluster.nodes if node is not home)

        def migrate() -> None:
            for _ in range(3):
                cluster.migrate(moved, away)
                cluster.migrate(moved, home)

        await pushes.until(asyncio.create_task(asyncio.to_thread(migrate)))
        await pushes.check()

    over(cluster, work)


def test_keys_that_are_not_there_yet_while_their_slot_moves(cluster: RedisCluster) -> None:
    """The old node sends on what it has not (ASK); a script of several keys waits for the end (TRYAGAIN)."""

    async def work(link: ClusterLink) -> None:
        tag = new_key()
        moved = slot(tag)
        home = cluster.owner(moved)
        away = next(node for node in cluster.nodes if node is not home)
        there, new = b"{%b}there" % tag, b"{%b}new" % tag
        await link.ask(call(there, "SET", there, "1"))
        await asyncio.to_thread(cluster.begin_migration, moved, away)
        assert await link.ask(call(there, "GET", there)) == b"1"
        await link.ask(call(new, "SET", new, "2"))
        script = "return redis.call('GET', KEYS[1]) .. redis.call('GET', KEYS[2])"
        both = asyncio.create_task(link.ask(call(there, "EVAL", script, 2, there, new)))
        other = new_key()
        await link.ask(call(other, "SET", other, "slots that do not move go on"))
        assert not both.done()
        await asyncio.to_thread(cluster.move_keys, moved, away)
        await asyncio.to_thread(cluster.end_migration, moved, away)
        assert await both == b"12"
        cluster.migrate(moved, home)

    over(cluster, work)


def test_pushes_come_from_every_node(cluster: RedisCluster) -> None:
    pushed: set[bytes] = set()

    async def track(node: Node) -> None:
        await node.ask(call(None, "CLIENT", "TRACKING", "ON", "NOLOOP"))

    async def work(link: ClusterLink) -> None:
        keys = {new_key() for _ in range(30)}
        await link.ask(calls([keyed("GET", key) for key in keys]))
        for key in keys:
            cluster.client(cluster.owner(slot(key))).set(key, "other")
        await eventually(lambda: pushed == keys)

    over(cluster, work, on_up=track, on_push=lambda message: pushed.update(message[1]))


def test_a_master_dies(replicated: RedisCluster) -> None:
    """Its replica takes over: the driver fails what was in flight, says so, and finds the new master."""
    downs: list[int] = []

    async def work(link: ClusterLink) -> None:
        key = new_key()
        await stored_twice(link, key)
        await asyncio.to_thread(replicated.kill, replicated.owner(slot(key)))
        await eventually(lambda: bool(downs))
        while True:
            try:
                assert await link.ask(call(key, "GET", key)) == b"1"
                break
            except StorageUnavailable:
                await asyncio.sleep(0.05)
        await eventually(lambda: link.up)

    over(replicated, work, on_down=lambda: downs.append(1))


def test_a_master_hangs(replicated: RedisCluster) -> None:
    """It answers no more and keeps its connections: what it was sent fails once the cluster has another master."""

    async def work(link: ClusterLink) -> None:
        key = new_key()
        await stored_twice(link, key)
        hung = replicated.owner(slot(key))
        replicated.pause(hung)
        try:
            with pytest.raises(StorageUnavailable):
                await link.ask(call(key, "SET", key, "2"))
            while True:
                try:
                    await link.ask(call(key, "SET", key, "3"))
                    break
                except StorageUnavailable:
                    await asyncio.sleep(0.05)
        finally:
            replicated.resume(hung)
        # It comes back, and is not asked any more.
        assert await link.ask(call(key, "GET", key)) == b"3"

    over(replicated, work)


def test_the_only_master_hangs(tmp_path: Path) -> None:
    """Nobody else is connected to, and the URL names nobody else: its replica is asked who has the slots."""
    cluster = RedisCluster(tmp_path, masters=1, replicas=1)
    master, replica = cluster.nodes

    async def run() -> None:
        link = ClusterLink("test", RedisAddress.parse(f"redis+cluster://127.0.0.1:{master.port}"), TIMEOUT)
        await link.start()
        try:
            master.pause()
            replica.ask("CLUSTER", "FAILOVER", "TAKEOVER")
            async with asyncio.timeout(60):
                await eventually(lambda: link.up and link.node(b"key") == replica.place)
                assert await link.ask(call(b"key", "SET", "key", "1")) == b"OK"
        finally:
            await link.stop()

    try:
        asyncio.run(run())
    finally:
        cluster.stop()


def test_a_failover_by_hand(replicated: RedisCluster) -> None:
    """CLUSTER FAILOVER loses nothing: what the old master refuses goes to the new one."""

    async def work(link: ClusterLink) -> None:
        pushes = Pushes(link, new_key())
        heir = replicated.replica_of(replicated.owner(slot(pushes.key)))
        await pushes.until(asyncio.create_task(asyncio.to_thread(replicated.failover, heir)))
        await pushes.check()

    over(replicated, work)


def test_a_change_is_logged_once(cluster: RedisCluster, caplog: pytest.LogCaptureFixture) -> None:
    """However many drivers see it."""

    async def run() -> None:
        connect = links(RedisAddress.parse(cluster.url), TIMEOUT)
        drivers = [connect("read"), connect("write")]
        for driver in drivers:
            await driver.start()
        key = new_key()
        before = drivers[0].node(key)
        away = next(node for node in cluster.nodes if node.place != before)
        await asyncio.to_thread(cluster.migrate, slot(key), away)
        await eventually(lambda: all(driver.node(key) == away.place for driver in drivers))
        for driver in drivers:
            await driver.stop()

    with caplog.at_level("INFO", "ketch.redis.cluster"):
        asyncio.run(run())
    assert [record.message.partition(":")[0] for record in caplog.records] == ["Redis Cluster has changed"]


def test_a_cluster_that_is_not_whole(tmp_path: Path) -> None:
    cluster = RedisCluster(tmp_path, masters=2)
    try:
        for node in cluster.nodes:
            node.ask("CLUSTER", "DELSLOTS", 0)
        with pytest.raises(StorageUnavailable, match="is not whole: 1 of 16384 slots"):
            over(cluster, lambda link: asyncio.sleep(0))
    finally:
        cluster.stop()


def test_no_cluster(tmp_path: Path, broker: Any) -> None:
    address = RedisAddress.parse(f"redis+cluster://127.0.0.1:{broker.redis_port}")

    async def start() -> None:
        await ClusterLink("test", address, TIMEOUT).start()

    with pytest.raises(StorageUnavailable, match="cluster support disabled"):
        asyncio.run(start())


def test_commands_without_a_key_go_to_one_node(cluster: RedisCluster) -> None:
    async def work(link: ClusterLink) -> None:
        assert parse(await link.send(command(None, "PING"))) == b"PONG"

    over(cluster, work)
