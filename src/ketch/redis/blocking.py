"""The blocking drivers of questions: ways to Redis for one thread, as Spark's tasks, the archive job and the command
line need them.

`connect` picks the driver by the URL: that of one server (`redis.blocking_node`), of a cluster
(`redis.blocking_cluster`), of the master that sentinels name (`redis.sentinel`). It owns the reconnects (`Patience`,
`ask`) and the idle drivers of a process (`connected`). What is asked, and what an answer means, is the questions'
business (`redis.question`). The broker's driver is `redis.link`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from ketch.errors import RedisError, StorageUnavailable
from ketch.redis import sentinel
from ketch.redis.blocking_cluster import ClusterConnection
from ketch.redis.blocking_node import Connection
from ketch.redis.driver import BlockingDriver
from ketch.redis.server import Server
from ketch.redis.url import RedisAddress

__all__ = ["ClusterConnection", "Connection", "Patience", "Server", "ask", "connect", "connected"]

T = TypeVar("T")

_BACKOFF = 0.05, 1.0  # s before the second attempt, and at most; it doubles (reconnect.backoff.ms of Kafka's clients)


class Patience:
    """How long something goes on trying while Redis is away.

    Args:
        limit: s, in place of the server's own.
    """

    def __init__(self, server: Server, limit: float | None = None) -> None:
        self._limit = server.patience if limit is None else limit
        self.reset()

    def reset(self) -> None:
        """There was progress: what fails from now on has all the time again."""
        self._since: float | None = None
        self._pause = _BACKOFF[0]

    def wait(self, error: StorageUnavailable) -> None:
        """Sleeps until the next attempt.

        Raises:
            StorageUnavailable: `error` with the time it went on for, when that is enough.
        """
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now + self._pause > self._since + self._limit:
            raise StorageUnavailable(f"{str(error).rstrip('.')} (tried for {round(self._limit)} s).") from error
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, _BACKOFF[1])


def ask(server: Server, question: Callable[[BlockingDriver], T], limit: float | None = None) -> T:
    """An answer of Redis, which may be away for as long as `Patience` says.

    Raises StorageUnavailable when it is gone for longer, and whatever `question` raises.
    """
    patience = Patience(server, limit)
    while True:
        try:
            with connected(server) as driver:
                return question(driver)
        except StorageUnavailable as error:
            patience.wait(error)


def connect(server: Server, name: str = "ketch-spark") -> BlockingDriver:
    """A driver of the caller's own, who closes it. Args and errors: see `Connection`."""
    address = server.address()
    if address.kind == "cluster":
        return ClusterConnection(server, name)
    return _behind_sentinels(server, name, address) if address.kind == "sentinel" else Connection(server, name, address)


def _behind_sentinels(server: Server, name: str, address: RedisAddress) -> Connection:
    """A connection to the master. Raises StorageUnavailable as `sentinel.search`."""
    search = sentinel.search(address)
    step = next(search)
    while True:
        with contextlib.ExitStack() as stack:
            try:
                connection = Connection(server, name, step.address)
                stack.callback(connection.close)
                answer = connection.ask(step.question)
            except (StorageUnavailable, RedisError) as error:
                step = search.throw(error)
                continue
            try:
                step = search.send(answer)
            except StopIteration:
                stack.pop_all()  # it is the master's
                return connection


_idle: dict[tuple[int, Server], list[BlockingDriver]] = {}


@contextlib.contextmanager
def connected(server: Server) -> Iterator[BlockingDriver]:
    """A driver, kept for the next task of this worker process unless something went wrong with it.

    Raises as `Connection`.
    """
    pool = _idle.setdefault((os.getpid(), server), [])  # a fork must not share its parent's sockets
    driver = pool.pop() if pool else connect(server)
    try:
        yield driver
    except BaseException:
        driver.close()  # replies may be on their way that nobody waits for
        raise
    pool.append(driver)
