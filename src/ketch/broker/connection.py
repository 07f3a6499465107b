"""One client connection: frames in, requests to the handlers one after the other, responses out in the same order.

It owns the line of responses; the queue of requests and the pauses in reading are `connections.metered`'s. It knows no
API: traits of an API that it must know are in the API's row of the dispatch table.

Every request goes through one pipeline, `Connection._serve`:

1. Authenticate. Who calls is decided when the connection is made (`_caller`): nobody is asked, all are anonymous.
2. Decode: the API's row, in a version that is served, and the request as kio's entity.
3. Authorize. What a request needs is in its row (`Api.touches`), who calls in `Request.caller`, and what that one may
   do in `Request.rights`, None where there is no authorizer. A rule that is about the whole request is asked here; a
   name that is denied by itself gets its error from the handler (`Request.denial`).
4. Handle: the row's handler makes the answer, or a `Later` that will make it.
5. Throttle. No client is told to wait: `_answer` writes the time, which all responses share.
6. Encode: `_answer` too, when the answer is there. The bytes go out in the order of the requests (`_flush`).

A stage that does nothing costs a request nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from kio.schema.errors import ErrorCode

from ketch import metrics
from ketch.broker.access.authorizer import Rights
from ketch.broker.api import Answer, Api, CloseConnection, Later, Request, printable, refused_whole
from ketch.broker.caller import unauthenticated
from ketch.broker.coordination.readers import Reader
from ketch.broker.services import Services
from ketch.complaints import Complaints
from ketch.configs.listeners import Listener
from ketch.connections.budget import Budget
from ketch.connections.metered import Incoming, MeteredConnection
from ketch.errors import KetchError
from ketch.wire.bounds import MalformedRequest
from ketch.wire.framing import FrameError
from ketch.wire.pieces import BytesLike
from ketch.wire.requests import api_label, decode_request, peek_api
from ketch.wire.responses import encode_response

log = logging.getLogger(__name__)

# A request that carries no records; a fetch of 100,000 partitions fits.
_CONTROL_REQUEST_MAX = 4 << 20
_IN_FLIGHT_MAX = 1000  # requests of one connection taken up and not yet answered, or stored where none is answered
_UNTHROTTLED_MS = 0  # no client is told to wait: there are no quotas


class _Response:
    """A place in the line of responses.

    Attributes:
        size: bytes of the request's frame.
        ready: whether `made` is set.
        made: the response in pieces, None for no response, or the reason for closing the connection when it is this
            one's turn.
    """

    __slots__ = ("made", "ready", "size")

    def __init__(self, size: int) -> None:
        self.size, self.ready = size, False
        self.made: list[BytesLike] | KetchError | None = None

    def set(self, made: list[BytesLike] | KetchError | None) -> None:
        self.made, self.ready = made, True


class Host(Services, Protocol):
    """What a connection uses of the broker, beside what its handlers may.

    Attributes:
        budget: bounds the bytes of requests over all connections.
    """

    budget: Budget

    @property
    def apis(self) -> Mapping[int, Api]: ...

    def admit(self, connection: Connection) -> bool:
        """Whether a new connection may stay (`max.connections`)."""

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""


class Connection(MeteredConnection):
    """A client of Kafka's protocol.

    Args:
        listener: the one that it came through.

    Attributes:
        client: "client-id at host:port", for log lines.
    """

    def __init__(self, broker: Host, listener: Listener) -> None:
        super().__init__(broker)
        self._broker, self._listener = broker, listener
        self._caller = unauthenticated(self.peer, listener)
        self._rights: Rights | None = None
        self._client_id: str | None = None
        self.client = self.peer
        self._carrying = 0  # bytes of the Produce request at hand
        self._reader = Reader()
        self._responses = deque[_Response]()
        self._unanswered = set[Later]()  # requests that get no response and are not stored yet
        self._complaints = Complaints()

    @property
    def busy(self) -> bool:
        return bool(self._responses or self._unanswered) or super().busy

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._caller, self.client = unauthenticated(self.peer, self._listener), self.peer
        if self._broker.authorizer is not None:
            self._rights = self._broker.authorizer.rights(self._caller)
        if not self._broker.admit(self):
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._reader.closed = True
        # What was produced is stored all the same, as in Kafka: with acks=0 a producer closes when it has sent it.
        self._requests = deque((at, frame) for at, frame in self._requests if self._carries_records(frame))
        kept = self._carrying + sum(len(frame) + 4 for _, frame in self._requests if isinstance(frame, bytes))
        if self._worker is not None and not self._carrying:
            self._worker.cancel()
            self._worker = None
        self._responses.clear()
        self._unanswered.clear()
        self._broker.forget(self)
        self._lose(kept)

    # -- requests

    async def _work(self) -> None:
        """Serves what has come in, one request after the other, until there is nothing left."""
        try:
            while self._requests:
                await self._serve(*self._requests.popleft())
                await self._keep_pace()
        except KetchError as error:
            self.drain()
            self._requests.clear()
            self._respond(0).set(error)
            self._flush()
        except Exception:
            log.exception("%s: unexpected error; connection closed", self.client)
            self._close()
        finally:
            if self._worker is asyncio.current_task():
                self._worker = None

    async def _keep_pace(self) -> None:
        """Waits while the peer does not read, or has too many answers outstanding."""
        while not self._writable or len(self._responses) + len(self._unanswered) >= _IN_FLIGHT_MAX:
            await self._await_progress()

    async def _serve(self, received: float, frame: Incoming) -> None:
        """The pipeline of one request, see above."""
        if isinstance(frame, FrameError):
            raise frame
        request = self._decode(received, frame)
        if request is None:
            return
        size = len(frame) + 4
        self._carrying = size if request.api.carries_records else 0
        try:
            code = ErrorCode.none if request.rights is None else request.refusal()
            answer = await request.api.handle(request) if not code else refused_whole(request, code)
        finally:
            self._carrying = 0
        metrics.requested(request.api.metric)
        if not isinstance(answer, Later):
            self._answer(request, answer, self._respond(size))
        elif answer.answered:
            answer.then(partial(self._later, request, self._respond(size), answer))
        else:
            self._unanswered.add(answer)
            answer.then(partial(self._ended, request, size, answer))

    def _decode(self, received: float, frame: bytes) -> Request | None:
        """The request; None where it was answered already, because its version is not served.

        Raises:
            MalformedRequest: the connection has to be closed.
        """
        key, version, correlation_id = peek_api(frame)
        api = self._broker.apis.get(key)
        if api is None:
            raise MalformedRequest(f"API key {api_label(key)} is not served")
        if not api.serves(version):
            self._serve_unknown_version(len(frame), api, version, correlation_id)
            return None
        if not api.carries_records and len(frame) > _CONTROL_REQUEST_MAX:
            raise MalformedRequest(f"a request of {len(frame)} bytes for API key {api_label(key)}")
        header, body = decode_request(frame, key, version)
        if header.client_id != self._client_id:
            self._rename(header.client_id)
        rights = self._rights
        if rights is not None and rights.caller is not self._caller:  # it has authenticated since
            rights = self._rights = self._broker.authorizer.rights(self._caller) if self._broker.authorizer else None
        return Request(self._broker, api, header, body, self._caller, self.client, self._reader, received, rights)

    def _rename(self, client_id: str | None) -> None:
        self._client_id = client_id
        self.client = f"{printable(client_id)} at {self.peer}" if client_id else self.peer

    def _serve_unknown_version(self, size: int, api: Api, version: int, correlation_id: int) -> None:
        if api.unknown_version is None:
            served = f"served are {api.oldest_answered or api.oldest} to {api.newest}"
            raise MalformedRequest(f"version {version} of API key {api_label(api.key)}, {served}")
        body = api.unknown_version(self._broker)
        self._respond(size + 4).set(encode_response(api.key, 0, correlation_id, body))
        self._flush()

    def _carries_records(self, frame: Incoming) -> bool:
        if not isinstance(frame, bytes) or len(frame) < 8:
            return False
        api = self._broker.apis.get(peek_api(frame)[0])
        return api is not None and api.carries_records

    # -- responses

    def _respond(self, size: int) -> _Response:
        response = _Response(size)
        self._responses.append(response)
        return response

    def _later(self, request: Request, response: _Response, answer: Later) -> None:
        try:
            self._answer(request, answer.make(), response)
        except CloseConnection as error:
            self._report(request)
            self.drain()
            response.set(error)
            self._flush()
        except Exception:
            log.exception("%s: unexpected error; connection closed", self.client)
            self._close()

    def _ended(self, request: Request, size: int, answer: Later) -> None:
        """A request that gets no response is done with."""
        if answer in self._unanswered:  # else the connection is gone, and its bytes with it
            self._unanswered.discard(answer)
            self._release(size)
        self._later(request, self._respond(0), answer)
        self._note_progress()

    def _answer(self, request: Request, answer: Answer, response: _Response) -> None:
        self._report(request)
        if answer is None:
            response.set(None)
        else:
            answer["throttle_time"] = _UNTHROTTLED_MS  # all responses but those of old versions have it
            header = request.header
            response.set(encode_response(header.api_key, header.api_version, header.correlation_id, answer))
        self._flush()

    def _flush(self) -> None:
        """Writes the responses that are ready, as far as those before them are, too."""
        while self._responses and self._responses[0].ready:
            response = self._responses.popleft()
            if isinstance(response.made, KetchError):
                self._hang_up(response.made)
                return
            if response.made is not None and self._transport is not None:
                self._transport.writelines(response.made)
            self._release(response.size)
        self._note_progress()

    def _report(self, request: Request) -> None:
        if not request.complaints:
            return
        line = self._complaints.line(request.summary, time.monotonic())
        if line:
            log.log(logging.WARNING if request.failures else logging.INFO, "%s: %s", request.client, line)

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
