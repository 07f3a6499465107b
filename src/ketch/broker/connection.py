"""One client connection: frames in, requests to the handlers one after the other, responses out in the same order.

It owns the line of responses; the queue of requests and the pauses in reading are `connections.metered`'s. It knows no
API: traits of an API that it must know are in the API's row of the dispatch table.

Every request goes through one pipeline, `Connection._serve`:

1. Authenticate. On a listener without SASL who calls is decided when the connection is made (`_caller`): whom its TLS
   certificate names, else anonymous. With SASL it is `broker.access.authentication`'s: until the client has shown who
   it is, no request goes on but ApiVersions, and the connection's memory and time are bounded.
2. Decode: the API's row, in a version that is served, and the request as kio's entity.
3. Authorize. What a request needs is in its row (`Api.touches`), who calls in `Request.caller`, and what that one may
   do in `Request.rights`, None where there is no authorizer. A rule that is about the whole request is asked here; a
   name that is denied by itself gets its error from the handler (`Request.denial`).
4. Handle: the row's handler makes the answer, or a `Later` that will make it.
5. Throttle. Who has used more than its quotas (`broker.quotas`) is told for how long to wait; the response says so at
   once, and nothing more is taken from the connection for that time (KIP-219).
6. Encode: `_answer` too, when the answer is there. The bytes go out in the order of the requests (`_flush`).

A stage that does nothing costs a request nothing.

A request that the lane takes (`ketch.lane`) goes through none of it: it takes those alone whose client is known and is
allowed all that they ask for, and throttles by the same quotas. Its answer stands in the line of responses like any
other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kio.schema.errors import ErrorCode

from ketch import metrics
from ketch.broker.access.authentication import API_VERSIONS, Authentication, AuthenticationFailed, Decoded
from ketch.broker.access.authorizer import Rights
from ketch.broker.access.mechanisms import Mechanisms
from ketch.broker.api import Answer, Api, CloseConnection, Later, Request, printable, refused_whole
from ketch.broker.caller import Caller, introduced, unauthenticated
from ketch.broker.coordination.readers import Reader
from ketch.broker.places import Place, Polled, Response, Taken
from ketch.broker.quotas import Timed
from ketch.broker.services import Services
from ketch.complaints import Complaints
from ketch.configs.listeners import Listener
from ketch.connections.budget import Budget
from ketch.connections.metered import Incoming, MeteredConnection, TlsHello
from ketch.errors import KetchError
from ketch.logs import ClientName
from ketch.security.quotas import Quota
from ketch.wire.bounds import MalformedRequest
from ketch.wire.framing import FrameError
from ketch.wire.pieces import BytesLike
from ketch.wire.requests import RequestHeader, api_label, decode_request, peek_api
from ketch.wire.responses import encode_response

if TYPE_CHECKING:
    from ketch.lane import Lane

log = logging.getLogger(__name__)

# A request that carries no records; a fetch of 100,000 partitions fits.
_CONTROL_REQUEST_MAX = 4 << 20
_JOINED_MAX = 1 << 16  # bytes of the lane's responses that are copied into one
_IN_FLIGHT_MAX = 1000  # requests of one connection taken up and not yet answered, or stored where none is answered


class Host(Services, Protocol):
    """What a connection uses of the broker, beside what its handlers may.

    Attributes:
        budget: bounds the bytes of requests over all connections.
        mechanisms: by which clients authenticate on listeners with SASL.
        lane: serves what is common without the pipeline; None for none.
    """

    budget: Budget
    mechanisms: Mechanisms
    lane: Lane | None

    @property
    def apis(self) -> Mapping[int, Api]: ...

    def admit(self, connection: Connection) -> bool:
        """Takes a new connection in; False where it has to go at once (`max.connections`)."""

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """A connection as a person looks at it.

    Attributes:
        peer: "host:port".
        client_id: as its last request had it; empty where it had none.
        principal: who it is, see `Caller`.
        software: name and version of the client's library, as it said; empty where it did not.
        idle: s since it last sent something or took a response.
        held: bytes of its requests that are not answered yet.
    """

    peer: str
    client_id: str
    principal: str
    listener: str
    software: tuple[str, str]
    idle: float
    held: int


class Connection(MeteredConnection):
    """A client of Kafka's protocol.

    Args:
        listener: the one that it came through.

    Attributes:
        client: "client-id at host:port", for log lines.
        client_id: that of the requests, in bytes; None for none.
        client_name: the same as text.
        reader: what is known of its fetches.
    """

    def __init__(self, broker: Host, listener: Listener) -> None:
        super().__init__(broker)
        self._broker, self._listener = broker, listener
        self._caller = unauthenticated(self.peer, listener)
        self._rights: Rights | None = None
        self._authentication: Authentication | None = None
        self._deadline: asyncio.TimerHandle | None = None  # for the client to authenticate
        self.client_name: str | None = None
        self.client_id: bytes | None = None
        self.client = ClientName(self.peer)
        self._carrying = 0  # bytes of the Produce request at hand
        self.reader = Reader()
        self._responses = deque[Place]()
        self._unanswered = set[Later | Taken]()  # requests that get no response and are not stored yet
        self._complaints = Complaints()

    def facts(self) -> ClientFacts:
        """What is known of its client."""
        return ClientFacts(
            self.peer,
            self.client_name or "",
            self._caller.principal,
            self._listener.name,
            self.reader.software,
            time.monotonic() - self.last_active,
            self._held,
        )

    @property
    def busy(self) -> bool:
        return bool(self._responses or self._unanswered) or super().busy

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.client = ClientName(self.peer)
        if not self._broker.admit(self):
            self.abort()
            return
        try:
            self._caller = introduced(transport, self.peer, self._listener)
        except ValueError as error:
            log.warning("%s: connection closed: %s", self.client, printable(str(error)))
            self.abort()
            return
        if self._listener.protocol.sasl:
            self._challenge()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._deadline is not None:
            self._deadline.cancel()
        if self._authentication is not None and (failure := self._authentication.left()):
            log.warning("%s: %s", self.client, printable(failure))
        self.reader.close()
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

    async def _work(self, polled: Polled | None = None) -> None:
        """Serves what has come in, one request after the other, until there is nothing left.

        Args:
            polled: a fetch of the lane that comes first.
        """
        try:
            if polled is not None:
                await self._go_on(polled)
            await self._keep_pace()
            offered = polled is None  # the lane has left the first request already
            while self._requests:
                received, frame = self._requests.popleft()
                if offered or not self._by_lane(received, frame):
                    await self._serve(received, frame)
                elif self._worker is not asyncio.current_task():
                    return  # it is a fetch, with which the lane waits
                offered = False
                await self._keep_pace()
        except KetchError as error:
            self.drain()
            self._requests.clear()
            self._respond(0).set(error)
            self._flush()
        except Exception:
            self.fail()
        finally:
            if self._worker is asyncio.current_task():
                self._worker = None

    async def _keep_pace(self) -> None:
        """Waits while the peer does not read, or has too many answers outstanding."""
        while not self._writable or self._muted or len(self._responses) + len(self._unanswered) >= _IN_FLIGHT_MAX:
            await self._await_progress()

    async def _serve(self, received: float, frame: Incoming) -> None:
        """The pipeline of one request, see above."""
        begun = time.monotonic()
        if isinstance(frame, FrameError):
            raise frame
        if self._authentication is not None and not self._authentication.passes(frame, received):
            await self._authenticate(received, frame, self._authentication)
            return
        request = self._decode(received, begun, frame)
        if request is None:
            return
        size = len(frame) + 4
        self._carrying = size if request.api.carries_records else 0
        try:
            code = ErrorCode.none if request.rights is None else request.refusal()
            if code:
                answer: Answer | Later = refused_whole(request, code)
            else:
                handling = request.api.handle(request)
                if self._broker.quotas.timing:
                    handling = request.timed = Timed(handling)
                answer = await handling
        finally:
            self._carrying = 0
        metrics.requested(request.api.metric)
        if not isinstance(answer, Later):
            self._answer(request, answer, self._respond(size, request))
        elif answer.answered:
            answer.then(partial(self._later, request, self._respond(size, request), answer))
        else:
            self._unanswered.add(answer)
            answer.then(partial(self._ended, request, size, answer))

    def _decode(self, received: float, begun: float, frame: bytes) -> Request | None:
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
        if header.client_id != self.client_name:
            self._rename(header.client_id)
        request = Request(self._broker, api, header, body, self._caller, self.client, self.reader, received, begun)
        request.size = len(frame)
        request.rights = self.rights
        return request

    @property
    def rights(self) -> Rights | None:
        """What its client may do; None where nobody is asked."""
        authorizer = self._broker.authorizer
        if authorizer is None:
            return None
        if self._rights is None or self._rights.caller is not self._caller:
            self._rights = authorizer.rights(self._caller)
        return self._rights

    def _decode_known(self, received: float, frame: bytes) -> Decoded:
        """As `_decode`, of an API whose unknown versions close the connection."""
        request = self._decode(received, received, frame)
        assert request is not None
        return request.header, request.body

    def _rename(self, client_id: str | None) -> None:
        self.client_name = client_id
        self.client_id = None if client_id is None else client_id.encode()
        self.client = ClientName(self.peer, client_id, printable(client_id or ""))

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

    # -- who calls, by SASL

    def _challenge(self) -> None:
        """The client has to say who it is, within bounds."""
        listener, serves = self._listener.name, self._broker.apis[API_VERSIONS].serves
        settings = self._broker.settings.of(listener)
        self._authentication = Authentication(self._broker.mechanisms, settings, listener, serves, self._grant)
        self._queue_max = settings.sasl_server_max_receive_size
        self._frames.bound(settings.sasl_server_max_receive_size, "sasl_server_max_receive_size")
        loop, seconds = asyncio.get_running_loop(), settings.authentication_timeout_ms / 1000
        self._deadline = loop.call_later(seconds, self._give_up, seconds)

    def _grant(self, principal: str) -> None:
        """The client is this principal; what is known of the one before it counts no more."""
        settings = self._broker.settings
        if principal != self._caller.principal:
            self._caller = Caller(principal, self._caller.listener, self._caller.host)
        self._queue_max = settings.queued_max_bytes_per_connection
        self._frames.bound(settings.socket_request_max_bytes)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _pause(self) -> None:
        """A client that has not authenticated waits for answers: one that does not would take others' memory."""
        if self._deadline is not None and self._full:
            log.warning("%s: connection closed: a flood of requests before it has authenticated", self.client)
            self.abort()
        super()._pause()

    def _give_up(self, seconds: float) -> None:
        log.warning("%s: connection closed: not authenticated within %g s", self.client, seconds)
        self.abort()

    async def _offer(self, received: float, frame: bytes, stage: Authentication) -> None:
        """ApiVersions, before anything else."""
        request = self._decode(received, time.monotonic(), frame)
        if request is not None:
            answer = await request.api.handle(request)
            assert isinstance(answer, dict)
            stage.offered(answer["error_code"])
            self._answer(request, answer, self._respond(len(frame) + 4, request))

    async def _authenticate(self, received: float, frame: bytes, stage: Authentication) -> None:
        """Serves a request by which the client logs in.

        A refusal is sent a fixed time after the request came, so that the time to find it does not tell who exists
        (KIP-306).
        """
        if stage.asks_for_versions(frame):
            await self._offer(received, frame, stage)
            return
        try:
            made = await stage.take(frame, partial(self._decode_known, received))
        except AuthenticationFailed as error:
            log.warning("%s: %s", self.client, printable(str(error)))
            self.drain()
            self._requests.clear()
            delay = self._broker.settings.connection_failed_authentication_delay_ms / 1000
            await asyncio.sleep(received + delay - time.monotonic())
            self._respond(len(frame) + 4).set(error.answer)
            raise
        self._respond(len(frame) + 4).set(made)
        self._flush()

    # -- responses

    def _respond(self, size: int, request: Request | None = None) -> Response:
        response = Response(size, request)
        self._responses.append(response)
        return response

    def _later(self, request: Request, response: Place, answer: Later) -> None:
        try:
            self._answer(request, answer.make(), response)
        except CloseConnection as error:
            self._report(request)
            self.drain()
            response.set(error)
            self._flush()
        except Exception:
            self.fail()

    def _ended(self, request: Request, size: int, answer: Later) -> None:
        """A request that gets no response is done with."""
        if answer in self._unanswered:  # else the connection is gone, and its bytes with it
            self._unanswered.discard(answer)
            self._release(size)
        self._later(request, self._respond(0, request), answer)
        self._note_progress()

    def _answer(self, request: Request, answer: Answer, response: Place) -> None:
        self._report(request)
        if self._broker.tracer is not None and request.api.traced is not None:
            request.traces = request.api.traced(request, answer)
        throttled = self._throttle(request) if self._broker.quotas.in_force else 0
        if answer is None:
            response.set(None)
        else:
            answer["throttle_time"] = throttled  # all responses but those of old versions have it
            header = request.header
            response.set(encode_response(header.api_key, header.api_version, header.correlation_id, answer))
        self._flush()

    def _throttle(self, request: Request) -> int:
        """For how many ms the client waits; it does so from now on."""
        if request.api.carries_records:
            request.use(Quota.PRODUCE, request.size)
        if request.timed is not None:
            request.use(Quota.REQUEST, request.timed.busy * 100)
        if request.delay:
            self._mute(request.delay)
        return round(request.delay * 1000)

    def _flush(self) -> None:
        """Writes the responses that are ready, as far as those before them are, too."""
        while self._responses and self._responses[0].ready:
            response = self._responses.popleft()
            if isinstance(response.made, KetchError):
                self._hang_up(response.made)
                return
            if response.made is not None and self._transport is not None:
                self._transport.writelines(response.made)
            response.done(time.monotonic())
            self._release(response.size)
        self._note_progress()

    def _report(self, request: Request) -> None:
        if not request.complaints:
            return
        line = self._complaints.line(request.summary, time.monotonic())
        if line:
            log.log(logging.WARNING if request.failures else logging.INFO, "%s: %s", request.client, line)

    # -- the lane's requests

    def _receive(self, data: bytes, now: float, serve: Callable[[bytes, float], bool] | None = None) -> None:
        lane = self._broker.lane
        if lane is not None:
            if self._frames.buffered:
                serve = partial(self._take_whole, lane)
            elif (room := self.room) > 0:
                data = self._left_by(lane, data, now, room)
        if data:
            super()._receive(data, now, serve)

    def _left_by(self, lane: Lane, data: bytes, now: float, room: int) -> bytes:
        try:
            taken = lane.take(self, data, now, room, self._frames.max_bytes)
        except Exception:
            self.fail()
            return b""
        return data[taken:] if taken else data

    def _take_whole(self, lane: Lane, frame: bytes, now: float) -> bool:
        """Has the lane take a request that has come in several reads, or one behind it."""
        return self.room > 0 and lane.take_frame(self, frame, now)

    def _by_lane(self, received: float, frame: Incoming) -> bool:
        """Has the lane take a request that came while the worker had another one."""
        lane = self._broker.lane
        if lane is None or isinstance(frame, FrameError) or self._room <= 0:
            return False
        return lane.take_frame(self, frame, received)

    @property
    def room(self) -> int:
        """How many requests the lane may take now: none while the worker has one, or something is in force."""
        return 0 if self._worker is not None or self._requests else self._room

    @property
    def _room(self) -> int:
        if self._authentication is not None and self.last_active > self._authentication.until:
            return 0
        if not self._writable or self._muted or self._ending or self._transport is None:
            return 0
        return _IN_FLIGHT_MAX - len(self._responses) - len(self._unanswered)

    def taken(self, request: Taken) -> None:
        """The lane has sent a request's batches."""
        if request.acks:
            self._responses.append(request)
        else:
            self._unanswered.add(request)

    def stored(self, request: Taken) -> None:
        """The lane's batches of a request with acks=0, which gets no response, are stored."""
        if request in self._unanswered:  # else the connection is gone, and its bytes with it
            self._unanswered.discard(request)
            self._release(request.size)
            self._note_progress()

    def deliver(self) -> None:
        """Some responses of the lane's requests are ready: writes what can be written, at once."""
        written, size, responses, done = list[BytesLike](), 0, self._responses, list[Place]()
        while responses and responses[0].ready and isinstance(made := responses[0].made, list):
            response = responses.popleft()
            size += response.size
            done.append(response)
            written += made
        if self._transport is not None and written:
            if len(written) > 1 and sum(map(len, written)) > _JOINED_MAX:
                self._transport.writelines(written)
            else:
                self._transport.write(written[0] if len(written) == 1 else b"".join(written))
        now = time.monotonic()
        for response in done:
            response.done(now)
        if size:
            self._release(size)
        if responses and responses[0].ready:
            self._flush()
        elif self._awaited is not None:
            self._note_progress()
        if self._requests:
            self._start_work()

    def throttle(self, quota: Quota, client_id: str | None, amount: int) -> int:
        """As `_throttle`, of a request of the lane that is to be answered now."""
        delay = self._broker.quotas.use(quota, self._caller.principal, client_id, amount)
        if delay:
            self._mute(delay)
        return round(delay * 1000)

    def take_back(self, sent: Taken) -> None:
        """Python makes the answer to a request that the lane has taken: its batches are not all stored as expected."""
        api = self._broker.apis[sent.api_key]
        assert api.resume is not None
        header = RequestHeader(sent.api_key, sent.version, sent.correlation_id, sent.client_id)
        request = Request(
            self._broker, api, header, sent, self._caller, self.client, self.reader, sent.received, sent.begun
        )
        request.size = sent.size - 4
        sent.request = request
        answer = api.resume(request, sent)
        if answer.answered:
            answer.then(partial(self._later, request, sent, answer))
            return
        if sent in self._unanswered:
            self._unanswered.discard(sent)
            self._unanswered.add(answer)
        answer.then(partial(self._ended, request, sent.size, answer))

    @property
    def host(self) -> str:
        """Its client's, as ACLs and groups have it."""
        return self._caller.host

    def most(self, quota: Quota) -> int:
        """See `Request.most`."""
        return int(self._broker.quotas.most(quota, self._caller.principal, self.client_name))

    def awaits(self, polled: Polled) -> None:
        """The lane waits with a fetch. What comes after it is not taken up before its answer."""
        self._worker = polled

    def answered(self, polled: Polled) -> None:
        """The lane has made the answer to a fetch; `deliver` is called next."""
        if self._worker is polled:
            self._worker = None
        self._responses.append(polled)

    def go_on(self, polled: Polled) -> None:
        """Python makes the answer to a fetch with which the lane has waited."""
        self._worker = asyncio.get_running_loop().create_task(self._work(polled))

    async def _go_on(self, polled: Polled) -> None:
        request = self._decode(polled.received, polled.begun, polled.frame)
        assert request is not None
        assert request.api.go_on is not None
        request.rights, request.waited = polled.rights, polled.waited
        answer = await request.api.go_on(request, polled.session, polled.deadline)
        metrics.requested(request.api.metric)
        self._answer(request, answer, self._respond(polled.size, request))

    def fail(self) -> None:
        """An error that nobody expected is being handled: it is logged, and the connection closed."""
        log.exception("%s: unexpected error; connection closed", self.client)
        self._close()

    # -- the end

    def _hang_up(self, reason: KetchError) -> None:
        if isinstance(reason, TlsHello):
            self._broker.ports.complain(self._listener, f"{self.peer}: a TLS handshake on a plaintext port")
        elif self._transport is not None and not isinstance(reason, AuthenticationFailed):  # which was logged
            log.warning("%s: connection closed: %s", self.client, printable(str(reason)))
        if self._transport is not None and isinstance(reason, FrameError | MalformedRequest):
            metrics.bad_requests.inc()
        self._close()

    def _close(self) -> None:
        self._requests.clear()
        self.close()
