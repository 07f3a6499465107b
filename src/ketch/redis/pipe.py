"""One pipelined connection to Redis that hands replies on as raw bytes.

A Redis client library makes Python objects of every reply. On the way of a record there must be none. So the hot path
writes commands as bytes and gets the bytes of a reply, framed by the kernel (`records.scan_reply`); who asked reads in
them what it needs. `hiredis` parses replies that are small.

It owns the socket, the receive buffer and the order of replies. It does not connect again: that is `redis.link`'s.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast

from ketch.errors import RedisError, StorageUnavailable
from ketch.metrics.histogram import Trips
from ketch.metrics.pipes import unseen
from ketch.records import scan_reply
from ketch.redis.driver import Reply
from ketch.redis.question import Command, Question, introduction
from ketch.redis.resp import first_error, parse
from ketch.redis.unusable import LOST, why_unusable
from ketch.redis.url import RedisAddress
from ketch.wire.pieces import BytesLike

T = TypeVar("T")

log = logging.getLogger(__name__)

_START = 1 << 16  # first size of the receive buffer; it doubles up to what the largest reply needs
_WRITE_AHEAD = 1 << 23  # bytes of commands that may wait for the socket before `drained` waits
# Bytes of a unix socket's send buffer, which does not grow with the load as TCP's does; the system may give less. A
# command that is larger waits for Redis to read, and the two processes take turns instead of working at the same time.
_SEND_BUFFER = 4 << 20
# Bytes that the receive buffer has at least, once a read has filled it: while reads fill it, the event loop reads on,
# up to 32 times, before it writes anything.
_BUSY = 1 << 19
_KEEP = 1 << 22  # a buffer that one large reply has blown up is given back above this
_AT_ONCE = 1 << 14  # bytes of a command worth a write of its own
_PUSH = ord(">")
_ABORTED = b"-EXECABORT"  # says that a command of the transaction was refused, and not why


_Waiting = deque[tuple[int, Callable[[Reply], None]]]  # (replies, what takes the last)
Quick = Callable[[bytearray, int, int, _Waiting], int]


class Pipe(asyncio.BufferedProtocol):
    """A connection: write commands in any number, every reply goes to who sent its command, in order.

    Args:
        on_push: takes the out-of-band messages of RESP3 (client tracking).
        on_lost: called once when the connection is gone; every waiting future has failed by then.
        tally: counts and times its commands.

    Attributes:
        behind: whether `drained` would wait.
        quick: takes the replies that it knows from the front of those that have come in: of the buffer, from where
            to where, and who waits for them. It says where the first reply begins that it does not know.
    """

    def __init__(
        self,
        on_lost: Callable[[], None],
        on_push: Callable[[Any], None] | None = None,
        tally: Trips | None = None,
    ) -> None:
        self._on_lost = on_lost
        self._on_push = on_push
        self._tally = tally or unseen()
        self._sent = self._told = 0  # commands so far, and those that `tally` knows
        self._timed = 0  # which of them is timed; 0: none
        self._waiting: _Waiting = deque()
        self._buffer = bytearray(_START)
        self._start = 0  # where the reply being read begins
        self._scanned = 0  # how far it has been framed
        self._end = 0  # how far the buffer is filled
        self._filled = False  # the last read has filled it to its end
        self._pending = 1  # RESP values still missing of it
        self._passing = False  # it is the replies that nobody wants, all in one, before the one that a future does
        self._refused = b""  # the first error among those replies
        self._interrupted: tuple[int, bool] | None = None  # what was pending, and whether passing, before a push
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[BytesLike] = []
        self._gathering = False  # something was written in this turn of the event loop
        self._writable = asyncio.Event()
        self._writable.set()
        self.behind = False
        self.quick: Quick | None = None
        self._progress = 0  # replies taken so far; the watchdog sees a Redis that hangs by it

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class does not inherit from it
        self._transport.set_write_buffer_limits(_WRITE_AHEAD)
        own: socket.socket | None = transport.get_extra_info("socket")
        if own is not None and own.family == socket.AF_UNIX:
            with suppress(OSError):  # Linux gives less where it may not be so large, others refuse
                own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)

    def pause_writing(self) -> None:
        self._writable.clear()
        self.behind = True

    def resume_writing(self) -> None:
        self._writable.set()
        self.behind = False

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._start and self._end > len(self._buffer) // 2:
            self._compact()
        if self._end == len(self._buffer) or (self._filled and len(self._buffer) < _BUSY):
            self._buffer.extend(bytes(len(self._buffer)))
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self._filled = self._end == len(self._buffer)
        try:
            while self._scanned < self._end:
                before = self._scanned
                if self.quick is not None and self._passing and before == self._start and self._hurry(self.quick):
                    continue
                if self._buffer[before] == _PUSH and self._interrupted is None:
                    self._interrupt()
                # Stops before a push, which may come between any two replies.
                self._scanned, self._pending = scan_reply(self._buffer, before, self._end, self._pending)
                whole = not self._pending
                if self._passing:
                    self._pass()
                elif whole:
                    self._take()
                if not whole and self._scanned in (before, self._end):
                    break
        except ValueError as error:
            log.error("Redis sent what is not RESP (%s); connection closed", error)
            self.close()
        self._write_gathered()  # what takers of replies have sent, too: this turn may go on reading for long

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.resume_writing()
        waiting, self._waiting = self._waiting, deque()
        for _, take in waiting:
            self._give(take, StorageUnavailable(LOST))
        self._on_lost()

    # -- the callers' side

    @property
    def connected(self) -> bool:
        return self._transport is not None

    def send(self, command: Command) -> asyncio.Future[bytes]:
        """Writes a command; the future gets the bytes of its last reply.

        Of a transaction that Redis has aborted it is the error of the command that Redis refused.

        Raises:
            StorageUnavailable: not connected. (The future fails with it when the connection goes.)
        """
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.post(command, partial(resolve, future))
        return future

    def post(self, command: Command, take: Callable[[Reply], None]) -> None:
        """Writes a command; `take` is called with the bytes of its last reply, or when the connection goes.

        It is called as soon as the reply has come in, before any reply or push after it is looked at. A future's
        callbacks would run a turn of the event loop later.

        Raises:
            StorageUnavailable: not connected; `take` is not called.
        """
        _, payload, replies = command
        self._await_reply(replies, take)
        self._write(payload)

    def post_all(self, takers: Sequence[tuple[int, Callable[[Reply], None]]], payload: tuple[BytesLike, ...]) -> None:
        """As `post`, for commands that follow each other.

        Args:
            takers: how many replies each of them makes, more than one, and what takes the last.
        """
        if self._transport is None:
            raise StorageUnavailable("not connected to Redis")
        idle = not self._waiting
        self._waiting.extend(takers)
        self._sent += len(takers)
        if not self._timed:
            self._time()
        if idle:
            self._expect(takers[0][0])
        self._write(payload)

    async def ask(self, question: Question[T]) -> T:
        """The answer to a question, see `redis.question`; raises whatever it raises, too."""
        return await run(question, self._replies)

    async def _replies(self, commands: Sequence[Command]) -> list[bytes]:
        if not commands:
            return []
        create = asyncio.get_running_loop().create_future
        futures: list[asyncio.Future[bytes]] = [create() for _ in commands]
        for command, future in zip(commands, futures, strict=True):
            self._await_reply(command.replies, partial(resolve, future))
        self._write(b"".join(piece for command in commands for piece in command.pieces))
        try:
            await futures[-1]  # replies come in order
        except BaseException:
            drop(futures)
            raise
        return [future.result() for future in futures]

    async def drained(self) -> None:
        """Waits while more than a few MB of commands have not been taken by Redis."""
        await self._writable.wait()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def watch(self, timeout: float) -> None:
        """Closes the connection when a command has waited `timeout` seconds and nothing moved: Redis hangs.

        Runs until the connection is gone. What was in flight then has an unknown fate; the callers know.
        """
        seen, since = -1, 0.0
        while self.connected:
            await asyncio.sleep(timeout / 4)
            now = time.monotonic()
            if not self._waiting or self._progress != seen:
                seen, since = self._progress, now
            elif now - since >= timeout:
                log.error("Redis did not answer for %.1f s; connection closed", now - since)
                self.close()

    def _await_reply(self, replies: int, take: Callable[[Reply], None]) -> None:
        if self._transport is None:
            raise StorageUnavailable("not connected to Redis")
        self._waiting.append((replies, take))
        self._sent += 1
        if not self._timed:
            self._time()
        if len(self._waiting) == 1 and replies > 1:
            self._expect(replies)

    def _time(self) -> None:
        """Times the command that was sent last, until it is answered."""
        self._timed = self._sent
        self._tally.sent(len(self._waiting))

    def _write(self, payload: BytesLike | tuple[BytesLike, ...]) -> None:
        """Writes at once what is large or the first of this turn of the event loop. All else goes together, at the
        turn's end or, if that is sooner, when the replies that were read have been handled."""
        assert self._transport is not None
        pieces = payload if isinstance(payload, tuple) else (payload,)
        if sum(map(len, pieces)) >= _AT_ONCE:
            self._transport.writelines([*self._outgoing, *pieces])  # in one go: Redis needs all of a command
            self._outgoing.clear()
            return
        payload = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self._gathering:
            self._outgoing.append(payload)
            return
        self._gathering = True
        asyncio.get_running_loop().call_soon(self._flush)
        self._transport.write(payload)

    def _flush(self) -> None:
        self._gathering = False
        self._write_gathered()

    def _write_gathered(self) -> None:
        if self._outgoing and self._transport is not None:
            self._transport.write(b"".join(self._outgoing))
        self._outgoing.clear()

    # -- the buffer

    def _expect(self, replies: int) -> None:
        """What comes next: the +QUEUED of a transaction are framed by the kernel in one go, not one by one here."""
        expected = (replies - 1, True) if replies > 1 else (1, False)
        if self._interrupted is not None:
            self._interrupted = expected
        else:
            self._pending, self._passing = expected

    def _interrupt(self) -> None:
        """What comes next is no reply but a push."""
        self._interrupted = self._pending, self._passing
        self._pending, self._passing = 1, False

    def _hurry(self, quick: Quick) -> bool:
        """Has `quick` take what it knows, where a command's first reply begins here; whether it knew anything."""
        if self._interrupted is not None or not self._waiting or self._pending != self._waiting[0][0] - 1:
            return False
        taken = quick(self._buffer, self._start, self._end, self._waiting)
        if taken == self._start:
            return False
        if self._timed and self._sent - len(self._waiting) >= self._timed:
            # No function, here and in `_take`: with each call less the row `timing` stays below its bound.
            self._tally.answered(self._sent - self._told)
            self._timed, self._told = 0, self._sent
        self._progress += 1
        self._start = self._scanned = taken
        self._expect(self._waiting[0][0] if self._waiting else 1)
        if self._start == self._end:
            self._reset()
        return True

    def _pass(self) -> None:
        """Gives up the room of replies that nobody wants, as far as they have come in."""
        self._progress += 1
        if self._buffer.find(b"-", self._start, self._scanned) >= 0 and not self._refused:
            self._refused = first_error(bytes(self._buffer[self._start : self._scanned]))
        self._start = self._scanned
        if not self._pending:
            self._expect(1)
        if self._start == self._end:
            self._reset()

    def _take(self) -> None:
        """Hands on the whole reply between _start and _scanned."""
        self._progress += 1
        reply = bytes(memoryview(self._buffer)[self._start : self._scanned])
        self._start = self._scanned
        if self._interrupted is not None:
            (self._pending, self._passing), self._interrupted = self._interrupted, None
            if self._on_push is not None:
                self._on_push(parse(reply))
        elif self._waiting:
            if self._refused:
                reply, self._refused = self._refused if reply.startswith(_ABORTED) else reply, b""
            _, take = self._waiting.popleft()
            if self._timed and self._sent - len(self._waiting) >= self._timed:
                self._tally.answered(self._sent - self._told)
                self._timed, self._told = 0, self._sent
            self._expect(self._waiting[0][0] if self._waiting else 1)
            self._give(take, reply)
        if self._start == self._end:
            self._reset()

    def _give(self, take: Callable[[Reply], None], reply: Reply) -> None:
        try:
            take(reply)
        except Exception:  # an error of this program; the other replies have their takers
            log.exception("taking a reply of Redis")

    def _reset(self) -> None:
        self._start = self._scanned = self._end = 0
        if len(self._buffer) > _KEEP:
            self._buffer = bytearray(_START)

    def _compact(self) -> None:
        size = self._end - self._start
        self._buffer[:size] = self._buffer[self._start : self._end]
        self._scanned -= self._start
        self._start, self._end = 0, size


async def run(question: Question[T], replies: Callable[[Sequence[Command]], Awaitable[list[bytes]]]) -> T:
    """The answer to a question whose rounds `replies` sends; raises whatever the question raises."""
    try:
        commands = next(question)
        while True:
            try:
                received = await replies(commands)
            except StorageUnavailable as error:
                commands = question.throw(error)
            else:
                commands = question.send(received)
    except StopIteration as answer:
        return cast(T, answer.value)
    finally:
        question.close()  # where the caller was cancelled


def drop(futures: Sequence[asyncio.Future[bytes]]) -> None:
    """Nobody waits for these replies any more; an error among them counts as seen."""
    for future in futures:
        if not (future.cancel() or future.cancelled()):
            future.exception()


def resolve(future: asyncio.Future[bytes], reply: Reply) -> None:
    if future.done():
        return
    if isinstance(reply, StorageUnavailable):
        future.set_exception(reply)
        future.exception()  # some nobody waits for any more; that is no error of its own
    else:
        future.set_result(reply)


async def open_pipe(
    address: RedisAddress,
    timeout: float,
    on_lost: Callable[[], None],
    on_push: Callable[[Any], None] | None = None,
    tally: Trips | None = None,
) -> Pipe:
    """Connects and introduces itself: AUTH, SELECT, a client name; RESP3 where pushes are wanted.

    Raises:
        StorageUnavailable: no connection within `timeout` seconds, or Redis refuses it.
    """
    loop = asyncio.get_running_loop()
    pipe = Pipe(on_lost, on_push, tally)
    try:
        async with asyncio.timeout(timeout):
            if address.path:
                await loop.create_unix_connection(lambda: pipe, address.path, ssl=address.ssl)
            else:
                await loop.create_connection(lambda: pipe, address.host, address.port, ssl=address.ssl)
            await pipe.ask(introduction(address, "ketch", resp3=on_push is not None))
    except BaseException as error:
        pipe.close()
        if isinstance(error, OSError | TimeoutError | RedisError | StorageUnavailable):
            raise StorageUnavailable(f"Redis at {address.describe()}: {why_unusable(error, address)}") from None
        raise
    return pipe


async def ask_once(address: RedisAddress, timeout: float, question: Question[T]) -> T:
    """The answer to a question over a connection that is opened for it.

    Raises:
        StorageUnavailable: there is no connection within `timeout` seconds, or Redis refuses it.
        TimeoutError: no answer within `timeout` seconds after that.
    """
    pipe = await open_pipe(address, timeout, on_lost=lambda: None)
    try:
        async with asyncio.timeout(timeout):
            return await pipe.ask(question)
    finally:
        pipe.close()
