"""The blocking driver while slots move back and forth, and while nodes fail and others take their places.

A thread writes as callers do: what fails it tries again (`blocking.ask`). So a number may be there twice, but never one
after a greater one, and no number is missing that was acknowledged, as long as no node was killed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ketch.errors import StorageUnavailable
from ketch.redis.blocking import ask, connect
from ketch.redis.question import Command, Question, call, calls, command, keyed
from ketch.redis.resp import pack
from ketch.redis.server import Server
from ketch.redis.slots import slot
from tests.support.clusters import LIMIT, RedisCluster
from tests.support.ketch import eventually


class Writer:
    """Appends rising numbers to lists, in every round one to each, until it is stopped.

    Attributes:
        rounds: how many were acknowledged.
    """

    def __init__(self, server: Server, names: Sequence[str]) -> None:
        self._server, self._names = server, names
        self.rounds = 0
        self._error: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                ask(self._server, lambda redis: redis.ask(self._round(self.rounds)))
                self.rounds += 1
        except BaseException as error:
            self._error = error

    def _round(self, number: int) -> Question[Any]:
        """Commands and transactions in turns; three keys are in one slot."""
        commands = [_push(name, number, number % 2 == 0) for name in self._names]
        yield from calls(commands)

    def goes_on(self) -> None:
        """Returns once it has written more."""
        before = self.rounds
        eventually(lambda: self._error is not None or self.rounds > before + 3, LIMIT, "more rounds")
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error


def _push(name: str, number: int, in_transaction: bool) -> Command:
    if not in_transaction:
        return keyed("RPUSH", name, number)
    return Command(name.encode(), (pack("MULTI"), pack("RPUSH", name, number), pack("EXEC")), 3)


def written(server: Server, names: Sequence[str]) -> list[list[int]]:
    """What lies in each list, without repetitions."""
    asked = [command(name.encode(), "LRANGE", name, 0, -1) for name in names]
    found = ask(server, lambda redis: redis.ask(calls(asked)))
    numbers = [[int(word) for word in words] for words in found]
    for each in numbers:
        assert all(a <= b for a, b in pairwise(each)), each
    return [[*dict.fromkeys(each)] for each in numbers]


def test_slots_that_move_back_and_forth_under_load(cluster: RedisCluster, server: Server, topic: str) -> None:
    names = [f"{{{topic}{tag}}}{n}" for tag in "abc" for n in range(3)]
    writer = Writer(server, names)
    try:
        for _ in range(4):
            for tag in "abc":
                number = slot(f"{topic}{tag}".encode())
                home = cluster.owner(number)
                to = next(node for node in cluster.nodes if node is not home)
                writer.goes_on()
                cluster.begin_migration(number, to)
                while cluster.move_keys(number, to, 1):
                    writer.goes_on()
                cluster.end_migration(number, to)
        writer.goes_on()
    finally:
        writer.stop()
    assert written(server, names) == [[*range(writer.rounds)]] * len(names)


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[RedisCluster]:
    """Three masters, each with a replica."""
    with RedisCluster(tmp_path, replicas=1) as cluster:
        yield cluster


def spread(topic: str) -> list[str]:
    """Names of lists in every node's slots."""
    return [f"{topic}-{n}" for n in range(30)]


def test_failover_in_order(replicated: RedisCluster, topic: str) -> None:
    """The master waits for its replica (CLUSTER FAILOVER), so nothing is lost."""
    server, names = Server(replicated.url, timeout=LIMIT, patience=LIMIT), spread(topic)
    writer = Writer(server, names)
    try:
        for master in replicated.nodes[:3]:
            writer.goes_on()
            replicated.failover(replicated.replica_of(master))
        writer.goes_on()
    finally:
        writer.stop()
    assert written(server, names) == [[*range(writer.rounds)]] * len(names)


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_a_master_that_dies(replicated: RedisCluster, topic: str, how: str) -> None:
    """The URL names it alone: the others are known to this process."""
    master = replicated.nodes[1]
    server = Server(f"redis+cluster://127.0.0.1:{master.port}", timeout=2, patience=LIMIT)
    names = spread(topic)
    writer = Writer(server, names)
    try:
        writer.goes_on()
        (replicated.kill if how == "kill" else replicated.pause)(master)
        heir = replicated.wait_failed_over(master)
        writer.goes_on()
        after = writer.rounds
        writer.goes_on()
    finally:
        writer.stop()
    for numbers in written(server, names):  # the replica may not have had the last ones
        assert numbers[-(writer.rounds - after) :] == [*range(after, writer.rounds)]
    if how == "kill":
        replicated.restart(master)
        eventually(lambda: not master.is_master, LIMIT, "the old master to become a replica")
    else:
        replicated.resume(master)
    assert ask(server, lambda redis: redis.ask(call(names[0].encode(), "EXISTS", names[0]))) == 1
    assert heir.is_master


def test_a_replica_leads_to_the_masters(replicated: RedisCluster, topic: str) -> None:
    replica = replicated.replica_of(replicated.nodes[0])
    with closing(connect(Server(f"redis+cluster://127.0.0.1:{replica.port}", timeout=LIMIT))) as driver:
        names = spread(topic)
        assert driver.ask(calls([keyed("SET", name, 1) for name in names])) == [b"OK"] * len(names)
        ids = driver.ask_each(lambda: call(None, "CLUSTER", "MYID"))
        assert sorted(ids) == sorted(node.id.encode() for node in replicated.nodes[:3])


def test_a_lost_node_is_lost_for_all_that_is_in_flight(cluster: RedisCluster, server: Server, topic: str) -> None:
    names = {cluster.owner(slot(name.encode())).port: name.encode() for name in spread(topic)}
    home, other = (names[node.port] for node in cluster.nodes[:2])
    with closing(connect(server)) as driver:
        driver.ask(calls([command(home, "SET", home, 1), command(other, "SET", other, 2)]))
        begun = driver.begin(call(other, "GET", other))
        cluster.nodes[0].ask("CLIENT", "KILL", "TYPE", "normal")
        gone = f"127.0.0.1:{cluster.nodes[0].port} is gone"
        with pytest.raises(StorageUnavailable, match=gone):
            driver.begin(calls([command(home, "GET", home), command(other, "GET", other)])).answer()
        for again in (begun.answer, lambda: driver.ask(call(other, "GET", other))):
            with pytest.raises(StorageUnavailable, match=gone):
                again()
    assert ask(server, lambda redis: redis.ask(call(home, "GET", home))) == b"1"


def test_slots_without_a_node(tmp_path: Path, topic: str) -> None:
    """One sentence says it, at the end of the time that a reply may take; a caller with more patience goes on."""
    with RedisCluster(tmp_path) as cluster:
        number = slot(topic.encode())
        home = cluster.owner(number)
        cluster.unassign(number)
        where = f"The cluster at {cluster.url} is not whole: 1 of 16384 slots have no node."
        for name in (topic, f"{topic}-other"):  # a cluster that is not whole serves no slot
            hasty = Server(cluster.url, timeout=1)
            with pytest.raises(StorageUnavailable) as caught, closing(connect(hasty)) as driver:
                driver.ask(call(name.encode(), "SET", name, 1))
            assert str(caught.value) == where
        with closing(connect(Server(cluster.url, timeout=LIMIT))) as driver:
            begun = driver.begin(call(topic.encode(), "SET", topic, 1))
            home.ask("CLUSTER", "ADDSLOTS", number)
            assert begun.answer() == b"OK"


def test_a_cluster_that_is_down(tmp_path: Path, topic: str) -> None:
    with RedisCluster(tmp_path) as cluster:
        dead = cluster.nodes[2]
        cluster.kill(dead)
        eventually(lambda: cluster.nodes[0].says("cluster", "cluster_state:fail"), LIMIT, "the cluster to be down")
        name = next(name for name in spread(topic) if cluster.owner(slot(name.encode())) is cluster.nodes[0])
        said = f"does not serve slot {slot(name.encode())}: CLUSTERDOWN The cluster is down"
        hasty = Server(cluster.url, timeout=1)
        with pytest.raises(StorageUnavailable, match=said), closing(connect(hasty)) as driver:
            driver.ask(call(name.encode(), "SET", name, 1))
        cluster.restart(dead)
        server = Server(cluster.url, timeout=LIMIT, patience=LIMIT)
        assert ask(server, lambda redis: redis.ask(call(name.encode(), "SET", name, 1))) == b"OK"
