"""The Authenticate stage of one connection by SASL: Kafka's SaslServerAuthenticator, without its sockets.

What a frame of the client may be depends on the stage of the connection (`Stage`):

| stage           | ApiVersions         | SaslHandshake              | a token                 | any other |
|-----------------|---------------------|----------------------------|-------------------------|-----------|
| BEGIN           | answered; HANDSHAKE | TOKENS                     | closed                  | closed    |
| HANDSHAKE       | closed              | TOKENS                     | closed                  | closed    |
| TOKENS          | ILLEGAL_SASL_STATE  | ILLEGAL_SASL_STATE         | DONE, or the next token | closed    |
| DONE            | answered            | TOKENS, once a second      | ILLEGAL_SASL_STATE      | answered  |
| WRONG_MECHANISM | closed              | closed                     | closed                  | closed    |

What is answered with ILLEGAL_SASL_STATE in TOKENS closes the connection, too. A token comes in a SaslAuthenticate;
after a SaslHandshake of version 0 it is a frame without a header. A SaslHandshake in DONE begins a re-authentication
(KIP-368), by the same mechanism and of the same principal. Until it is done the client remains who it was. In DONE a
request that comes after the session's end closes the connection.

A client that is not authenticated has nothing parsed but the requests above. What it may take of memory and time is
bounded by its connection.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from kio.schema.errors import ErrorCode

from ketch import metrics
from ketch.broker.access.mechanisms import Exchange, Mechanisms
from ketch.configs.settings import Settings
from ketch.errors import KetchError
from ketch.security.sasl import InvalidCredentials, RefusedWithReason
from ketch.wire.pieces import BytesLike
from ketch.wire.requests import RequestHeader, api_label, peek_api
from ketch.wire.responses import Body, encode_response

HANDSHAKE, API_VERSIONS, AUTHENTICATE = 17, 18, 36

_HANDSHAKE_KEY = HANDSHAKE.to_bytes(2)
_AGAIN_S = 1.0  # KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS

_OUT_OF_PLACE: Body = {
    "error_code": ErrorCode.illegal_sasl_state,
    "mechanisms": (),
    "api_keys": (),
    "throttle_time": 0,
}

Decoded = tuple[RequestHeader, Any]
"""A request's header, and its body as kio's entity."""


class Stage(Enum):
    """What the connection's next frame may be, see the table above."""

    BEGIN = auto()
    HANDSHAKE = auto()
    TOKENS = auto()
    DONE = auto()
    WRONG_MECHANISM = auto()


class NotAuthenticated(KetchError):
    """A request that is not allowed at this stage: the connection is closed without an answer."""


class AuthenticationFailed(KetchError):
    """The connection is closed, after the answer and a delay.

    Attributes:
        told: the error message where it is the answer to a token.
        answer: what the client is sent, in pieces; None for nothing.
    """

    told = ""
    answer: list[BytesLike] | None = None


class Authentication:
    """One connection's.

    Args:
        settings: as they are for its listener.
        listener: the listener's name, for metrics.
        serves: whether ApiVersions is served in a version.
        grant: called with the principal when the client has shown who it is, again after each re-authentication.
    """

    def __init__(
        self,
        mechanisms: Mechanisms,
        settings: Settings,
        listener: str,
        serves: Callable[[int], bool],
        grant: Callable[[str], None],
    ) -> None:
        self._mechanisms, self._settings, self._listener = mechanisms, settings, listener
        self._serves, self._grant = serves, grant
        self._stage = Stage.BEGIN
        self._mechanism = ""
        self._raw = False  # tokens come without headers
        self._exchange: Exchange | None = None
        self._principal: str | None = None  # from the first authentication on
        self._expires = math.inf  # when the session ends, by the monotonic clock
        self._last_again = -math.inf  # when the last re-authentication began

    def passes(self, frame: bytes, now: float) -> bool:
        """Whether a request goes on to its handler; otherwise it is to be given to `take`.

        Args:
            now: when it came, by the monotonic clock.

        Raises:
            NotAuthenticated: the session has ended.
        """
        if self._stage is not Stage.DONE:
            return False
        if frame[:2] == _HANDSHAKE_KEY and now - self._last_again >= _AGAIN_S:
            self._last_again, self._stage = now, Stage.HANDSHAKE
            return False
        if now > self._expires:
            metrics.session_expired(self._listener)
            raise NotAuthenticated("its session has ended and it did not authenticate again")
        return True

    @property
    def until(self) -> float:
        """Until when every request but a SaslHandshake passes, by the monotonic clock; -inf where none does."""
        return self._expires if self._stage is Stage.DONE else -math.inf

    def asks_for_versions(self, frame: bytes) -> bool:
        """Whether it is an ApiVersions that is allowed now; the answer is for `offered`. Raises MalformedRequest."""
        return self._stage is Stage.BEGIN and peek_api(frame)[0] == API_VERSIONS

    def offered(self, error: ErrorCode) -> None:
        """ApiVersions was answered so; where all was well, SaslHandshake is next."""
        if error is ErrorCode.none:
            self._stage = Stage.HANDSHAKE

    async def take(self, frame: bytes, decode: Callable[[bytes], Decoded]) -> list[BytesLike]:
        """The response to a frame, in pieces.

        Args:
            decode: parses it as the request that it announces; may raise MalformedRequest.

        Raises:
            AuthenticationFailed, NotAuthenticated: the connection is to be closed.
            StorageUnavailable, NoKeys: it is to be closed, too: who the client is cannot be looked up now.
        """
        if self._stage is Stage.TOKENS and self._raw:
            token, _ = await self._evaluate(frame)
            return [len(token).to_bytes(4), token]
        key, version, _ = peek_api(frame)
        if self._stage is Stage.TOKENS and key == AUTHENTICATE:
            return await self._authenticate(*decode(frame))
        if self._stage in (Stage.BEGIN, Stage.HANDSHAKE) and key == HANDSHAKE:
            return self._shake(*decode(frame))
        if self._stage is Stage.TOKENS and (key == HANDSHAKE or (key == API_VERSIONS and self._serves(version))):
            refused = self._failed(f"API key {api_label(key)} in place of a token")
            refused.answer = _encoded(decode(frame)[0], _OUT_OF_PLACE)
            raise refused
        if self._stage is Stage.WRONG_MECHANISM:
            raise self._failed("another mechanism than before")
        if self._exchange is not None and self._exchange.refused:  # KafkaJS and aiokafka go on as if they were let in
            raise self._failed(self._exchange.refused)
        raise NotAuthenticated(f"API key {api_label(key)} before it has authenticated")

    def left(self) -> str:
        """Why the login failed of a client that was told so in a token and hung up without confirming it; else "".

        franz-go does so with OAUTHBEARER. The failure is counted here.
        """
        if self._exchange is None or not self._exchange.refused:
            return ""
        return str(self._failed(self._exchange.refused))

    def _shake(self, header: RequestHeader, request: Any) -> list[BytesLike]:
        wanted, enabled = request.mechanism, self._settings.mechanisms
        if wanted not in enabled:
            error = AuthenticationFailed(f"authentication failed: this mechanism is not enabled: {wanted}")
            body = {"error_code": ErrorCode.unsupported_sasl_mechanism, "mechanisms": enabled}
            error.answer = _encoded(header, body)
            metrics.authenticated(self._listener, "(other)", self._again, failed=True)
            raise error
        if self._again and wanted != self._mechanism:
            self._stage = Stage.WRONG_MECHANISM
        else:
            self._stage, self._mechanism, self._raw = Stage.TOKENS, wanted, header.api_version == 0
            self._exchange = self._mechanisms.exchange(wanted, self._settings)
        return _encoded(header, {"error_code": ErrorCode.none, "mechanisms": enabled})

    async def _authenticate(self, header: RequestHeader, request: Any) -> list[BytesLike]:
        try:
            token, lifetime_ms = await self._evaluate(request.auth_bytes)
        except AuthenticationFailed as error:
            body = {"error_code": ErrorCode.sasl_authentication_failed, "error_message": error.told, "auth_bytes": b""}
            error.answer = _encoded(header, body)
            raise
        body = {"error_code": ErrorCode.none, "error_message": "", "auth_bytes": token}
        return _encoded(header, {**body, "session_lifetime": lifetime_ms})

    async def _evaluate(self, token: bytes) -> tuple[bytes, int]:
        """The token that answers it, and the session's lifetime in ms where that begins with it, else 0."""
        assert self._exchange is not None
        try:
            answer = await self._exchange.answer(token)
            return answer, 0 if self._exchange.name is None else self._finish(self._exchange, self._exchange.name)
        except InvalidCredentials as error:
            told = f"Authentication failed during {self._doing} due to invalid credentials with SASL mechanism"
            raise self._failed(str(error), f"{told} {self._mechanism}") from None
        except RefusedWithReason as error:
            raise self._failed(error.why, str(error)) from None

    def _finish(self, exchange: Exchange, name: str) -> int:
        """The client is who it says; the session's lifetime in ms, 0 for no end.

        Raises:
            RefusedWithReason: it was somebody else before.
        """
        principal = f"User:{name}"
        if self._principal not in (None, principal):
            before, after = (who.replace(":", ".", 1) for who in (str(self._principal), principal))
            raise RefusedWithReason(f"Cannot change principals during re-authentication from {before}: {after}")
        metrics.authenticated(self._listener, self._mechanism, self._again, failed=False)
        limits = [exchange.lifetime_ms, self._settings.connections_max_reauth_ms or None]
        lifetime_ms = min((max(0, each) for each in limits if each is not None), default=None)
        self._expires = math.inf if lifetime_ms is None else time.monotonic() + lifetime_ms / 1000
        self._principal, self._exchange, self._stage = principal, None, Stage.DONE
        self._grant(principal)
        return lifetime_ms or 0

    @property
    def _again(self) -> bool:
        return self._principal is not None

    @property
    def _doing(self) -> str:
        return "re-authentication" if self._again else "authentication"

    def _failed(self, why: str, told: str = "") -> AuthenticationFailed:
        metrics.authenticated(self._listener, self._mechanism, self._again, failed=True)
        self._exchange = None
        error = AuthenticationFailed(f"{self._doing} failed ({self._mechanism}): {why}")
        error.told = told
        return error


def _encoded(header: RequestHeader, body: Body) -> list[BytesLike]:
    return encode_response(header.api_key, header.api_version, header.correlation_id, body)
