"""`--http-port`: /metrics for Prometheus, /healthz for supervisors that restart brokers, and /, which lists both; where
the broker has a console, its pages take the place of the list.

Each page answers GET and HEAD at its own path, without a redirect: `curl` and many scrapers do not follow one. With a
token /metrics is for those who show it; /healthz tells nobody anything but whether the broker works, and stays open.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hmac
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Protocol

import uvicorn
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder, gzip_accepted
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

import ketch
from ketch.configs.settings import Settings
from ketch.errors import ConfigError, KetchError, reason
from ketch.security.tls import server_pair

_PATIENCE_S = 1.0
_COUNTED_HERE = frozenset(("ketch_bytes_in_total", "ketch_bytes_out_total"))  # no look at Redis is needed for them
_GZIP_LEVEL = 1


class _Server(uvicorn.Server):
    """uvicorn inside the broker's loop: signals are the broker's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Pages(Protocol):
    """An ASGI application with pages that may be live."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def close(self) -> None:
        """Ends those that are."""


class Shared(Protocol):
    """What all brokers share, on the page for Prometheus; see `monitoring.families.SharedMetrics`."""

    async def refresh(self) -> None:
        """Brings it up to date, within about a second."""

    def open(self) -> None:
        """It is shown from now on."""

    def close(self) -> None:
        """It is shown no more."""


class HttpPort:
    """The HTTP side of one broker.

    Args:
        healthy: whether Redis is connected, for writing and for reading.
        console: makes the pages under / from the token that is asked for, None for none.
        shared: what /metrics shows beside what this broker counts; None for nothing.

    Raises:
        ConfigError: the file with the token, or that with key and certificate, cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        healthy: Callable[[], bool],
        console: Callable[[str | None], Pages] | None = None,
        shared: Shared | None = None,
    ) -> None:
        host, port = settings.http_host, settings.http_port or 0
        self._healthy = healthy
        token = None if settings.http_token_file is None else _token(settings.http_token_file)
        # The path with a slash is where earlier versions redirected to: scrapers may have it in their configuration.
        self._shared = shared
        page = _Metrics(token, None if shared is None else shared.refresh)
        metrics = [Route(path, page, methods=["GET"]) for path in ("/metrics", "/metrics/")]
        self._console = None if console is None else console(token)
        index = Route("/", _index) if self._console is None else Mount("/", self._console)
        routes = [Route("/healthz", self._health), *metrics, index]
        config = uvicorn.Config(
            Starlette(routes=routes),
            host,
            port,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            loop="none",
        )
        config.load()  # before `ssl` is set: it sets that as well, and the server calls it unless it was called
        if settings.http_ssl_keystore_location is not None:
            config.ssl = server_pair(settings.http_ssl_keystore_location, "http_ssl_keystore_location")
        self._server = _Server(config)
        self._host, self.port = host, port
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listens; KetchError where the port can't be had."""
        loop = asyncio.get_running_loop()
        listener = _bind(self._host, self.port)
        self.port = listener.getsockname()[1]
        self._task = loop.create_task(self._server.serve(sockets=[listener]))
        if self._shared is not None:
            self._shared.open()

    async def stop(self) -> None:
        """Finishes the responses under way; closes connections that have not read theirs within a second."""
        if self._task is None:
            return
        if self._console is not None:
            self._console.close()
        if self._shared is not None:
            self._shared.close()
        self._server.should_exit = True
        await asyncio.wait([self._task], timeout=_PATIENCE_S)
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        self._server.force_exit = True
        await self._task

    async def _health(self, _: Request) -> Response:
        if self._healthy():
            return PlainTextResponse("ok\n")
        return PlainTextResponse("Redis is gone\n", status_code=503)


class _Metrics:
    """The page for Prometheus, as an object: Starlette takes a plain function for one that makes a response.

    Args:
        refresh: brings what the page shows up to date.
    """

    def __init__(self, token: str | None, refresh: Callable[[], Awaitable[None]] | None) -> None:
        self._refresh = refresh
        self._wanted = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._wanted is not None and not hmac.compare_digest(self._wanted, _authorization(scope)):
            refusal = PlainTextResponse("a token is wanted\n", 401, headers={"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, send)
            return
        request = Request(scope, receive)
        names = request.query_params.getlist("name[]")
        if self._refresh is not None and not (names and _COUNTED_HERE.issuperset(names)):
            await self._refresh()
        # Text of many thousand series takes a tenth of a second and more: meanwhile the loop goes on.
        page = await asyncio.to_thread(_page, request.headers, names)
        await page(scope, receive, send)


def _page(headers: Headers, names: list[str]) -> Response:
    """All metrics, or those with these names, in the format that the headers ask for."""
    encoder, content_type = choose_encoder(headers.get("accept", ""))
    registry = REGISTRY.restricted_registry(names) if names else REGISTRY
    body, more = encoder(registry), {"Content-Type": content_type}
    if gzip_accepted(headers.get("accept-encoding", "")):
        body, more = gzip.compress(body, _GZIP_LEVEL), {**more, "Content-Encoding": "gzip"}
    return Response(body, headers=more)


def _authorization(scope: Scope) -> bytes:
    return next((bytes(value) for name, value in scope["headers"] if name == b"authorization"), b"")


def _token(path: Path) -> str:
    """The file's one line; ConfigError where there is none."""
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"http_token_file {path} cannot be read: {reason(error)}.") from None
    except UnicodeDecodeError:
        token = ""
    if not token.isascii() or len(token.split()) != 1:
        raise ConfigError(f"http_token_file {path} should have one line, the token.")
    return token


async def _index(_: Request) -> Response:
    return PlainTextResponse(f"ketch {ketch.__version__}\n\n/metrics  for Prometheus\n/healthz  ok, or 503\n")


def _bind(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise KetchError(
            f"Cannot listen on {host}:{port} for HTTP: {reason(error)}; --http-port chooses another."
        ) from None
