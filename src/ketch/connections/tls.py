"""A listening port whose clients speak TLS: accepts, makes the handshake within bounds, and only then a connection.

It owns the listening sockets and the handshakes under way. asyncio's own server knows no bound on these and says
nothing of one that fails. Here so many run at a time, and each ends after a while. Where there is no room for the next
client, the oldest handshake makes it, once it has had the time that an honest client needs. So clients that never
finish theirs hold nobody up for long. What went wrong is a line in the log, at most one a minute for a port. A
connection that stands is its protocol's; nothing here sees its bytes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress

from ketch import metrics
from ketch.complaints import Complaints
from ketch.errors import reason
from ketch.security.tls import Credentials, alert_of

log = logging.getLogger(__name__)

_HANDSHAKE_S = 10.0
_SHUTDOWN_S = 2.0  # for the peer to say that it has seen the end
_HANDSHAKES_MAX = 512  # at a time; a further one waits until one of them has ended or made room
_ROOM_AFTER_S = 1.0  # a few round trips around the world; an older handshake makes room for a client that waits
_ACCEPT_AGAIN_S = 0.5  # after an error, for instance where there are no descriptors left
_LAST_BYTES = 1 << 16  # of what a refused client sends and nobody reads, at a time
_CHECK_S = 1.0  # between two looks at the files of certificates

# OpenSSL's reasons for what is no TLS at all
_NO_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL"}
_SAID = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate",
    "NO_SHARED_CIPHER": "no cipher suite that both sides have",
    "UNSUPPORTED_PROTOCOL": "no version of TLS that both sides have",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust this broker's certificate: its authority is unknown there",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not accept this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client finds this broker's certificate expired",
}


class TlsPort:
    """One listener's port.

    Args:
        name: of the listener, for log lines.
        make: a connection's protocol, once the handshake is done.

    Attributes:
        port: the one that is listened on.
    """

    def __init__(self, name: str, credentials: Credentials, make: Callable[[], asyncio.BaseProtocol]) -> None:
        self.port = 0
        self._name, self._credentials, self._make = name, credentials, make
        self._sockets: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._handshakes: dict[asyncio.Task[None], float] = {}  # -> when it began, by the loop's clock; oldest first
        self._complaints, self._crowded = Complaints(), Complaints()

    def start(self, host: str, port: int, backlog: int) -> None:
        """Listens; OSError where it cannot."""
        loop = asyncio.get_running_loop()
        self._sockets = _bound(host, port)
        self.port = self._sockets[0].getsockname()[1]
        for each in self._sockets:
            each.listen(backlog)
            self._tasks.append(loop.create_task(self._accept(each)))
        self._tasks.append(loop.create_task(self._follow_files()))

    def close(self) -> None:
        """Accepts nothing more and ends the handshakes under way."""
        for task in (*self._tasks, *self._handshakes):
            task.cancel()
        for each in self._sockets:
            each.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listening)
                spare = _second(client)
            except OSError as error:
                self._complain(f"no connection can be accepted: {reason(error)}")
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            await self._make_room()
            task = loop.create_task(self._greet(client, spare))
            self._handshakes[task] = loop.time()
            task.add_done_callback(self._handshakes.pop)

    async def _make_room(self) -> None:
        """Waits until one more handshake may begin."""
        if len(self._handshakes) < _HANDSHAKES_MAX:
            self._crowded.over()
        while len(self._handshakes) >= _HANDSHAKES_MAX:
            oldest, begun = next(iter(self._handshakes.items()))
            left = begun + _ROOM_AFTER_S - asyncio.get_running_loop().time()
            if left <= 0:
                self._say(self._crowded, f"{_HANDSHAKES_MAX} handshakes of TLS are under way: the oldest makes room")
                oldest.cancel()
            await asyncio.wait([oldest], timeout=max(left, 0) or None)

    async def _greet(self, client: socket.socket, spare: socket.socket) -> None:
        peer = _peer(client)
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make,
                client,
                ssl=self._credentials.context,
                ssl_handshake_timeout=_HANDSHAKE_S,
                ssl_shutdown_timeout=_SHUTDOWN_S,
            )
        except ConnectionResetError:  # for instance somebody who looks whether the port is open
            log.debug("listener %s: %s: the client has hung up before the end of the TLS handshake", self._name, peer)
        except OSError as error:
            metrics.authenticated(self._name, "(TLS)", again=False, failed=True)
            self._complain(f"{peer}: TLS handshake failed: {_why(error)}")
            if isinstance(error, ssl.SSLError) and error.reason not in _NO_TLS:
                await _alert(spare, alert_of(error))
        except asyncio.CancelledError:
            client.close()
            raise
        finally:
            spare.close()

    async def _follow_files(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_S)
            self._credentials.refresh()

    def _complain(self, text: str) -> None:
        self._say(self._complaints, text)

    def _say(self, complaints: Complaints, text: str) -> None:
        line = complaints.line(text, time.monotonic())
        if line:
            log.warning("listener %s: %s", self._name, line)


def _second(client: socket.socket) -> socket.socket:
    """A second socket of a connection: the loop closes the first if its handshake fails, before the alert is sent."""
    try:
        return client.dup()
    except OSError:
        client.close()
        raise


async def _alert(client: socket.socket, alert: bytes) -> None:
    """Tells a client why its handshake has failed, and waits a while until it hangs up.

    To close a socket with unread bytes is a reset, which would take the alert from the client again: with TLS 1.3 its
    first request is there already. Not for a client that speaks no TLS: Kafka's take an alert for a frame of 352 MB.
    """
    loop = asyncio.get_running_loop()
    with suppress(OSError):  # TimeoutError among them
        async with asyncio.timeout(_SHUTDOWN_S):
            await loop.sock_sendall(client, alert)
            client.shutdown(socket.SHUT_WR)
            while await loop.sock_recv(client, _LAST_BYTES):
                pass


def _why(error: OSError) -> str:
    """What went wrong with a handshake, in words for the operator."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        if error.reason in _NO_TLS:
            return "what came is no TLS; a client without TLS has come to a port with TLS"
        return _SAID.get(error.reason or "", error.reason or "it ended early")
    if isinstance(error, ConnectionAbortedError):
        return f"it was not done within {_HANDSHAKE_S:.0f} s"
    return reason(error)


def _peer(client: socket.socket) -> str:
    try:
        address = client.getpeername()
    except OSError:
        return "?"
    return f"{address[0]}:{address[1]}"


def _bound(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host, all on the same port, also where that is any free one (0)."""
    bound: list[socket.socket] = []
    try:
        flags = socket.AI_PASSIVE
        for family, kind, proto, _, address in socket.getaddrinfo(host or None, port, 0, socket.SOCK_STREAM, 0, flags):
            each = socket.socket(family, kind, proto)
            bound.append(each)
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            chosen = port or (bound[0].getsockname()[1] if len(bound) > 1 else 0)
            each.bind((address[0], chosen, *address[2:]))
    except OSError:
        for each in bound:
            each.close()
        raise
    return bound
