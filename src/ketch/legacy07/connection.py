"""One 0.7 client's connection: frames in, requests to the service one after the other, responses out.

It owns the queue of requests, what is produced and not stored yet, and the pauses in reading that bound both. The
codec (`requests`) and the service know neither sockets nor each other's bounds. Kafka 0.7 serves a connection's
requests one by one. Here a produce does not wait until the one before it is stored, because it has no response, but a
request that has one does: who has produced can read it.

A connection is never closed for being idle, as in 0.7: a producer gets no response by which it could notice, and would
lose what it sends next.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Protocol, cast

from ketch import metrics
from ketch.complaints import Complaints
from ketch.errors import KetchError
from ketch.legacy07.errors import BadRequest, InvalidMessage
from ketch.legacy07.requests import RANDOM_PARTITION, Fetch, Kind, Offsets, Part, Produce, decode, kind_of
from ketch.legacy07.service import Host as ServiceHost
from ketch.legacy07.service import Service, flaw_of, named
from ketch.wire.framing import FrameError, FrameReader

log = logging.getLogger(__name__)

_WRITE_AHEAD = 1 << 20  # response bytes that may wait for a slow reader before its next request does
_STORING_MAX = 1000  # produced sets of one connection that may wait for Redis
_CARRYING = (Kind.PRODUCE, Kind.MULTIPRODUCE)
_TOGETHER = 1 << 20  # bytes of produces to one partition that are stored as one
_TARGET_OVERHEAD = 2 + 2 + 4  # a produce's bytes before its set, beside the topic's


class Reader(Protocol):
    """A connection as the budget sees it."""

    def resume(self) -> None:
        """May read again."""


class Budget(Protocol):
    """Counts the bytes of requests over all connections of the broker, see `broker.budget`."""

    def take(self, reader: Reader, size: int, held: int) -> bool:
        """Bytes have come in; False where the reader has to stop."""

    def give(self, reader: Reader, size: int, held: int) -> None:
        """Bytes are done with."""

    def open_for(self, reader: Reader) -> bool:
        """Whether the reader need not wait."""

    def leave(self, reader: Reader, size: int) -> None:
        """The connection is gone."""


class Host(ServiceHost, Protocol):
    """What a connection uses of the broker."""

    @property
    def budget(self) -> Budget:
        """Bounds the bytes of requests over all connections."""


class Registrar(Protocol):
    """Who keeps the connections."""

    def admit(self, connection: Connection) -> bool:
        """Whether a new connection may stay (`max_connections`)."""

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""


class Connection(asyncio.Protocol):
    """The asyncio shell. A task lives only while there are requests."""

    def __init__(self, host: Host, service: Service, registrar: Registrar) -> None:
        # for good
        self._host, self._service, self._registrar = host, service, registrar
        self.client = "?"
        self._transport: asyncio.Transport | None = None
        # reading
        self._frames = FrameReader(host.settings.socket_request_max_bytes)
        self._requests: deque[bytes | FrameError] = deque()  # an error is the last
        self._held = 0  # bytes of requests that are not done with, a half received one included
        self._paused = False
        self._ending = False  # nothing more is read
        self._hung_up = False
        self.last_active = time.monotonic()
        # working
        self._worker: asyncio.Task[None] | None = None
        self._serving = 0  # bytes of the request at hand
        self._carrying = False  # it is one that stores messages
        self._storing: dict[asyncio.Future[None], int] = {}  # sets on their way to Redis, with their requests' bytes
        # writing
        self._progress = asyncio.Event()  # a set was stored, or the peer reads again
        self._writable = True
        self._unsent = 0  # response bytes that the peer does not take, as far as they count
        self._complaints = Complaints()

    @property
    def busy(self) -> bool:
        unsent = self._transport is not None and self._transport.get_write_buffer_size()
        return bool(self._requests or self._storing or self._worker or unsent)

    @property
    def halfway(self) -> bool:
        """A request has begun to come in and nothing else is going on."""
        return bool(self._frames.buffered) and not (self._paused or self.busy)

    @property
    def unread(self) -> bool:
        """The peer does not take its responses."""
        return not self._writable

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class does not inherit from it
        address = transport.get_extra_info("peername")
        self.client = f"{address[0]}:{address[1]} (Kafka 0.7)" if address else "?"
        self._transport.set_write_buffer_limits(_WRITE_AHEAD)
        # Idle connections are kept; this finds those whose peer is gone.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if not self._registrar.admit(self):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self.last_active = time.monotonic()
        self._held += len(data)
        allowed = self._host.budget.take(self, len(data), self._held)
        try:
            self._requests.extend(self._frames.feed(data))
        except FrameError as error:
            self._requests.append(error)
            self.drain()
        self._start_work()
        if not allowed or self._full:
            self._pause()

    def _start_work(self) -> None:
        if self._requests and self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    @property
    def _full(self) -> bool:
        # A request on its way in may always come to its end, however large.
        whole = self._held - self._frames.buffered
        return whole > self._host.settings.queued_max_bytes_per_connection

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        # What was produced is stored all the same: a producer may close when it has sent it.
        self._requests = deque(frame for frame in self._requests if _carries_messages(frame))
        if self._worker is not None and not self._carrying:
            self._worker.cancel()
            self._worker, self._serving = None, 0
        waiting = sum(len(frame) + 4 for frame in self._requests if isinstance(frame, bytes))
        kept = self._serving + sum(self._storing.values()) + waiting
        self._count_unsent(0)
        self._registrar.forget(self)
        self._host.budget.leave(self, self._held - kept)
        self._held = kept
        self._writable = True
        self._progress.set()
        self._start_work()

    def pause_writing(self) -> None:
        self._writable = False
        if self._transport is not None:
            self._count_unsent(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self.last_active = time.monotonic()
        self._writable = True
        self._count_unsent(0)
        self._progress.set()

    # -- backpressure

    def _count_unsent(self, size: int) -> None:
        self._host.unsent += size - self._unsent
        self._unsent = size

    def _pause(self) -> None:
        if self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and self._paused and not (self._full or self._ending):
            self._paused = False
            self._transport.resume_reading()

    def _release(self, size: int) -> None:
        self._held -= size
        self._host.budget.give(self, size, self._held)
        if self._paused and self._host.budget.open_for(self):
            self.resume()

    async def _until(self, waiting: int) -> None:
        """Until the peer reads, and at most so many sets wait for Redis."""
        while not self._writable or len(self._storing) > waiting:
            self._progress.clear()
            await self._progress.wait()

    # -- requests

    async def _work(self) -> None:
        """Serves what has come in, one request after the other, until there is nothing left."""
        try:
            while self._requests:
                await self._serve(self._requests.popleft())
                await self._until(_STORING_MAX)
        except KetchError as error:
            self._hang_up(error)
        except Exception:
            log.exception("%s: unexpected error; connection closed", self.client)
            self._close()
        finally:
            if self._worker is asyncio.current_task():
                self._worker = None

    async def _serve(self, frame: bytes | FrameError) -> None:
        if isinstance(frame, FrameError):
            raise frame
        self._serving, self._carrying = len(frame) + 4, _carries_messages(frame)
        try:
            kind, parts = decode(frame)
            if kind == Kind.PRODUCE:
                await self._produce([*parts, *self._others_like(frame, parts[0])])
            elif kind == Kind.MULTIPRODUCE:
                for part in parts:
                    await self._produce([part])
            else:
                await self._until(0)
                self._write(await self._answer(kind, parts))
            metrics.requested(kind.label)
        finally:
            self._release(self._serving)
            self._serving, self._carrying = 0, False

    async def _answer(self, kind: Kind, parts: list[Part]) -> list[bytes]:
        if kind == Kind.MULTIFETCH:
            return await self._service.multifetch([part for part in parts if isinstance(part, Fetch)], self._complain)
        (part,) = parts
        if isinstance(part, Fetch):
            return await self._service.fetch(part, self._complain)
        assert isinstance(part, Offsets)
        return await self._service.offsets(part, self._complain)

    def _others_like(self, frame: bytes, part: Part) -> Iterator[Part]:
        """Takes the produces to the same partition that have come in behind this one."""
        if part.number == RANDOM_PARTITION:  # each may go to another one
            return
        head, size = frame[: _TARGET_OVERHEAD + len(part.topic.encode())], len(frame)
        while size < _TOGETHER and self._requests:
            other = self._requests[0]
            if not (isinstance(other, bytes) and other.startswith(head)):
                return
            try:
                _, parts = decode(other)
            except BadRequest:  # its turn comes
                return
            self._requests.popleft()
            self._serving += len(other) + 4
            size += len(other)
            metrics.requested(Kind.PRODUCE.label)
            yield from parts

    async def _produce(self, parts: list[Part]) -> None:
        sets = [part for part in parts if isinstance(part, Produce)]
        try:
            stored = await self._service.produce(sets, self.client)
        except KetchError as error:
            raise Unstored(sets[0], error) from None
        if stored is not None:
            size = sum(len(each.messages) for each in sets)  # these bytes are given back when the sets are stored
            self._storing[stored] = size
            self._serving -= size
            stored.add_done_callback(partial(self._stored, sets[0]))

    def _stored(self, part: Produce, stored: asyncio.Future[None]) -> None:
        self._release(self._storing.pop(stored))
        self._progress.set()
        error = None if stored.cancelled() else stored.exception()
        if isinstance(error, KetchError):
            self._hang_up(Unstored(part, error))
        elif error is not None:
            log.error("%s: unexpected error; connection closed", self.client, exc_info=error)
            self._close()

    # -- responses

    def _write(self, pieces: list[bytes]) -> None:
        if self._transport is not None:
            self._transport.writelines(pieces)

    def _complain(self, text: str) -> None:
        line = self._complaints.line(text, time.monotonic())
        if line:
            log.info("%s: %s", self.client, line)

    # -- the end

    def _hang_up(self, reason: KetchError) -> None:
        """The one way in which 0.7 says that a request failed that has no response."""
        if isinstance(reason, Unstored):
            metrics.legacy_invalid.labels(reason.flaw).inc()
        if isinstance(reason, FrameError | BadRequest):
            metrics.bad_requests.inc()
        if not self._hung_up:  # sets behind the one that failed may fail, too
            log.warning("%s: connection closed: %s", self.client, reason)
        self._hung_up = True
        self._close()

    def _close(self) -> None:
        self._ending = True
        for frame in self._requests:
            if isinstance(frame, bytes):
                self._release(len(frame) + 4)
        self._requests.clear()
        if self._transport is not None:
            self._transport.close()

    def drain(self) -> None:
        """Reads nothing more; what has come in is served."""
        self._ending = True
        self._pause()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Unstored(KetchError):
    """A set of messages that was not stored."""

    def __init__(self, part: Produce, error: KetchError) -> None:
        what = "invalid message in a produce" if isinstance(error, InvalidMessage) else "produce"
        super().__init__(f"{what} to {named(part)}: {error}")
        self.flaw = flaw_of(error)


def _carries_messages(frame: bytes | FrameError) -> bool:
    if not isinstance(frame, bytes):
        return False
    try:
        return kind_of(frame) in _CARRYING
    except BadRequest:
        return False
