"""One 0.7 client's connection: frames in, requests to the service one after the other, responses out.

It owns what is produced and not stored yet; the queue of requests and the pauses in reading are those of
`connections.metered`. The codec (`requests`) and the service know neither sockets nor each other's bounds. Kafka 0.7
serves a connection's requests one by one. Here a produce does not wait until the one before it is stored, because it
has no response, but a request that has one does: who has produced can read it.

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
from typing import Protocol

from ketch import metrics
from ketch.complaints import Complaints
from ketch.connections.metered import Host as MeteredHost
from ketch.connections.metered import Incoming, MeteredConnection
from ketch.errors import KetchError
from ketch.legacy07.errors import BadRequest, InvalidMessage
from ketch.legacy07.requests import RANDOM_PARTITION, Fetch, Kind, Offsets, Part, Produce, decode, kind_of
from ketch.legacy07.service import Allows, Service, flaw_of, named
from ketch.legacy07.service import Host as ServiceHost
from ketch.wire.framing import FrameError

log = logging.getLogger(__name__)

_STORING_MAX = 1000  # produced sets of one connection that may wait for Redis
_CARRYING = (Kind.PRODUCE, Kind.MULTIPRODUCE)
_TOGETHER = 1 << 20  # bytes of produces to one partition that are stored as one
_TARGET_OVERHEAD = 2 + 2 + 4  # a produce's bytes before its set, beside the topic's


class Host(ServiceHost, MeteredHost, Protocol):
    """What a connection uses of the broker."""


class Registrar(Protocol):
    """Who keeps the connections."""

    def admit(self, connection: Connection) -> bool:
        """Whether a new connection may stay (`max_connections`)."""

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""


class Connection(MeteredConnection):
    """A client of Kafka 0.7's protocol."""

    def __init__(self, host: Host, service: Service, registrar: Registrar) -> None:
        super().__init__(host)
        self._broker, self._service, self._registrar = host, service, registrar
        self._allows: Allows | None = None
        self._hung_up = False
        self._serving = 0  # bytes of the request at hand
        self._carrying = False  # it is one that stores messages
        self._storing: dict[asyncio.Future[None], int] = {}  # sets on their way to Redis, with their requests' bytes
        self._complaints = Complaints()

    @property
    def client(self) -> str:
        """Who this is, for log lines."""
        return f"{self.peer} (Kafka 0.7)"

    @property
    def busy(self) -> bool:
        return bool(self._storing) or super().busy

    @property
    def unread(self) -> bool:
        """The peer does not take its responses."""
        return not self._writable

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # Idle connections are kept; this finds those whose peer is gone.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._allows = self._broker.allows_anonymous(self.peer.rpartition(":")[0])
        if not self._registrar.admit(self):
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        # What was produced is stored all the same: a producer may close when it has sent it.
        self._requests = deque((at, frame) for at, frame in self._requests if _carries_messages(frame))
        if self._worker is not None and not self._carrying:
            self._worker.cancel()
            self._worker, self._serving = None, 0
        waiting = sum(len(frame) + 4 for _, frame in self._requests if isinstance(frame, bytes))
        self._registrar.forget(self)
        self._lose(self._serving + sum(self._storing.values()) + waiting)

    # -- requests

    async def _until(self, waiting: int) -> None:
        """Until the peer reads, and at most so many sets wait for Redis."""
        while not self._writable or len(self._storing) > waiting:
            await self._await_progress()

    async def _work(self) -> None:
        """Serves what has come in, one request after the other, until there is nothing left."""
        try:
            while self._requests:
                _, frame = self._requests.popleft()
                await self._serve(frame)
                await self._until(_STORING_MAX)
        except KetchError as error:
            self._hang_up(error)
        except Exception:
            log.exception("%s: unexpected error; connection closed", self.client)
            self._close()
        finally:
            if self._worker is asyncio.current_task():
                self._worker = None

    async def _serve(self, frame: Incoming) -> None:
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
            return await self._service.multifetch(
                [part for part in parts if isinstance(part, Fetch)], self._complain, self._allows
            )
        (part,) = parts
        if isinstance(part, Fetch):
            return await self._service.fetch(part, self._complain, self._allows)
        assert isinstance(part, Offsets)
        return await self._service.offsets(part, self._complain, self._allows)

    def _others_like(self, frame: bytes, part: Part) -> Iterator[Part]:
        """Takes the produces to the same partition that have come in behind this one."""
        if part.number == RANDOM_PARTITION:  # each may go to another one
            return
        head, size = frame[: _TARGET_OVERHEAD + len(part.topic.encode())], len(frame)
        while size < _TOGETHER and self._requests:
            _, other = self._requests[0]
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
            stored = await self._service.produce(sets, self.client, self._allows)
        except KetchError as error:
            raise Unstored(sets[0], error) from None
        if stored is not None:
            size = sum(len(each.messages) for each in sets)  # these bytes are given back when the sets are stored
            self._storing[stored] = size
            self._serving -= size
            stored.add_done_callback(partial(self._stored, sets[0]))

    def _stored(self, part: Produce, stored: asyncio.Future[None]) -> None:
        self._release(self._storing.pop(stored))
        self._note_progress()
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
        for _, frame in self._requests:
            if isinstance(frame, bytes):
                self._release(len(frame) + 4)
        self._requests.clear()
        if self._transport is not None:
            self._transport.close()


class Unstored(KetchError):
    """A set of messages that was not stored."""

    def __init__(self, part: Produce, error: KetchError) -> None:
        what = "invalid message in a produce" if isinstance(error, InvalidMessage) else "produce"
        super().__init__(f"{what} to {named(part)}: {error}")
        self.flaw = flaw_of(error)


def _carries_messages(frame: Incoming) -> bool:
    if not isinstance(frame, bytes):
        return False
    try:
        return kind_of(frame) in _CARRYING
    except BadRequest:
        return False
