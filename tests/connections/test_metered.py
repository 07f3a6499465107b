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


def receive(connection: MeteredConnection, data: bytes) -> None:
    """As the event loop: has the connection say where the bytes go, and puts there what fits."""
    rest = memoryview(data)
    while rest:
        with memoryview(connection.get_buffer(-1)) as room:
            part = rest[: len(room)]
            room[: len(part)] = part
        connection.buffer_updated(len(part))
        rest = rest[len(part) :]


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
    receive(connection, b"\0\0\0\1x" * 10_000)
    assert wire.reading
    assert budget.used == 100_001


def test_two_connections_that_read_by_turns() -> None:
    """They read to the same place, but for the rest of a large request."""
    budget, made = Budget(1 << 20), list[Keeping]()
    for _ in range(2):
        made.append(Keeping(SimpleNamespace(settings=Settings(), budget=budget, responses=ResponseRoom())))  # type: ignore[arg-type]
        made[-1].connection_made(Wire())
    frames = [[bytes([n + k]) * size for k, size in enumerate((3, 100_000, 5, 70_000))] for n in (1, 7)]
    streams = [b"".join(len(frame).to_bytes(4) + frame for frame in of) for of in frames]
    for at in range(0, len(streams[0]), 9001):
        for connection, stream in zip(made, streams, strict=True):
            receive(connection, stream[at : at + 9001])
    assert [connection.kept for connection in made] == frames
    assert budget.used == 0


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
