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


class Prompt(MeteredConnection):
    """Answers each request as soon as it has come in, as the lane does."""

    def _receive(self, data: bytes, now: float, serve: object = None) -> None:
        super()._receive(data, now, lambda frame, _: self._answered(len(frame) + 4))

    def _answered(self, size: int) -> bool:
        self._release(size)
        return True


class Wire(asyncio.Transport):
    """A transport that knows whether it is read from."""

    reading = True
    protocol: asyncio.BaseProtocol | None = None

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self.reading = False


class Keeping(MeteredConnection):
    """Keeps the requests that have come in."""

    def __init__(self, host: Any) -> None:
        super().__init__(host)
        self.kept: list[bytes] = []

    def _start_work(self) -> None:
        for _, frame in self._requests:
            assert isinstance(frame, bytes)
            self.kept.append(frame)
            self._release(len(frame) + 4)
        self._requests.clear()


def receive(connection: MeteredConnection, wire: Wire, data: bytes) -> None:
    """As the event loop: gives the bytes to the protocol there is, a buffered one as many as it has room for."""
    rest = memoryview(data)
    while rest:
        size = len(rest)
        if isinstance(wire.protocol, asyncio.BufferedProtocol):
            with memoryview(wire.protocol.get_buffer(-1)) as room:
                size = min(size, len(room))
                room[:size] = rest[:size]
            wire.protocol.buffer_updated(size)
        else:
            connection.data_received(bytes(rest))
        rest = rest[size:]


class Another:
    """A connection that the budget favours."""

    def resume(self) -> None:
        pass


def test_what_is_answered_at_once_does_not_stop_a_connection_over_the_budget() -> None:
    budget = Budget(100_000)
    assert budget.take(Another(), 100_001, 100_001)
    connection = Prompt(SimpleNamespace(settings=Settings(), budget=budget, responses=ResponseRoom()))  # type: ignore[arg-type]
    wire = Wire()
    connection.connection_made(wire)
    connection.data_received(b"\0\0\0\1x" * 10_000)
    assert wire.reading
    assert budget.used == 100_001


def test_a_large_request_is_read_to_where_it_stays() -> None:
    budget = Budget(1 << 20)
    connection = Keeping(SimpleNamespace(settings=Settings(), budget=budget, responses=ResponseRoom()))
    wire = Wire()
    connection.connection_made(wire)
    frames = [bytes([n]) * size for n, size in enumerate((3, 100_000, 5, 70_000, 40_000))]
    stream = b"".join(len(frame).to_bytes(4) + frame for frame in frames)
    kinds = set()
    for at in range(0, len(stream), 9001):
        receive(connection, wire, stream[at : at + 9001])
        kinds.add(type(wire.protocol))
    assert connection.kept == frames
    assert budget.used == 0
    assert len(kinds) == 2
    assert wire.protocol is connection


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
