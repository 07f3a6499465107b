"""Clients that a broker should not let in: "ready" when each has tried once; then each tries again every second.

A third of them begin a handshake of TLS and send no more until they are sent away. A third send rubbish. A third log in
by SCRAM with a wrong password. Argument: JSON with `tls` and `plain`, the addresses of the broker's listeners with SASL
and TLS and with SASL alone, and `count`. Ends when stdin closes, with 1 where one of them was let in.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import ssl
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import uvloop
from frames import sasl_answer, sasl_authenticate, sasl_handshake

_PERIOD = 1.0  # seconds between two attempts of a client
_AT_ONCE = 50  # connections that are made at the beginning
_PATIENCE = 120.0
_MECHANISM = "SCRAM-SHA-256"
_CONTEXT = ssl.create_default_context()

Kind = Callable[[asyncio.StreamReader, asyncio.StreamWriter, Callable[[], None]], Awaitable[None]]


async def main() -> None:
    options = json.loads(sys.argv[1])
    kinds = ((_half_open, options["tls"]), (_rubbish, options["plain"]), (_wrong_password, options["plain"]))
    room, loop = asyncio.Semaphore(_AT_ONCE), asyncio.get_running_loop()
    tried = [loop.create_future() for _ in range(options["count"])]
    clients = [
        asyncio.create_task(_try_again_and_again(*kinds[n % 3], n / len(tried), room, first))
        for n, first in enumerate(tried)
    ]
    async with asyncio.timeout(_PATIENCE):
        await asyncio.gather(*tried)
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    for client in clients:
        client.cancel()


async def _try_again_and_again(
    kind: Kind, address: str, phase: float, room: asyncio.Semaphore, first: asyncio.Future[None]
) -> None:
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    await asyncio.sleep(phase * _PERIOD)  # they come evenly over the period
    while True:
        begun = loop.time()
        with suppress(OSError, asyncio.IncompleteReadError):
            async with room:
                reader, writer = await asyncio.open_connection(host, int(port))
            try:
                await kind(reader, writer, partial(_done, first))
            finally:
                writer.close()
        _done(first)
        await asyncio.sleep(max(0.0, begun + _PERIOD - loop.time()))


def _done(first: asyncio.Future[None]) -> None:
    if not first.done():
        first.set_result(None)


async def _half_open(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, done: Callable[[], None]) -> None:
    hello = _client_hello()
    writer.write(hello[: len(hello) // 2])
    done()
    await reader.read()


async def _rubbish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, done: Callable[[], None]) -> None:
    writer.write(random.randbytes(64))
    await reader.read()


async def _wrong_password(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, done: Callable[[], None]) -> None:
    async def ask(frame: bytes) -> bytes:
        writer.write(frame)
        return await reader.readexactly(int.from_bytes(await reader.readexactly(4)))

    await ask(sasl_handshake(_MECHANISM))
    code, challenge = sasl_answer(await ask(sasl_authenticate(b"n,,n=bench,r=nonce")))
    if not code:
        nonce = challenge.partition(b",")[0]
        proof = base64.b64encode(bytes(32))
        code, _ = sasl_answer(await ask(sasl_authenticate(b"c=biws,%b,p=%b" % (nonce, proof))))
    if not code:
        sys.exit("a wrong password was right")
    await reader.read()


def _client_hello() -> bytes:
    """What a client of TLS sends first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        _CONTEXT.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


if __name__ == "__main__":
    uvloop.run(main())
