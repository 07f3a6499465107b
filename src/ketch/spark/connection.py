"""A blocking connection to Redis for Spark's tasks: commands pipelined, replies as raw bytes framed by the kernel.

The broker's `store.pipe` is made for an event loop; a Spark task is one thread that wants one range after the other.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ketch.errors import RedisError, StorageUnavailable
from ketch.records import scan_reply
from ketch.spark.server import Server
from ketch.store.pipe import checked, pack, parse

__all__ = ["Connection", "Patience", "Server", "ask", "connected"]

T = TypeVar("T")

_BACKOFF = 0.05, 1.0  # s before the second attempt, and at most; it doubles (reconnect.backoff.ms of Kafka's clients)
_START = 1 << 20  # first size of the receive buffer; it doubles up to what the largest reply needs


class Connection:
    """One connection. Replies come in the order of their commands.

    Raises:
        StorageUnavailable: from every method, when Redis cannot be reached, is gone or does not answer in time.
        ConfigError: from the constructor, for a URL that is none.
    """

    def __init__(self, server: Server) -> None:
        self._address = server.address()
        self._name = self._address.describe()
        self._buffer = bytearray(_START)
        self._start = self._end = 0
        try:
            self._socket = self._connect(server.timeout)
        except OSError as error:
            raise StorageUnavailable(f"Redis at {self._name} cannot be reached: {_reason(error)}.") from None
        try:
            self.calls(self._introduction())
        except (RedisError, StorageUnavailable) as error:
            self.close()
            raise StorageUnavailable(f"Redis at {self._name}: {error}") from None

    def send(self, *commands: bytes) -> None:
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

    def call(self, *words: bytes | str | int) -> Any:
        """One command, its reply as Python objects; RedisError where Redis answers with an error."""
        self.send(pack(*words))
        return checked(parse(self.reply()))

    def calls(self, commands: list[tuple[bytes | str | int, ...]]) -> list[Any]:
        """Several commands in one write, as `call`; every reply is read before the first error is raised."""
        self.send(*(pack(*command) for command in commands))
        return [checked(parse(reply)) for reply in [self.reply() for _ in commands]]

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

    def _introduction(self) -> list[tuple[bytes | str | int, ...]]:
        commands: list[tuple[bytes | str | int, ...]] = []
        if self._address.password is not None:
            user = (self._address.username,) if self._address.username else ()
            commands.append(("AUTH", *user, self._address.password))
        if self._address.db:
            commands.append(("SELECT", self._address.db))
        return [*commands, ("CLIENT", "SETNAME", "ketch-spark"), ("PING",)]  # PING fails while Redis loads its data

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


def ask(server: Server, question: Callable[[Connection], T], limit: float | None = None) -> T:
    """An answer of Redis, which may be away for as long as `Patience` says.

    Raises StorageUnavailable when it is gone for longer, and whatever `question` raises.
    """
    patience = Patience(server, limit)
    while True:
        try:
            with connected(server) as connection:
                return question(connection)
        except StorageUnavailable as error:
            patience.wait(error)


_idle: dict[tuple[int, Server], list[Connection]] = {}


@contextlib.contextmanager
def connected(server: Server) -> Iterator[Connection]:
    """A connection, kept for the next task of this worker process unless something went wrong with it.

    Raises as `Connection`.
    """
    pool = _idle.setdefault((os.getpid(), server), [])  # a fork must not share its parent's sockets
    connection = pool.pop() if pool else Connection(server)
    try:
        yield connection
    except BaseException:
        connection.close()  # replies may be on their way that nobody waits for
        raise
    pool.append(connection)
