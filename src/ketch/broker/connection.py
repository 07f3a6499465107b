"""One client connection: frames in, requests to the handlers one after the other, responses out in the same order."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, cast

from kio.schema.errors import ErrorCode

from ketch import metrics
from ketch.broker.api import Answer, Api, CloseConnection, Request, printable
from ketch.broker.dispatch import TABLE
from ketch.broker.handlers import api_versions
from ketch.errors import KetchError
from ketch.wire.bounds import MalformedRequest
from ketch.wire.framing import FrameError, FrameReader
from ketch.wire.pieces import BytesLike
from ketch.wire.requests import api_label, decode_request, peek_api
from ketch.wire.responses import encode_response

if TYPE_CHECKING:
    from ketch.broker.server import Broker

log = logging.getLogger(__name__)

_PRODUCE, _API_VERSIONS = 0, 18
# A request other than Produce carries no records; a fetch of 100,000 partitions fits.
_CONTROL_REQUEST_MAX = 4 << 20
_WRITE_AHEAD = 1 << 20  # response bytes that may wait for a slow reader before its next request does
_IN_FLIGHT_MAX = 1000  # requests of one connection taken up and not yet answered

# Pieces of it, None for no response, or the reason for closing the connection when it is this one's turn.
_Response = asyncio.Future[list[BytesLike] | KetchError | None]


class Connection(asyncio.Protocol):
    """The asyncio shell. A task lives only while there are requests, so an idle connection costs little."""

    def __init__(self, broker: Broker) -> None:
        # for good
        self._broker = broker
        self.peer = "?"
        self._transport: asyncio.Transport | None = None
        # reading
        self._frames = FrameReader(broker.settings.socket_request_max_bytes)
        self._requests: deque[bytes | FrameError] = deque()  # an error is the last
        self._held = 0  # bytes of requests not yet answered, a half received one included
        self._paused = False
        self._ending = False  # nothing more is read
        self.last_active = time.monotonic()
        # working
        self._worker: asyncio.Task[None] | None = None
        self._producing = 0  # bytes of the Produce request at hand
        self._client_id: str | None = None
        # writing
        self._responses: deque[tuple[int, _Response]] = deque()  # (request's bytes, response)
        self._progress = asyncio.Event()  # a response went out, or the peer reads again
        self._writable = True
        self._unsent = 0  # response bytes that the peer does not take, as far as they count
        self._reported = ""  # what the log said last

    @property
    def client(self) -> str:
        """Who this is, for log lines."""
        return f"{self._client_id} at {self.peer}" if self._client_id else self.peer

    @property
    def busy(self) -> bool:
        unsent = self._transport is not None and self._transport.get_write_buffer_size()
        return bool(self._requests or self._responses or self._worker or unsent)

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
        if not self._broker.admit(self):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self.last_active = time.monotonic()
        self._held += len(data)
        allowed = self._broker.budget.take(self, len(data), self._held)
        try:
            for frame in self._frames.feed(data):
                self._requests.append(frame)
        except FrameError as error:
            self._requests.append(error)
            self.drain()
        if self._requests and self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())
        if not allowed or self._full:
            self._pause()

    @property
    def _full(self) -> bool:
        # A request on its way in may always come to its end, however large.
        whole = self._held - self._frames.buffered
        return whole > self._broker.settings.queued_max_bytes_per_connection

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        # What was produced is stored all the same, as in Kafka: with acks=0 a producer closes when it has sent it.
        self._requests = deque(frame for frame in self._requests if _produces(frame))
        kept = self._producing + sum(len(frame) + 4 for frame in self._requests if isinstance(frame, bytes))
        if self._worker is not None and not self._producing:
            self._worker.cancel()
            self._worker = None
        for _, response in self._responses:
            response.cancel()
        self._responses.clear()
        self._count_unsent(0)
        self._broker.forget(self)
        self._broker.budget.leave(self, self._held - kept)
        self._held = kept
        self._writable = True
        self._progress.set()
        if self._requests and self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())

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
        self._broker.unsent += size - self._unsent
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
        self._broker.budget.give(self, size)
        if self._paused and self._broker.budget.open_for(self):
            self.resume()

    # -- requests

    async def _work(self) -> None:
        """Serves what has come in, one request after the other, until there is nothing left."""
        try:
            while self._requests:
                await self._serve(self._requests.popleft())
                await self._keep_pace()
        except KetchError as error:
            self.drain()
            self._requests.clear()
            self._respond(0).set_result(error)
            self._flush()
        except Exception:
            log.exception("%s: unexpected error; connection closed", self.client)
            self._close()
        finally:
            if self._worker is asyncio.current_task():
                self._worker = None

    async def _keep_pace(self) -> None:
        """Waits while the peer does not read, or has too many answers outstanding."""
        while not self._writable or len(self._responses) >= _IN_FLIGHT_MAX:
            self._progress.clear()
            await self._progress.wait()

    async def _serve(self, frame: bytes | FrameError) -> None:
        if isinstance(frame, FrameError):
            raise frame
        key, version, correlation_id = peek_api(frame)
        api = TABLE.get(key)
        if api is None:
            raise MalformedRequest(f"API key {api_label(key)} is not served")
        if not (api.served or api.least) <= version <= api.most:
            self._serve_unknown_version(len(frame), api, version, correlation_id)
            return
        if key != _PRODUCE and len(frame) > _CONTROL_REQUEST_MAX:
            raise MalformedRequest(f"a request of {len(frame)} bytes for API key {api_label(key)}")
        header, body = decode_request(frame, key, version)
        if header.client_id != self._client_id:
            self._client_id = printable(header.client_id or "")
        request = Request(self._broker, header, body, self.client, "/" + self.peer.rpartition(":")[0])
        self._producing = len(frame) + 4 if key == _PRODUCE else 0
        try:
            answer = await api.handle(request)
        finally:
            self._producing = 0
        metrics.requested(api.handle.__module__.rpartition(".")[2])
        response = self._respond(len(frame) + 4)
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(partial(self._later, request, response))
        else:
            self._answer(request, answer, response)

    def _serve_unknown_version(self, size: int, api: Api, version: int, correlation_id: int) -> None:
        if api.key != _API_VERSIONS:
            served = f"served are {api.served or api.least} to {api.most}"
            raise MalformedRequest(f"version {version} of API key {api_label(api.key)}, {served}")
        body = api_versions.answer(ErrorCode.unsupported_version)
        self._respond(size + 4).set_result(encode_response(api.key, 0, correlation_id, body))
        self._flush()

    # -- responses

    def _respond(self, size: int) -> _Response:
        """A place in the line of responses; `size` is that of the request's frame."""
        response: _Response = asyncio.get_running_loop().create_future()
        self._responses.append((size, response))
        return response

    def _later(self, request: Request, response: _Response, answer: asyncio.Future[Answer]) -> None:
        try:
            self._answer(request, answer.result(), response)
        except CloseConnection as error:
            self._report(request)
            self.drain()
            if not response.done():
                response.set_result(error)
                self._flush()
        except Exception:
            log.exception("%s: unexpected error; connection closed", self.client)
            self._close()

    def _answer(self, request: Request, answer: Answer, response: _Response) -> None:
        self._report(request)
        if not response.done():
            header = request.header
            response.set_result(
                encode_response(header.api_key, header.api_version, header.correlation_id, answer) if answer else None
            )
            self._flush()

    def _flush(self) -> None:
        """Writes the responses that are ready, as far as those before them are, too."""
        while self._responses and self._responses[0][1].done():
            size, response = self._responses.popleft()
            data = response.result()
            if isinstance(data, KetchError):
                self._hang_up(data)
                return
            if data is not None and self._transport is not None:
                self._transport.writelines(data)
            self._release(size)
        self._progress.set()

    def _report(self, request: Request) -> None:
        """One line for what went wrong in a request; what a client goes on asking is not said again."""
        summary = request.summary
        if summary and summary != self._reported:
            self._reported = summary
            log.warning("%s: %s", request.client, summary)

    # -- the end

    def _hang_up(self, reason: KetchError) -> None:
        if self._transport is not None:
            log.warning("%s: connection closed: %s", self.client, printable(str(reason)))
            if isinstance(reason, FrameError | MalformedRequest):
                metrics.bad_requests.inc()
        self._close()

    def _close(self) -> None:
        self._requests.clear()
        if self._transport is not None:
            self._transport.close()

    def drain(self) -> None:
        """Reads nothing more; what has come in is answered."""
        self._ending = True
        self._pause()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _produces(frame: bytes | FrameError) -> bool:
    return isinstance(frame, bytes) and len(frame) >= 8 and peek_api(frame)[0] == _PRODUCE
