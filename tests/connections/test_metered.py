"""A connection that is not to be read from for some time, on the event loop that brokers have."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from ketch.configs.settings import Settings
from ketch.connections.budget import Budget
from ketch.connections.metered import MeteredConnection
from ketch.connections.room import ResponseRoom


class Counting(MeteredConnection):
    """Serves nothing, and knows how many frames have come."""

    frames = 0

    async def _work(self) -> None:
        self.frames += len(self._requests)
        self._requests.clear()
        self._worker = None


@pytest.mark.parametrize("waits", [(0.0001, 0.0001), (0.0001, 0.05), (0.05, 0.0001), (0.0, 0.0)])
def test_waits_of_less_than_a_millisecond(waits: tuple[float, float]) -> None:
    """uvloop's handle of what is due now does not know when that is."""
    uvloop.run(_muted_twice(waits))


async def _muted_twice(waits: tuple[float, float]) -> None:
    host: Any = SimpleNamespace(settings=Settings(), budget=Budget(1 << 20), responses=ResponseRoom())
    made: list[Counting] = []

    def connection() -> Counting:
        made.append(Counting(host))
        return made[-1]

    loop = asyncio.get_running_loop()
    server = await loop.create_server(connection, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        async with asyncio.timeout(10):
            while not made or made[0].peer == "?":
                await asyncio.sleep(0)
            begin = loop.time()
            for seconds in waits:
                made[0]._mute(seconds)
            writer.write(b"\0\0\0\1x")
            while not made[0].frames:
                await asyncio.sleep(0.001)
        assert loop.time() - begin >= max(waits) - 0.002  # uvloop's clock has milliseconds
    finally:
        writer.close()
        server.close()
