"""Connections of 0.7 clients that stop in the middle: of sending a request, or of taking a response."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ketch.configs.settings import Settings
from ketch.connections.budget import Budget
from ketch.connections.room import ResponseRoom
from ketch.legacy07 import listener
from ketch.legacy07.listener import LegacyListener
from ketch.log.log import Log
from ketch.redis.links import links
from ketch.redis.url import RedisAddress
from tests.legacy07.conftest import legacy_port
from tests.support.ketch import KetchServer, eventually
from tests.support.legacy07 import Legacy, fetch, message, produce

_REQUEST = produce("topic", 0, message(b"a"))


def _host() -> Any:
    """What of a broker is touched before a request has come in whole."""
    settings = Settings(redis="redis://127.0.0.1:1")
    nothing = SimpleNamespace()
    return SimpleNamespace(
        settings=settings,
        log=Log(settings, links(RedisAddress.of(settings), 1)),  # never connected
        cluster=nothing,
        topic_notes=nothing,
        budget=Budget(1 << 20),
        responses=ResponseRoom(),
        allows_anonymous=lambda host: None,
    )


def test_a_request_that_stops_coming_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "_STALLED_S", 0.2)
    caplog.set_level(logging.INFO, logger=listener.__name__)
    asyncio.run(_stop_in_the_middle(caplog))


async def _stop_in_the_middle(caplog: pytest.LogCaptureFixture) -> None:
    host = _host()
    legacy = LegacyListener(host, 0)
    await legacy.start()
    try:
        with Legacy(legacy.port) as idle, Legacy(legacy.port) as half:
            name, port = half.socket.getsockname()
            half.send(_REQUEST[:-1])
            assert await asyncio.to_thread(half.closed)
            (line,) = [each.getMessage() for each in caplog.records if "closed after" in each.getMessage()]
            assert line.startswith(f"{name}:{port} (Kafka 0.7): ")
            assert line.endswith("with half a request")
            assert host.budget.used == 0
            idle.socket.setblocking(False)
            with pytest.raises(BlockingIOError):  # silent for longer, but in the middle of nothing: it stays
                idle.socket.recv(1)
    finally:
        await legacy.drain()


def test_a_response_that_is_not_read_is_given_up(tmp_path: Path) -> None:
    server = KetchServer(tmp_path, "--legacy-port", "0", "--connections-max-idle-ms", "400").start()
    try:
        with Legacy(legacy_port(server)) as client, Legacy(legacy_port(server)) as other:
            large = message(bytes(500_000), magic=0)
            other.send(*[produce("topic", 0, large)] * 10)
            (start,) = other.positions("topic", 0, -2)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
            client.send(*[fetch("topic", 0, start, 4 << 20)] * 20)  # 80 MB, and nothing is taken of it
            name, port = client.socket.getsockname()
            eventually(lambda: f"{name}:{port} (Kafka 0.7): closed after" in server.log)
            (line,) = (line for line in server.log.splitlines() if "closed after" in line)
            assert line.endswith("with a response that is not read")
            assert other.call(fetch("topic", 0, start, len(large))) == (0, large)  # idle for as long, but not closed
    finally:
        assert server.stop() == 0, server.log
