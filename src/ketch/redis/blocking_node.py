"""A connection to one Redis server for one thread: a `BlockingDriver` of it, and what drivers of several are made of.

It owns the socket, the receive buffer and the order of replies, which are raw bytes, framed by the kernel. It does not
connect again: see `redis.blocking`.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

from ketch.errors import RedisError, StorageUnavailable
from ketch.records import scan_reply
from ketch.redis.question import Command, Question, introduction
from ketch.redis.server import Server
from ketch.redis.unusable import why_unusable
from ketch.redis.url import RedisAddress
from ketch.wire.pieces import BytesLike

T = TypeVar("T")

_START = 1 << 20  # first size of the receive buffer; it doubles up to what the largest reply needs


class Connection:
    """A `BlockingDriver` of one server. Replies come in the order of their commands.

    Raises:
        StorageUnavailable: from every method, when Redis cannot be reached, is gone or does not answer in time.
        ConfigError: from the constructor, for a URL that is none.

    Args:
        name: as CLIENT LIST shows it.
        address: of the server, where it is one of several that the URL of `server` stands for.
    """

    def __init__(self, server: Server, name: str = "ketch-spark", address: RedisAddress | None = None) -> None:
        self._address = server.address() if address is None else address
        self._name = self._address.describe()
        self._buffer = bytearray(_START)
        self._start = self._end = 0
        self._inflight: deque[tuple[Asked[Any], Sequence[Command]]] = deque()  # whose replies were not taken yet
        try:
            self._socket = self._connect(server.connect_timeout or server.timeout)
            self._socket.settimeout(server.timeout)
        except OSError as error:
            raise self._unusable(error) from None
        try:
            self.ask(introduction(self._address, name))
        except (RedisError, StorageUnavailable) as error:
            self.close()
            raise self._unusable(error) from None

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

    def ask_each(self, question: Callable[[], Question[T]]) -> list[T]:
        """See `BlockingDriver.ask_each`."""
        return [self.ask(question())]

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

    def _unusable(self, error: Exception) -> StorageUnavailable:
        why = why_unusable(error, self._address)
        return StorageUnavailable(f"Redis at {self._name} cannot be used: {why}.")

    def _lost(self, error: OSError) -> StorageUnavailable:
        self.close()
        return StorageUnavailable(f"Redis at {self._name} is gone: {_reason(error)}.")


class Carrier(Protocol):
    """What an `Asked` sends its rounds over."""

    def expect(self, asked: Asked[Any], commands: Sequence[Command]) -> None:
        """Sends the commands of a round; `asked` gets their replies once they are waited for.

        Raises:
            StorageUnavailable: a connection is gone.
        """

    def wait(self, asked: Asked[Any]) -> None:
        """Returns when `asked` has the replies to its round, or the error in their place."""


class Asked(Generic[T]):
    """A question that is on its way.

    Attributes:
        replies: to the round that was sent last, or why there are none; None where they have not been taken yet.
    """

    def __init__(self, carrier: Carrier, question: Question[T]) -> None:
        self._carrier, self._question = carrier, question
        self.replies: list[bytes] | StorageUnavailable | None = None
        self._done: tuple[T] | None = None
        self._advance()

    def answer(self) -> T:
        """The question's answer; raises whatever the question raises."""
        while self._done is None:
            self._carrier.wait(self)
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
                self._carrier.expect(self, commands)
                return
            except StorageUnavailable as error:
                self.replies = error


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error) or type(error).__name__
