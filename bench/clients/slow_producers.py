"""Many connections that each send a record of 100 bytes once a second; "ready" when all have been answered once.

Argument: JSON with `server`, `topic`, `count`. Ends when stdin closes, with 1 where a record was refused.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import cast

import uvloop
from frames import produce, produce_error

_PATIENCE = 60.0
_PERIOD = 1.0  # seconds between two records of a connection


class _Producer(asyncio.Protocol):
    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._received = b""
        self._transport: asyncio.Transport
        self.answers = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            size = 4 + int.from_bytes(self._received[:4])
            if len(self._received) < size:
                return
            if error := produce_error(self._topic, self._received[4:size]):
                sys.exit(f"error code {error}")
            self._received = self._received[size:]
            self.answers += 1

    def send(self, frame: bytes) -> None:
        self._transport.write(frame)


async def main() -> None:
    options = json.loads(sys.argv[1])
    host, _, port = options["server"].rpartition(":")
    loop, frame = asyncio.get_running_loop(), produce(options["topic"], b"v" * 100)
    made = [
        (await loop.create_connection(lambda: _Producer(options["topic"]), host, int(port)))[1]
        for _ in range(options["count"])
    ]
    sending = asyncio.create_task(_send(made, frame))
    async with asyncio.timeout(_PATIENCE):
        while any(not one.answers for one in made):
            await asyncio.sleep(0.05)
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    sending.cancel()


async def _send(made: list[_Producer], frame: bytes) -> None:
    """Sends a record on each connection in turn, evenly over the period."""
    loop = asyncio.get_running_loop()
    begin, sent = loop.time(), 0
    while True:
        due = int((loop.time() - begin) / _PERIOD * len(made))
        while sent < due:
            made[sent % len(made)].send(frame)
            sent += 1
        await asyncio.sleep(0.002)


if __name__ == "__main__":
    uvloop.run(main())
