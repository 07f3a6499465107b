"""`--http-port`: /metrics for Prometheus, /healthz for supervisors that restart brokers, and /, which lists both.

Each page answers GET and HEAD at its own path, without a redirect: `curl` and many scrapers do not follow one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

import uvicorn
from prometheus_client import make_asgi_app
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

import ketch
from ketch.errors import KetchError, reason

_PATIENCE_S = 1.0


class _Server(uvicorn.Server):
    """uvicorn inside the broker's loop: signals are the broker's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpPort:
    """The HTTP side of one broker.

    Args:
        healthy: whether Redis is connected, for writing and for reading.
    """

    def __init__(self, host: str, port: int, healthy: Callable[[], bool]) -> None:
        self._healthy = healthy
        # The path with a slash is where earlier versions redirected to: scrapers may have it in their configuration.
        metrics = [Route(path, _Metrics(), methods=["GET"]) for path in ("/metrics", "/metrics/")]
        routes = [Route("/", _index), Route("/healthz", self._health), *metrics]
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
        self._server = _Server(config)
        self._host, self.port = host, port
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listens; KetchError where the port can't be had."""
        loop = asyncio.get_running_loop()
        listener = _bind(self._host, self.port)
        self.port = listener.getsockname()[1]
        self._task = loop.create_task(self._server.serve(sockets=[listener]))

    async def stop(self) -> None:
        """Finishes the responses under way; closes connections that have not read theirs within a second."""
        if self._task is None:
            return
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
    """prometheus_client's page, as an object: Starlette takes a plain function for one that makes a response."""

    def __init__(self) -> None:
        self._page = make_asgi_app()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._page(scope, receive, send)


async def _index(_: Request) -> Response:
    return PlainTextResponse(f"ketch {ketch.__version__}\n\n/metrics  for Prometheus\n/healthz  ok, or 503\n")


def _bind(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise KetchError(
            f"Cannot listen on {host}:{port} for HTTP: {reason(error)}; --http-port chooses another."
        ) from None
