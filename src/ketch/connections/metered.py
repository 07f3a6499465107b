"""A client connection that pauses reading: bytes in, frames to a worker task, one after the other.

This class owns the queue of frames, the count of what the connection holds, and the pauses in reading and writing that
bound both. A protocol's own class serves the frames (`_work`) and writes. The cases in which a connection pauses:

- The budget says so, which counts the requests of all connections (`budget.Budget`).
- Its own whole requests, received and not answered, have more than `queued_max_bytes_per_connection`. A request on its
  way in may always come to its end, however large.
- Its client has used too much (`_mute`): for that time no request is taken up, either.
- It is ending (`drain`): what has come in is served, and nothing more is read.

A response that the peer does not take holds up the next request: `_writable` is False until it does.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from ketch.configs.settings import Settings
from ketch.connections.budget import Budget
from ketch.connections.room import ResponseRoom
from ketch.wire.framing import FrameError, FrameReader

_WRITE_AHEAD = 1 << 20  # response bytes that may wait for a slow reader before its next request does

_TLS_HELLO = b"\x16\x03"  # a record of the kind handshake; as the length of a frame it is above 370 MB


class TlsHello(FrameError):
    """What came is no frame but the begin of TLS."""

    def __init__(self) -> None:
        super().__init__("a client with TLS has come to a port without")


# A frame, or what is wrong with the bytes: nothing comes after that.
Incoming = bytes | FrameError


class Host(Protocol):
    """What a connection uses of the broker.

    Attributes:
        budget: bounds the bytes of requests over all connections.
        responses: bounds their responses.
    """

    settings: Settings
    responses: ResponseRoom

    @property
    def budget(self) -> Budget: ...


class Worker(Protocol):
    """Who has a connection's requests: a task, or what waits in its place."""

    def cancel(self) -> object:
        """The peer is gone."""


class _InPlace(asyncio.BufferedProtocol):
    """The protocol while a large request comes in: reads all of it but its last bytes straight into it."""

    def __init__(self, connection: MeteredConnection, frames: FrameReader) -> None:
        self._connection, self._frames = connection, frames

    def get_buffer(self, sizehint: int) -> memoryview:
        assert self._frames.room is not None
        return self._frames.room

    def buffer_updated(self, nbytes: int) -> None:
        self._connection.filled(nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()


class MeteredConnection(asyncio.Protocol):
    """The asyncio shell. A task lives only while there are requests, so an idle connection costs little.

    Attributes:
        peer: the client's address, "host:port".
        last_active: when the peer last sent something or took a response, by the monotonic clock.
    """

    # Of the class until a client is muted: most never are.
    _muted: asyncio.Handle | None = None
    _muted_until = 0.0

    def __init__(self, host: Host) -> None:
        self._host = host
        self.peer = "?"
        self._transport: asyncio.Transport | None = None
        # reading
        self._frames = FrameReader(host.settings.socket_request_max_bytes)
        self._requests: deque[tuple[float, Incoming]] = deque()  # with when it came
        self._queue_max = host.settings.queued_max_bytes_per_connection
        self._held = 0  # bytes of requests not yet answered, a half received one included
        self._paused = False
        self._ending = False  # nothing more is read
        self.last_active = time.monotonic()
        # working
        self._worker: Worker | None = None
        # writing
        self._writable = True
        self._awaited: asyncio.Future[None] | None = None  # what the worker waits for, see `_note_progress`
        self._unsent = 0  # response bytes that the peer does not take and that the budget counts

    async def _work(self) -> None:
        """Serves what has come in, one request after the other, until there is nothing left."""
        raise NotImplementedError

    @property
    def _sending(self) -> bool:
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    @property
    def busy(self) -> bool:
        """A request is being served, or a response is on its way."""
        return bool(self._requests or self._worker or self._sending)

    @property
    def halfway(self) -> bool:
        """A request has begun to come in and nothing else is going on."""
        return bool(self._frames.buffered) and not (self._paused or self.busy)

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class does not inherit from it
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "?"
        self._transport.set_write_buffer_limits(_WRITE_AHEAD)

    def data_received(self, data: bytes) -> None:
        now = self.last_active = time.monotonic()
        self._held += len(data)
        allowed = self._host.budget.take(self, len(data), self._held)
        self._receive(data, now)
        if self._frames.room is not None:
            self._set_protocol(_InPlace(self, self._frames))
        self._keep_to_bounds(allowed)

    def filled(self, size: int) -> None:
        """So many bytes of a large request were read into it."""
        self.last_active = time.monotonic()
        self._held += size
        allowed = self._host.budget.take(self, size, self._held)
        self._frames.filled(size)
        if self._frames.room is None:
            self._set_protocol(self)
        self._keep_to_bounds(allowed)

    def _set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        if self._transport is not None:
            self._transport.set_protocol(protocol)

    def _keep_to_bounds(self, allowed: bool) -> None:
        # Where `_receive` has answered requests, their bytes were given back, and the budget may be kept to again.
        within = allowed or self._host.budget.open_for(self)
        if not within or (self._held > self._queue_max and self._full):
            self._pause()

    def _receive(self, data: bytes, now: float, serve: Callable[[bytes, float], bool] | None = None) -> None:
        """Queues the requests that are whole with these bytes.

        Args:
            serve: says whether it has served a request already, without the worker; else nobody does.
        """
        try:
            for frame in self._frames.feed(data):
                if serve is None or not serve(frame, now):
                    self._requests.append((now, frame))
        except FrameError as error:
            self._requests.append((now, TlsHello() if data.startswith(_TLS_HELLO) else error))
            self.drain()
        self._start_work()

    def _start_work(self) -> None:
        if self._requests and self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    @property
    def _full(self) -> bool:
        return self._held - self._frames.buffered > self._queue_max

    def _lose(self, kept: int) -> None:
        """The peer is gone; requests of `kept` bytes are served all the same."""
        self._count_unsent(0)
        self._host.budget.leave(self, self._held - kept)
        self._held = kept
        self._writable = True
        self._unmute()
        self._note_progress()
        self._start_work()

    def pause_writing(self) -> None:
        self._writable = False
        if self._transport is not None:
            self._count_unsent(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self.last_active = time.monotonic()
        self._writable = True
        self._count_unsent(0)
        self._note_progress()

    # -- backpressure

    def _count_unsent(self, size: int) -> None:
        self._host.responses.count(size - self._unsent)
        self._unsent = size

    def _pause(self) -> None:
        if self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Reads again, unless it must not for a reason of its own."""
        if self._transport is not None and self._paused and not (self._full or self._ending or self._muted):
            self._paused = False
            self._transport.resume_reading()

    def _mute(self, seconds: float) -> None:
        """Takes nothing from the client for so long, from now on."""
        if self._transport is None or self._ending:
            return
        loop = asyncio.get_running_loop()
        if self._muted is not None:
            seconds = max(seconds, self._muted_until - loop.time())
            self._muted.cancel()
        self._pause()
        self._muted_until = loop.time() + seconds  # the handle need not know: uvloop's has no time where it is now
        self._muted = loop.call_later(seconds, self._unmute)

    def _unmute(self) -> None:
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
            self.last_active = time.monotonic()  # it was not the client that was silent
            self._resume_within_budget()
            self._note_progress()

    def _release(self, size: int) -> None:
        """A request of so many bytes is done with."""
        self._held -= size
        self._host.budget.give(self, size, self._held)
        self._resume_within_budget()

    def _resume_within_budget(self) -> None:
        if self._paused and self._host.budget.open_for(self):
            self.resume()

    def _note_progress(self) -> None:
        """A request is done with, or the peer reads again."""
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    async def _await_progress(self) -> None:
        """Waits for it; only the worker may. An asyncio.Event would take 700 bytes of each idle connection."""
        self._awaited = asyncio.get_running_loop().create_future()
        await self._awaited

    # -- the end

    def drain(self) -> None:
        """Reads nothing more; what has come in is served."""
        self._ending = True
        self._unmute()
        self._pause()

    @property
    def secured(self) -> bool:
        """Whether it speaks TLS: then bytes may be on their way that `busy` does not know of."""
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is not None

    def close(self) -> None:
        """Closes once what is on its way has been sent."""
        if self._transport is not None:
            self._transport.close()

    def ignore(self, seconds: float) -> None:
        """Takes nothing that the peer says, and closes after so long: it would come again at once."""
        if self._transport is not None:
            self._transport.set_protocol(asyncio.Protocol())  # so that this one hears nothing, not of its end either
            asyncio.get_running_loop().call_later(seconds, self._transport.abort)
            self._transport = None

    def abort(self) -> None:
        """Closes at once, whatever is on its way; not one that is ignored."""
        if self._transport is not None:
            self._transport.abort()
