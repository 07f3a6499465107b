"""Waits until what was appended has copies: acks=all under a `min.insync.replicas` of more than 1.

It owns a connection of its own, made when the first topic wants copies, since WAIT holds up what comes behind it. All
appends to streams of one node that wait at the same time are vouched for by one WAIT: an append that has its answer is
older than the WAIT's write, see `store.append.copies`. It knows nothing of batches and may not touch what is stored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable
from dataclasses import dataclass

from ketch.errors import KetchError, NotEnoughReplicas, NotEnoughReplicasAfterAppend, StorageUnavailable
from ketch.redis.driver import Connect, OwnedDriver
from ketch.redis.resp import checked, parse
from ketch.store.append import copies
from ketch.store.keys import Keyspace
from ketch.tasks import lasting

_SLICE_MS = 200  # one WAIT; what is added meanwhile waits for the next one
_KNOWN_S = 1.0  # how long a number of replicas is believed


@dataclass(slots=True, eq=False)
class _Waiting:
    """An append that waits. `until`: seconds of the monotonic clock."""

    until: float
    done: asyncio.Future[None]


class Copies:
    """Copies of what the streams hold.

    Args:
        connect: makes the driver.
    """

    def __init__(self, connect: Connect, keys: Keyspace) -> None:
        self._connect, self._keys = connect, keys
        self._driver: asyncio.Task[OwnedDriver] | None = None
        self._waiting: dict[tuple[Hashable, int], list[_Waiting]] = {}  # by node and number of copies
        self._known: dict[Hashable, tuple[float, int]] = {}  # by node: when it was asked, and its replicas

    async def require(self, stream: bytes, wanted: int) -> None:
        """Returns where the stream's node has replicas enough for so many copies, its own counted.

        Raises:
            NotEnoughReplicas: fewer replicas follow it.
            StorageUnavailable: Redis is gone.
        """
        driver = await self._driven()
        node, now = driver.node(stream), time.monotonic()
        since, found = self._known.get(node, (-_KNOWN_S, 0))
        if now - since >= _KNOWN_S or found < wanted - 1:
            found = await driver.ask(copies.replicas(stream))
            self._known[node] = now, found
        if found < wanted - 1:
            raise NotEnoughReplicas(f"{found + 1} of the {wanted} copies that min.insync.replicas wants can be made")

    async def made(self, stream: bytes, offset: asyncio.Future[int], wanted: int, until: float) -> int:
        """The offset of an append, once so many nodes have it, the stream's own counted.

        Args:
            until: seconds of the monotonic clock.

        Raises:
            NotEnoughReplicasAfterAppend: they had it not in time.
            StorageUnavailable: Redis is gone, and whatever the append raises.
        """
        base = await offset
        driver = await self._driven()
        each = _Waiting(until, asyncio.get_running_loop().create_future())
        place = driver.node(stream), wanted
        if place in self._waiting:
            self._waiting[place].append(each)
        else:
            self._waiting[place] = [each]
            lasting(self._wait(driver, stream, place))
        await each.done
        return base

    async def stop(self) -> None:
        if self._driver is not None:
            self._driver.cancel()
            for driver in await asyncio.gather(self._driver, return_exceptions=True):
                if not isinstance(driver, BaseException):
                    await driver.stop()

    async def _driven(self) -> OwnedDriver:
        if self._driver is None or (self._driver.done() and self._driver.exception() is not None):
            self._driver = lasting(self._start())
        return await asyncio.shield(self._driver)

    async def _start(self) -> OwnedDriver:
        driver = self._connect("copies")
        await driver.start()
        return driver

    async def _wait(self, driver: OwnedDriver, stream: bytes, place: tuple[Hashable, int]) -> None:
        """One WAIT after the other, while anybody waits."""
        replicas = place[1] - 1
        while self._waiting[place]:
            asked, self._waiting[place] = self._waiting[place], []
            try:
                least = min(each.until for each in asked) - time.monotonic()
                slice_ms = max(1, min(_SLICE_MS, int(least * 1000)))
                found = checked(parse(await driver.send(copies.wait(self._keys, stream, replicas, slice_ms))))
            except KetchError as error:
                _fail(asked, StorageUnavailable(f"whether replicas have the records is not known: {error}"))
                continue
            if found >= replicas:
                _succeed(asked)
            else:
                now = time.monotonic()
                late = [each for each in asked if each.until <= now]
                _fail(late, NotEnoughReplicasAfterAppend(f"{found + 1} of {place[1]} copies were made in time"))
                self._waiting[place] += [each for each in asked if each.until > now]
        del self._waiting[place]


def _succeed(asked: list[_Waiting]) -> None:
    for each in asked:
        if not each.done.done():
            each.done.set_result(None)


def _fail(asked: list[_Waiting], error: KetchError) -> None:
    for each in asked:
        if not each.done.done():
            each.done.set_exception(error.with_traceback(None))
