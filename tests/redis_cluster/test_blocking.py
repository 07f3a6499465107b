"""The blocking driver on a cluster of three masters that is well: rounds over its nodes, and slots that move."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from ketch.errors import ConfigError, RedisError, StorageUnavailable
from ketch.redis.blocking import ask, connect
from ketch.redis.driver import BlockingDriver
from ketch.redis.question import Command, Question, call, calls, command, keyed
from ketch.redis.resp import pack
from ketch.redis.server import Server
from ketch.redis.slots import slot
from ketch.store.topics import hashes
from tests.support.clusters import LIMIT, Node, RedisCluster, free_port
from tests.support.ketch import eventually
from tests.support.redis_servers import RedisServer, binaries


def transaction(key: str, *changes: tuple[Any, ...]) -> Command:
    """Commands from MULTI to EXEC."""
    pieces = (pack("MULTI"), *(pack(*words) for words in changes), pack("EXEC"))
    return Command(key.encode(), pieces, len(pieces))


def another(cluster: RedisCluster, node: Node) -> Node:
    return next(each for each in cluster.nodes if each is not node)


class InThread:
    """Asks in a thread of its own."""

    def __init__(self, server: Server, question: Callable[[], Question[Any]]) -> None:
        self._server, self._question = server, question
        self._answer: Any = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer = ask(self._server, lambda redis: redis.ask(self._question()))
        except Exception as error:
            self._answer = error

    def answer(self) -> Any:
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


# -- rounds


def test_a_round_over_all_nodes(cluster: RedisCluster, driver: BlockingDriver, topic: str) -> None:
    def question() -> Question[Any]:
        stored = yield from calls([keyed("SET", f"{topic}{n}", n) for n in range(300)])
        mixed = [(keyed("GET", f"{topic}{n}"), command(None, "ECHO", str(n))) for n in range(300)]
        nothing = yield from calls([])
        return stored, nothing, (yield from calls([one for pair in mixed for one in pair]))

    stored, nothing, found = driver.ask(question())
    assert (stored, nothing) == ([b"OK"] * 300, [])
    assert found == [b"%d" % n for n in range(300) for _ in "ab"]
    assert all(node.ask("DBSIZE") > 50 for node in cluster.nodes)


def test_large_replies_of_several_nodes(driver: BlockingDriver, topic: str) -> None:
    values = {f"{topic}{n}": b"%d" % n * 1_000_000 for n in range(6)}
    driver.ask(calls([keyed("SET", key, value) for key, value in values.items()]))
    assert driver.ask(calls([keyed("GET", key) for key in values])) == [*values.values()]


def test_questions_in_flight_have_rounds_of_their_own(driver: BlockingDriver, topic: str) -> None:
    def question(n: int) -> Question[Any]:
        first = yield from call(f"{topic}-{n}".encode(), "RPUSH", f"{topic}-{n}", n)
        second = yield from calls([keyed("RPUSH", f"{topic}-{n}", n), command(None, "ECHO", str(n))])
        return first, *second

    begun = [driver.begin(question(n)) for n in range(9)]
    order = [4, 0, 8, 1, 7, 2, 6, 3, 5]
    assert begun[4].answer() == (1, 2, b"4")
    assert driver.ask(call(None, "ECHO", "between")) == b"between"
    assert [begun[n].answer() for n in order] == [(1, 2, b"%d" % n) for n in order]


def test_errors_are_raised_where_the_question_waits(driver: BlockingDriver, topic: str) -> None:
    key = topic.encode()

    def question() -> Question[Any]:
        yield from call(key, "SET", key, "text")
        with pytest.raises(RedisError, match="WRONGTYPE"):
            yield from calls([command(key, "LPOP", key), keyed("SET", f"{topic}-other", 1)])
        with pytest.raises(StorageUnavailable, match="EXECABORT"):
            yield from calls([transaction(topic, ("GET", topic), ("NO-SUCH-COMMAND",))])
        return (yield from call(key, "GET", key))

    assert driver.ask(question()) == b"text"


def test_what_every_node_is_asked(cluster: RedisCluster, driver: BlockingDriver, topic: str) -> None:
    ids = driver.ask_each(lambda: call(None, "CLUSTER", "MYID"))
    assert sorted(ids) == sorted(node.id.encode() for node in cluster.nodes)
    names = {f"{topic}{n}".encode() for n in range(100)}
    driver.ask(calls([command(name, "SET", name, 1) for name in names]))
    waiting = driver.begin(call(None, "ECHO", "before"))
    found = driver.ask_each(lambda: hashes.scan(f"{topic}*".encode()))
    assert [bool(each) for each in found] == [True] * 3
    assert {name for each in found for name in each} == names
    assert waiting.answer() == b"before"
    with pytest.raises(RedisError, match="unknown command"):
        driver.ask_each(lambda: call(None, "NO-SUCH-COMMAND"))
    assert driver.ask(calls([command(name, "GET", name) for name in names])) == [b"1"] * 100


# -- ways to a cluster


def test_any_node_leads_to_all(cluster: RedisCluster, topic: str) -> None:
    """Also behind one that is not there."""
    nobody = free_port()
    for node in cluster.nodes:
        url = f"redis+cluster://127.0.0.1:{nobody},127.0.0.1:{node.port}"
        with closing(connect(Server(url, timeout=LIMIT))) as driver:
            assert len(driver.ask_each(lambda: call(None, "PING"))) == 3


def test_nobody_there() -> None:
    port = free_port()
    with pytest.raises(StorageUnavailable) as caught:
        connect(Server(f"redis+cluster://127.0.0.1:{port}"))
    assert str(caught.value) == (
        f"No node of redis+cluster://127.0.0.1:{port} can be asked:"
        f" Redis at redis://127.0.0.1:{port} cannot be used: Connection refused."
    )


def test_a_server_that_is_in_no_cluster(tmp_path_factory: pytest.TempPathFactory) -> None:
    one = RedisServer(next(iter(binaries().values())), tmp_path_factory.mktemp("single"))
    try:
        with pytest.raises(ConfigError) as caught:
            connect(Server(f"redis+cluster://127.0.0.1:{one.port}"))
        said = "ERR This instance has cluster support disabled"
        assert str(caught.value) == f"Redis at {one.url} does not say of which cluster it is: {said}."
    finally:
        one.stop()


# -- slots that have moved


def test_a_slot_that_has_moved(cluster: RedisCluster, driver: BlockingDriver, topic: str) -> None:
    """The driver learns it from the node that had the slot, and keeps the order of the slot's commands."""
    number, others = slot(topic.encode()), [f"{topic}-{n}" for n in range(50)]
    assert driver.ask(call(topic.encode(), "RPUSH", topic, 0)) == 1
    before = cluster.owner(number)
    for to in (another(cluster, before), before):
        cluster.migrate(number, to)
        driver.ask(call(topic.encode(), "DEL", topic))
        cluster.migrate(number, another(cluster, to))
        begun = [driver.begin(_pushes(topic, n, others[n])) for n in range(50)]
        assert [each.answer()[0] for each in reversed(begun)] == list(range(100, 0, -2))
        assert driver.ask(call(topic.encode(), "LRANGE", topic, 0, -1)) == [b"%d" % n for n in range(100)]
        assert cluster.owner(number).ask("EXISTS", topic) == 1


def _pushes(key: str, n: int, other: str) -> Question[Any]:
    """A number and the one behind it, the first in a transaction; something else between them."""
    pushed = transaction(key, ("RPUSH", key, 2 * n), ("TYPE", key))
    first, _, second = yield (pushed, keyed("SET", other, n), keyed("RPUSH", key, 2 * n + 1))
    assert first == b"*2\r\n:%d\r\n+list\r\n" % (2 * n + 1)
    return int(second[1:-2]), first


def test_a_whole_node_that_has_moved(cluster: RedisCluster, driver: BlockingDriver, topic: str) -> None:
    """Many slots at once."""
    names = [f"{topic}-{n}" for n in range(40)]
    driver.ask(calls([keyed("SET", name, name) for name in names]))
    homes = {slot(name.encode()): cluster.owner(slot(name.encode())) for name in names}
    for number, home in homes.items():
        cluster.migrate(number, another(cluster, home))
    assert driver.ask(calls([keyed("GET", name) for name in names])) == [name.encode() for name in names]
    for number, home in homes.items():
        cluster.migrate(number, home)
    assert driver.ask(calls([keyed("GET", name) for name in names])) == [name.encode() for name in names]


# -- slots that are being moved


def test_keys_of_a_slot_that_is_being_moved(cluster: RedisCluster, server: Server, topic: str) -> None:
    """Some have been moved, others not, and some do not exist: those are made at the new node."""
    names = [f"{{{topic}}}{n}" for n in range(4)]
    number = slot(topic.encode())
    to = another(cluster, cluster.owner(number))
    with closing(connect(server)) as driver:
        driver.ask(calls([keyed("SET", name, n) for n, name in enumerate(names)]))
        cluster.begin_migration(number, to)
        cluster.move_these(number, to, *names[:2])
        for n, name in enumerate(names):
            assert driver.ask(call(name.encode(), "GET", name)) == b"%d" % n
        assert driver.ask(call(topic.encode(), "RPUSH", topic, 1)) == 1
        assert driver.ask(calls([transaction(topic, ("RPUSH", topic, 2), ("LLEN", topic))])) == [[2, 2]]
        # From here on the slot is known as one that is being moved.
        both = [keyed("GET", name) for name in (*names, *reversed(names))]
        assert driver.ask(calls(both)) == [b"0", b"1", b"2", b"3", b"3", b"2", b"1", b"0"]
        begun = [driver.begin(call(topic.encode(), "RPUSH", topic, n)) for n in (3, 4)]
        assert [each.answer() for each in begun] == [3, 4]
        while cluster.move_keys(number, to):
            pass
        cluster.end_migration(number, to)
        assert driver.ask(calls([keyed("GET", name) for name in names])) == [b"0", b"1", b"2", b"3"]
        assert driver.ask(call(topic.encode(), "LRANGE", topic, 0, -1)) == [b"1", b"2", b"3", b"4"]


def test_an_order_that_was_broken_ends_the_driver(cluster: RedisCluster, server: Server, topic: str) -> None:
    """The first command is the new node's business, and the second one was executed by the old one before that was
    known. A caller that tries again does it with a driver that knows of the move."""
    here, nowhere = f"{{{topic}}}here", f"{{{topic}}}nowhere"
    number = slot(topic.encode())
    to = another(cluster, cluster.owner(number))

    def question() -> Question[Any]:
        return (yield from calls([keyed("RPUSH", nowhere, 1), keyed("RPUSH", here, 1)]))

    with closing(connect(server)) as driver:
        driver.ask(call(here.encode(), "RPUSH", here, 0))
        cluster.begin_migration(number, to)
        other = driver.begin(call(None, "ECHO", "other"))
        with pytest.raises(StorageUnavailable, match=f"Slot {number} of the Redis Cluster was moved"):
            driver.ask(question())
        assert other.answer() == b"other"
        with pytest.raises(StorageUnavailable, match="was moved"):
            driver.ask(call(None, "PING"))
    assert ask(server, lambda redis: redis.ask(question())) == [1, 3]
    while cluster.move_keys(number, to):
        pass
    cluster.end_migration(number, to)
    assert ask(server, lambda redis: redis.ask(question())) == [2, 4]


@pytest.mark.parametrize("how", ["command", "transaction"])
def test_several_keys_of_a_slot_that_is_being_moved(
    cluster: RedisCluster, server: Server, topic: str, how: str
) -> None:
    """No node can execute it, so it is sent again until the last key has been moved."""
    names = [f"{{{topic}}}{n}" for n in range(2)]
    number = slot(topic.encode())
    source = cluster.owner(number)
    to = another(cluster, source)

    def question() -> Question[Any]:
        if how == "command":
            return (yield from call(names[0].encode(), "MGET", *names))
        return (yield from calls([transaction(names[0], *(("GET", name) for name in names))]))[0]

    ask(server, lambda redis: redis.ask(calls([keyed("SET", name, n) for n, name in enumerate(names)])))
    cluster.begin_migration(number, to)
    cluster.move_these(number, to, names[0])  # the slot may have other tests' keys as well
    for node in (source, to):
        node.ask("CONFIG", "RESETSTAT")
    hasty = Server(cluster.url, timeout=2, patience=0)
    with pytest.raises(StorageUnavailable, match=f"does not serve slot {number}: it is being moved"):
        ask(hasty, lambda redis: redis.ask(question()))
    for node in (source, to):
        node.ask("CONFIG", "RESETSTAT")
    waiting = InThread(server, question)
    eventually(lambda: any("errorstat_TRYAGAIN" in node.ask("INFO", "errorstats") for node in (source, to)))
    while cluster.move_keys(number, to):
        pass
    cluster.end_migration(number, to)
    assert waiting.answer() == [b"0", b"1"]
