"""Waits until what was written has copies, and what readers are given, too.

Where the `min.insync.replicas` of a topic is more than 1, appends with acks=all wait, the markers of transactions, and
readers (`log.bounds`), which want copies in memory alone. Where that of the brokers is more than 1, commits wait,
producer ids, and what is decided of transactions.

It owns a connection of its own, made when the first copies are wanted, since WAIT holds up what comes behind it. All
writes to one node that wait at the same time are vouched for by one WAIT: a write that has its answer is older than the
WAIT's write, see `store.append.copies`. Writes that come meanwhile wait for the next one. It knows nothing of batches
and may not touch what is stored.

Each WAIT is behind a write of its own, so one that ends too soon has vouched for nothing, and the next one asks for
more than it did. So a WAIT lasts for as long as the connection may be silent, whoever runs out of time meanwhile.
Else a replica that is steadily behind by more, or a disk that syncs more slowly, would never be seen to have it.

A WAIT counts for a write where the same master has answered both. So the replication id is asked for before the write
(`require`) and with the WAIT, and both connections must lead to the same node when the write has its answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ketch.errors import (
    KetchError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    RedisError,
    StorageUnavailable,
)
from ketch.log.followers import Followers
from ketch.redis.driver import Connect, Driver, OwnedDriver
from ketch.store.append import copies
from ketch.store.append.copies import Made
from ketch.store.keys import Keyspace
from ketch.tasks import lasting

T = TypeVar("T")

_TICK_S = 0.05  # between two looks at who has run out of time
_SPARE_S = 0.1  # what is left of a request's time to say that there were too few copies
_LONGEST_S = 5.0  # for what no client gave a time (Kafka's offsets.commit.timeout.ms)
_MOVED = "another node has become the master meanwhile, and may lack the records"


@dataclass(slots=True, eq=False)
class _Waiting:
    """A write or read that waits.

    Attributes:
        key: one that was written or read.
        master: the replication id that its node must have.
        until: seconds of the monotonic clock.
    """

    key: bytes
    master: bytes
    until: float
    done: asyncio.Future[None]


class _Place(NamedTuple):
    """What one WAIT vouches for: so many copies of what a node has taken, in memory or on disk."""

    node: Hashable
    wanted: int
    on_disk: bool


class Copies:
    """Copies of what Redis has taken.

    Args:
        connect: makes the driver.
        followers: the replicas of each node.
        timeout_ms: the longest that Redis may be silent.
        on_disk: a copy counts once it is synced to a disk, that of the key's own node too.
    """

    def __init__(self, connect: Connect, keys: Keyspace, followers: Followers, timeout_ms: int, on_disk: bool) -> None:
        self._connect, self._keys, self._followers = connect, keys, followers
        self._slice_ms, self._on_disk = max(1, timeout_ms // 2), on_disk
        self._able: set[bytes] = set()  # replication ids of nodes whose disks can be waited for
        self._driver: asyncio.Task[OwnedDriver] | None = None
        self._waiting: dict[_Place, list[_Waiting]] = {}

    async def require(self, key: bytes, wanted: int, in_memory: bool = False) -> bytes:
        """The replication id of the key's node, where it has replicas enough for so many copies, its own counted.

        Args:
            in_memory: a copy need not be synced, whatever is configured.

        Raises:
            NotEnoughReplicas: fewer replicas are in sync with it, or its disk cannot be waited for.
            StorageUnavailable: Redis is gone.
        """
        driver = await self._driven()
        found = await self._followers.at(key, wanted - 1)
        if found.in_sync < wanted - 1:
            made = found.in_sync + 1
            raise NotEnoughReplicas(f"{made} of the {wanted} copies that min.insync.replicas wants can be made")
        if self._on_disk and not in_memory and found.id not in self._able:
            try:
                await driver.ask(copies.disks_can_be_waited_for(key))
            except RedisError as error:
                raise NotEnoughReplicas(f"copies on disk cannot be waited for: {error}") from None
            self._able.add(found.id)
        return found.id

    async def appended(
        self, appends: Driver, stream: bytes, offset: asyncio.Future[int], wanted: int, master: bytes, until: float
    ) -> int:
        """The offset of an append, once it has the copies. For arguments and errors see `made`."""
        base = await offset
        try:
            await self.made(appends, stream, wanted, master, until)
        except StorageUnavailable as error:
            # The batch is stored. KAFKA_STORAGE_ERROR would tell librdkafka that it is not: when that has to raise its
            # epoch for another batch, it sends this one again under the new one, which is no duplicate.
            raise NotEnoughReplicasAfterAppend(str(error)) from None
        return base

    async def made(
        self, writer: Driver, key: bytes, wanted: int, master: bytes, until: float, in_memory: bool = False
    ) -> None:
        """Waits until so many nodes have what was written to a key, or read of it, the key's own counted.

        Args:
            writer: the driver by which it was written or read.
            master: what `require` said before.
            until: seconds of the monotonic clock.
            in_memory: as of `require`.

        Raises:
            NotEnoughReplicasAfterAppend: they had it not in time, or Redis is gone.
            StorageUnavailable: Redis was gone before it could be asked.
        """
        node, driver = writer.node(key), await self._driven()
        if driver.node(key) != node:
            raise NotEnoughReplicasAfterAppend(_MOVED)
        each = _Waiting(key, master, until - _SPARE_S, asyncio.get_running_loop().create_future())
        place = _Place(node, wanted, self._on_disk and not in_memory)
        if place in self._waiting:
            self._waiting[place].append(each)
        else:
            self._waiting[place] = [each]
            lasting(self._wait(driver, place))
        await each.done

    async def copied(
        self,
        driver: Driver,
        keys: Sequence[bytes],
        wanted: int,
        ask: Callable[[], Awaitable[T]],
        longest_s: float = _LONGEST_S,
        in_memory: bool = False,
    ) -> T:
        """The answer of a write or a read, once so many nodes have what it wrote or found.

        Args:
            driver: by which it asks.
            keys: that are written or read.
            longest_s: how long it waits for copies.
            in_memory: as of `require`.

        Raises:
            NotEnoughReplicas: nothing was asked.
            NotEnoughReplicasAfterAppend, StorageUnavailable: as `made`, and whatever `ask` raises.
        """
        masters = [(key, await self.require(key, wanted, in_memory)) for key in keys]
        nodes = [driver.node(key) for key in keys]
        answer = await ask()
        if nodes != [driver.node(key) for key in keys]:
            raise NotEnoughReplicasAfterAppend(_MOVED)
        until = time.monotonic() + longest_s
        await asyncio.gather(*(self.made(driver, key, wanted, master, until, in_memory) for key, master in masters))
        return answer

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

    async def _wait(self, driver: OwnedDriver, place: _Place) -> None:
        """One WAIT after the other, while anybody waits."""
        while self._waiting[place]:
            asked = [each for each in self._waiting[place] if not each.done.done()]
            self._waiting[place] = []
            if asked:
                self._waiting[place] = [*await self._wait_once(driver, place, asked), *self._waiting[place]]
        del self._waiting[place]

    async def _wait_once(self, driver: OwnedDriver, place: _Place, asked: list[_Waiting]) -> list[_Waiting]:
        """One WAIT for all of these; those that have time to wait for another one.

        It is behind a write in the slot of the key that came last: the slots of earlier ones may have moved on.
        """
        node, wanted, on_disk = place
        question = copies.made(self._keys, asked[-1].key, wanted, self._slice_ms, on_disk)
        try:
            found = await self._while_time_runs(place, asked, lasting(driver.ask(question)))
        except KetchError as error:
            _fail(asked, NotEnoughReplicasAfterAppend(f"whether replicas have the records is not known: {error}"))
            return []
        others = [each for each in asked if each.master != found.id]
        if others:
            self._followers.forget(node)
            _fail(others, NotEnoughReplicasAfterAppend(_MOVED))
        asked = [each for each in asked if each.master == found.id]
        if found.copies >= wanted:
            _succeed(asked)
            return []
        return [each for each in asked if not each.done.done()]

    async def _while_time_runs(self, place: _Place, asked: list[_Waiting], made: asyncio.Task[Made]) -> Made:
        """The answer; meanwhile those are told that run out of time, also of those that wait for the next WAIT."""
        while not (await asyncio.wait([made], timeout=_TICK_S))[0]:
            now = time.monotonic()
            late = [each for each in (*asked, *self._waiting[place]) if each.until <= now]
            _fail(late, NotEnoughReplicasAfterAppend(f"fewer than {place.wanted} copies were made in time"))
        return made.result()


def _succeed(asked: list[_Waiting]) -> None:
    for each in asked:
        if not each.done.done():
            each.done.set_result(None)


def _fail(asked: list[_Waiting], error: KetchError) -> None:
    for each in asked:
        if not each.done.done():
            each.done.set_exception(error.with_traceback(None))
