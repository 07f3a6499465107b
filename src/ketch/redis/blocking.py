"""The blocking driver of questions: a connection to Redis for one thread, as Spark's tasks, the archive job and the
command line need it. Replies are raw bytes, framed by the kernel.

It owns the socket, the reconnects (`Patience`, `ask`) and the idle connections of a process (`connected`). What is
asked, and what an answer means, is the questions' business (`redis.question`). The broker's driver is `redis.link`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

from ketch.errors import RedisError, StorageUnavailable
from ketch.records import scan_reply
from ketch.redis.driver import BlockingDriver
from ketch.redis.question import Command, Question, introduction
from ketch.redis.server import Server
from ketch.redis.url import why_unusable
from ketch.wire.pieces import BytesLike

__all__ = ["Connection", "Patience", "Server", "ask", "connect", "connected"]

T = TypeVar("T")

_BACKOFF = 0.05, 1.0  # s before the second attempt, and at most; it doubles (reconnect.backoff.ms of Kafka's clients)
_START = 1 << 20  # first size of the receive buffer; it doubles up to what the largest reply needs


class Connection:
    """One connection: a `BlockingDriver`. Replies come in the order of their commands.

    Raises:
        StorageUnavailable: from every method, when Redis cannot be reached, is gone or does not answer in time.
        ConfigError: from the constructor, for a URL that is none.

    Args:
        name: as CLIENT LIST shows it.
    """

    def __init__(self, server: Server, name: str = "ketch-spark") -> None:
        self._address = server.address()
        self._name = self._address.describe()
        self._buffer = bytearray(_START)
        self._start = self._end = 0
        self._inflight: deque[tuple[Asked[Any], Sequence[Command]]] = deque()  # whose replies were not taken yet
        try:
            self._socket = self._connect(server.connect_timeout or server.timeout)
            self._socket.settimeout(server.timeout)
        except OSError as error:
            raise StorageUnavailable(f"Redis at {self._name} cannot be used: {_reason(error)}.") from None
        try:
            self.ask(introduction(self._address, name))
        except (RedisError, StorageUnavailable) as error:
            self.close()
            raise StorageUnavailable(f"Redis at {self._name} cannot be used: {why_unusable(error)}.") from None

    def send(self, *commands: BytesLike) -> None:
        """Writes packed commands; each makes one reply."""
        try:
            self._socket.sendall(b"".join(commands))
        except OSError as error:
            raise self._lost(error) from None

    def reply(self, values: int = 1) -> bytes:
        """The bytes of the next `values` replies."""
        at, pending = self._start, values
        while True:
            at, pending = scan_reply(self._buffer, at, self._end, pending)
            if not pending:
                break
            at -= self._receive()
        reply = bytes(memoryview(self._buffer)[self._start : at])
        self._start = at
        return reply

    def ask(self, question: Question[T]) -> T:
        """The answer to a question, see `redis.question`; raises whatever it raises, too."""
        return self.begin(question).answer()

    def begin(self, question: Question[T]) -> Asked[T]:
        """See `BlockingDriver.begin`."""
        return Asked(self, question)

    def expect(self, asked: Asked[Any], commands: Sequence[Command]) -> None:
        """Sends commands of a question, whose replies it gets once they are waited for."""
        self.send(*(piece for command in commands for piece in command.pieces))
        self._inflight.append((asked, commands))

    def wait(self, asked: Asked[Any]) -> None:
        """Takes replies, also those of other questions that were sent before, until this question has its own."""
        while asked.replies is None:
            first, commands = self._inflight.popleft()
            try:
                first.replies = [self._reply_to(command) for command in commands]
            except StorageUnavailable as error:
                for lost in (first, *(other for other, _ in self._inflight)):
                    lost.replies = error
                self._inflight.clear()

    def _reply_to(self, command: Command) -> bytes:
        """The last of the replies that a command makes."""
        if command.replies > 1:
            self.reply(command.replies - 1)
        return self.reply()

    def close(self) -> None:
        self._socket.close()

    def _connect(self, timeout: float) -> socket.socket:
        address = self._address
        if address.path is not None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(timeout)
            connection.connect(address.path)
            return connection
        connection = socket.create_connection((address.host, address.port), timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context: ssl.SSLContext | None = address.ssl
        return connection if context is None else context.wrap_socket(connection, server_hostname=address.host)

    def _receive(self) -> int:
        """Reads what has come in; how far the reply at hand was moved towards the buffer's begin."""
        moved = 0
        if self._end == len(self._buffer):
            moved = self._make_room()
        try:
            size = self._socket.recv_into(memoryview(self._buffer)[self._end :])
        except OSError as error:
            raise self._lost(error) from None
        if not size:
            raise self._lost(ConnectionError("it closed the connection"))
        self._end += size
        return moved

    def _make_room(self) -> int:
        moved, size = self._start, self._end - self._start
        if moved < len(self._buffer) // 2:
            self._buffer.extend(bytes(len(self._buffer)))
        self._buffer[:size] = self._buffer[self._start : self._end]
        self._start, self._end = 0, size
        return moved

    def _lost(self, error: OSError) -> StorageUnavailable:
        self.close()
        return StorageUnavailable(f"Redis at {self._name} is gone: {_reason(error)}.")


class Asked(Generic[T]):
    """A question that is on its way over a connection.

    Attributes:
        replies: to the round that was sent last, or why there are none; None where they have not been taken yet.
    """

    def __init__(self, connection: Connection, question: Question[T]) -> None:
        self._connection, self._question = connection, question
        self.replies: list[bytes] | StorageUnavailable | None = None
        self._done: tuple[T] | None = None
        self._advance()

    def answer(self) -> T:
        """The question's answer; raises whatever the question raises."""
        while self._done is None:
            self._connection.wait(self)
            self._advance()
        return self._done[0]

    def _advance(self) -> None:
        """Sends what the question asks next. A connection lost in sending is raised inside the question, too."""
        while True:
            replies, self.replies = self.replies, None
            try:
                if isinstance(replies, StorageUnavailable):
                    commands = self._question.throw(replies)
                else:
                    commands = self._question.send(replies) if replies is not None else next(self._question)
            except StopIteration as stop:
                self._done = (cast(T, stop.value),)
                return
            try:
                self._connection.expect(self, commands)
                return
            except StorageUnavailable as error:
                self.replies = error


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error) or type(error).__name__


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
    return Connection(server, name)


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
