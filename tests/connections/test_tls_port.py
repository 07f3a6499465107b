"""A port with TLS in this process: what it says of itself in the log."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from ketch import complaints
from ketch.configs.settings import Settings
from ketch.connections import tls
from ketch.security.tls import Credentials
from tests.support.certificates import Certificates


def test_each_crowd_of_unfinished_handshakes_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than a minute lies between the two."""
    monkeypatch.setattr(complaints, "_EVERY_S", 0.0)
    monkeypatch.setattr(tls, "_HANDSHAKES_MAX", 2)
    monkeypatch.setattr(tls, "_ROOM_AFTER_S", 0.0)
    credentials = Credentials(Settings(ssl_keystore_location=Certificates(tmp_path).broker()), "SSL")
    asyncio.run(_crowd_twice(tls.TlsPort("SSL", credentials, asyncio.Protocol)))
    said = "listener SSL: 2 handshakes of TLS are under way: the oldest makes room"
    assert [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING] == [said] * 2


async def _crowd_twice(port: tls.TlsPort) -> None:
    port.start("127.0.0.1", 0, 100)
    for _ in range(2):
        with ExitStack() as sockets:
            clients = [sockets.enter_context(socket.create_connection(("127.0.0.1", port.port), 5)) for _ in range(3)]
            clients[0].setblocking(False)
            async with asyncio.timeout(10):
                assert await asyncio.get_running_loop().sock_recv(clients[0], 1) == b""
        async with asyncio.timeout(10):
            while port._handshakes:
                await asyncio.sleep(0.01)
    port.close()
