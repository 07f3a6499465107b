"""Waits until what was appended has copies: acks=all under a `min.insync.replicas` of more than 1.

It owns a connection of its own, made when the first topic wants copies, since WAIT holds up what comes behind it. All
appends to streams of one node that wait at the same time are vouched for by one WAIT: an append that has its answer is
older than the WAIT's write, see `store.append.copies`. It knows nothing of batches and may not touch what is stored.

A WAIT counts for an append where the same master has answered both. So the replication id is asked for before the
append (`require`) and with the WAIT, and both connections must lead to the same node when the append has its answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable
from dataclasses import dataclass

from ketch.errors import KetchError, NotEnoughReplicas, NotEnoughReplicasAfterAppend, StorageUnavailable
from ketch.redis.driver import Connect, Driver, OwnedDriver
from ketch.store.append import copies
from ketch.store.append.copies import Replication
from ketch.store.keys import Keyspace
from ketch.tasks import lasting

_SLICE_MS = 200  # one WAIT; what is added meanwhile waits for the next one
_KNOWN_S = 1.0  # how long a number of replicas is believed
_SPARE_S = 0.1  # what is left of a request's time to say that there were too few copies
_MOVED = "another node has become the master meanwhile, and may lack the records"


@dataclass(slots=True, eq=False)
class _Waiting:
    """An append that waits.

    Attributes:
        master: the replication id that its node must have.
        until: seconds of the monotonic clock.
    """

    stream: bytes
    master: bytes
    until: float
    done: asyncio.Future[None]


class Copies:
    """Copies of what the streams hold.

    Args:
        connect: makes the driver.
        appends: the driver of the appends.
    """

    def __init__(self, connect: Connect, keys: Keyspace, appends: Driver) -> None:
        self._connect, self._keys, self._appends = connect, keys, appends
        self._driver: asyncio.Task[OwnedDriver] | None = None
        self._waiting: dict[tuple[Hashable, int], list[_Waiting]] = {}  # by node and number of copies
        self._known: dict[Hashable, tuple[float, Replication]] = {}  # by node, and when it was asked

    async def require(self, stream: bytes, wanted: int) -> bytes:
        """The replication id of the stream's node, where it has replicas enough for so many copies, its own counted.

        Raises:
            NotEnoughReplicas: fewer replicas follow it.
            StorageUnavailable: Redis is gone.
        """
        driver = await self._driven()
        node, now = driver.node(stream), time.monotonic()
        since, found = self._known.get(node, (-_KNOWN_S, None))
        if found is None or now - since >= _KNOWN_S or found.replicas < wanted - 1:
            found = await driver.ask(copies.replication(stream))
            self._known[node] = now, found
        if found.replicas < wanted - 1:
            made = found.replicas + 1
            raise NotEnoughReplicas(f"{made} of the {wanted} copies that min.insync.replicas wants can be made")
        return found.id

    async def made(
        self, stream: bytes, offset: asyncio.Future[int], wanted: int, master: bytes, until: float
    ) -> int:
        """The offset of an append, once so many nodes have it, the stream's own counted.

        Args:
            master: what `require` said before the append.
            until: seconds of the monotonic clock.

        Raises:
            NotEnoughReplicasAfterAppend: they had it not in time.
            StorageUnavailable: Redis is gone, and whatever the append raises.
        """
        base = await offset
        node, driver = self._appends.node(stream), await self._driven()
        if driver.node(stream) != node:
            raise NotEnoughReplicasAfterAppend(_MOVED)
        each = _Waiting(stream, master, until - _SPARE_S, asyncio.get_running_loop().create_future())
        place = node, wanted
        if place in self._waiting:
            self._waiting[place].append(each)
        else:
            self._waiting[place] = [each]
            lasting(self._wait(driver, place))
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

    async def _wait(self, driver: OwnedDriver, place: tuple[Hashable, int]) -> None:
        """One WAIT after the other, while anybody waits."""
        while self._waiting[place]:
            asked, self._waiting[place] = self._waiting[place], []
            self._waiting[place] = [*await self._wait_once(driver, place, asked), *self._waiting[place]]
        del self._waiting[place]

    async def _wait_once(
        self, driver: OwnedDriver, place: tuple[Hashable, int], asked: list[_Waiting]
    ) -> list[_Waiting]:
        """One WAIT for all of these; those that have time to wait for another one.

        It is behind a write in the slot of the stream that came last: the slots of earlier ones may have moved on.
        """
        node, wanted = place
        left_ms = int((min(each.until for each in asked) - time.monotonic()) * 1000)
        slice_ms = max(1, min(_SLICE_MS, left_ms))
        try:
            found = await driver.ask(copies.made(self._keys, asked[-1].stream, wanted - 1, slice_ms))
        except KetchError as error:
            _fail(asked, StorageUnavailable(f"whether replicas have the records is not known: {error}"))
            return []
        others = [each for each in asked if each.master != found.id]
        if others:
            self._known.pop(node, None)
            _fail(others, NotEnoughReplicasAfterAppend(_MOVED))
        asked = [each for each in asked if each.master == found.id]
        if found.replicas >= wanted - 1:
            _succeed(asked)
            return []
        now, made = time.monotonic(), found.replicas + 1
        _fail(
            [each for each in asked if each.until <= now],
            NotEnoughReplicasAfterAppend(f"{made} of {wanted} copies were made in time"),
        )
        return [each for each in asked if each.until > now]


def _succeed(asked: list[_Waiting]) -> None:
    for each in asked:
        if not each.done.done():
            each.done.set_result(None)


def _fail(asked: list[_Waiting], error: KetchError) -> None:
    for each in asked:
        if not each.done.done():
            each.done.set_exception(error.with_traceback(None))
