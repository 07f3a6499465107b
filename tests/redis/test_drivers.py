"""The drivers of questions give the same answers: on an event loop (`Link.ask`) and in a thread (`Connection.ask`).

Tests of questions run over both, against a real server. Those behind them are of what only one of them has.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from ketch.errors import RedisError, StorageUnavailable
from ketch.redis.blocking import Connection
from ketch.redis.driver import OwnedDriver, Reply
from ketch.redis.link import Link
from ketch.redis.links import links
from ketch.redis.question import Command, Question, call, calls, command
from ketch.redis.resp import pack
from ketch.redis.server import Server
from tests.support.redis_servers import RedisServer, binaries

LIMIT = 60.0  # s for a reply: more than any test waits

Driver = Callable[[Question[Any]], Any]  # asks over a connection of its own


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(next(iter(binaries().values())), tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


def on_an_event_loop(server: Server, question: Question[Any]) -> Any:
    async def run() -> Any:
        link = Link("test", server.address(), server.timeout)
        await link.start()
        try:
            return await link.ask(question)
        finally:
            await link.stop()

    return asyncio.run(run())


def in_a_thread(server: Server, question: Question[Any]) -> Any:
    connection = Connection(server)
    try:
        return connection.ask(question)
    finally:
        connection.close()


@pytest.fixture(params=[on_an_event_loop, in_a_thread])
def driver(request: pytest.FixtureRequest, redis_server: RedisServer) -> Driver:
    server = Server(redis_server.url, timeout=LIMIT)
    return lambda question: request.param(server, question)


def test_rounds_of_commands_and_their_replies(driver: Driver, topic: str) -> None:
    def question() -> Question[Any]:
        stored = yield from calls([command(None, "RPUSH", topic, n) for n in range(50)])
        found = yield from call(None, "LRANGE", topic, 0, -1)
        nothing = yield from calls([])
        large = yield from call(None, "ECHO", b"x" * 3_000_000)
        return stored, found, nothing, len(large)

    assert driver(question()) == (list(range(1, 51)), [b"%d" % n for n in range(50)], [], 3_000_000)


def test_a_question_without_commands(driver: Driver) -> None:
    def question() -> Question[str]:
        if False:
            yield ()
        return "answer"

    assert driver(question()) == "answer"


def test_the_last_reply_of_commands_that_belong_together(driver: Driver, topic: str) -> None:
    """A transaction makes a reply for MULTI, one for each command in it, and that of EXEC."""

    def question() -> Question[Any]:
        pieces = (pack("MULTI"), pack("INCR", topic), pack("INCRBY", topic, 5), pack("EXEC"))
        return (yield (Command(topic.encode(), pieces, 4), command(None, "GET", topic), Command(None, pieces[:1], 1)))

    assert driver(question()) == [b"*2\r\n:1\r\n:6\r\n", b"$1\r\n6\r\n", b"+OK\r\n"]


def test_errors_are_raised_where_the_question_waits(driver: Driver, topic: str) -> None:
    def question() -> Question[Any]:
        yield from call(None, "SET", topic, "text")
        with pytest.raises(RedisError, match="WRONGTYPE"):
            yield from calls([command(None, "GET", topic), command(None, "LPOP", topic), command(None, "GET", topic)])
        return (yield from call(None, "GET", topic))

    assert driver(question()) == b"text"


def test_what_a_question_raises_its_caller_gets(driver: Driver, topic: str) -> None:
    def wrong() -> Question[Any]:
        return (yield from call(None, "NO-SUCH-COMMAND"))

    def later() -> Question[Any]:
        yield from call(None, "PING")
        raise KeyError(topic)

    with pytest.raises(RedisError, match="unknown command"):
        driver(wrong())
    with pytest.raises(KeyError):
        driver(later())


def test_a_lost_connection_is_raised_where_the_question_waits(driver: Driver) -> None:
    """It is in doubt then what was stored; the question may know what that means, and may ask again."""

    def question() -> Question[str]:
        me = yield from call(None, "CLIENT", "ID")
        kill = command(None, "CLIENT", "KILL", "ID", me, "SKIPME", "no")  # Redis answers, and closes the connection
        with pytest.raises(StorageUnavailable):
            yield from calls([kill, command(None, "PING")])
        with suppress(StorageUnavailable):  # of a `Link` that has not connected again, and of any `Connection`
            yield from call(None, "PING")
        return "in doubt"

    assert driver(question()) == "in doubt"


def test_a_driver_on_an_event_loop(redis_server: RedisServer, topic: str) -> None:
    """What is sent for one key, by whichever way, is executed in the order of sending."""
    key = topic.encode()

    async def run(driver: OwnedDriver) -> None:
        assert not driver.up
        for use in (lambda: driver.send(command(key, "PING")), lambda: driver.post(command(key, "PING"), taken.append)):
            with pytest.raises(StorageUnavailable, match="no connection"):
                use()
        with pytest.raises(StorageUnavailable, match="no connection"):
            await driver.ask(call(key, "GET", key))
        await driver.start()
        try:
            assert (driver.up, driver.behind) == (True, False)
            await driver.drained()
            asked = asyncio.create_task(driver.ask(call(key, "APPEND", key, "a")))
            await asyncio.sleep(0)  # it has sent its first round
            sent = driver.send(command(key, "APPEND", key, "bc"))
            driver.post(command(key, "APPEND", key, "def"), taken.append)
            assert (await asked, await sent) == (1, b":3\r\n")
            assert await driver.ask_each(lambda: call(None, "ECHO", "node")) == [b"node"]
            assert await driver.ask(call(key, "GET", key)) == b"abcdef"
        finally:
            await driver.stop()
        assert not driver.up

    taken: list[Reply] = []
    server = Server(redis_server.url, timeout=LIMIT)
    asyncio.run(run(links(server.address(), server.timeout)("test")))
    assert taken == [b":6\r\n"]


def test_questions_in_flight_have_rounds_of_their_own(redis_server: RedisServer, topic: str) -> None:
    """Whichever answer is taken first, and whatever is asked meanwhile."""

    def question(n: int) -> Question[Any]:
        first = yield from call(None, "RPUSH", f"{topic}-{n}", n)
        second = yield from calls([command(None, "RPUSH", f"{topic}-{n}", n), command(None, "ECHO", str(n))])
        return first, *second

    connection = Connection(Server(redis_server.url, timeout=LIMIT))
    begun = [connection.begin(question(n)) for n in range(9)]
    order = [4, 0, 8, 1, 7, 2, 6, 3, 5]
    assert begun[4].answer() == (1, 2, b"4")
    assert connection.ask(call(None, "ECHO", "between")) == b"between"
    assert [begun[n].answer() for n in order] == [(1, 2, b"%d" % n) for n in order]
    connection.close()


def test_all_questions_in_flight_learn_of_a_lost_connection(redis_server: RedisServer, topic: str) -> None:
    connection = Connection(Server(redis_server.url, timeout=LIMIT))
    me = connection.ask(call(None, "CLIENT", "ID"))
    begun = [connection.begin(call(None, "BLPOP", topic, 0)) for _ in range(3)]
    with closing(Connection(Server(redis_server.url, timeout=LIMIT))) as other:
        assert other.ask(call(None, "CLIENT", "KILL", "ID", me)) == 1
    for asked in begun:
        with pytest.raises(StorageUnavailable, match="is gone"):
            asked.answer()


def test_questions_in_flight_are_answered_in_their_order(redis_server: RedisServer, topic: str) -> None:
    """`Connection.begin` sends without waiting."""
    connection = Connection(Server(redis_server.url, timeout=LIMIT))
    begun = [connection.begin(call(None, "INCR", topic)) for _ in range(100)]
    assert [asked.answer() for asked in begun] == list(range(1, 101))
    connection.close()


@pytest.mark.parametrize("ask", [on_an_event_loop, in_a_thread])
def test_a_server_that_takes_connections_and_says_nothing(ask: Callable[[Server, Question[Any]], Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = Server(f"redis://127.0.0.1:{silent.getsockname()[1]}", timeout=0.1)
        with pytest.raises(StorageUnavailable, match=r"no answer in time\.?$"):
            ask(server, call(None, "PING"))
