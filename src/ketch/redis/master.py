"""Finds the master behind sentinels for the asyncio driver, and notices that another server has become it.

All sentinels are asked at once, over connections that are kept. Of those that answer soon the one counts that knows of
the newest failover: a sentinel that was cut off names an old master, which may still take itself for one. It owns these
connections. What the questions and the answers mean is `redis.sentinel`'s, the connection to the master `redis.link`'s.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from ketch.errors import RedisError, StorageUnavailable
from ketch.redis import sentinel
from ketch.redis.lookout import Failure, Lookout, newest
from ketch.redis.pipe import Pipe, ask_once, open_pipe
from ketch.redis.sentinel import Named
from ketch.redis.topology import Place
from ketch.redis.url import RedisAddress


class Found(NamedTuple):
    """The master. For `epoch` see `sentinel.Named`."""

    address: RedisAddress
    epoch: int


class MasterSearch:
    """Who the master is, as its sentinels say.

    Args:
        address: of kind "sentinel".
        timeout: s that connecting to a sentinel, and its answer, may take.
    """

    def __init__(self, address: RedisAddress, timeout: float) -> None:
        self._address, self._timeout = address, timeout
        self._pipes: dict[Place, Pipe] = {}
        self._lookout = Lookout(self._ask)
        self._looking = asyncio.Lock()  # the lookout gives each answer to one caller alone

    async def named(self, limit: float) -> Named | None:
        """What the sentinels say; None where none answers within `limit` seconds."""
        async with self._looking:
            self._lookout.begin(sentinel.known(self._address))
            return newest(await self._lookout.soon(limit))

    async def find(self, patience: float, again: bool = False) -> Found:
        """The server that a sentinel names, and that says that it is the master.

        Args:
            patience: s for the sentinels to answer, and again for the server.
            again: the caller tries again after a failure, so nobody waits for sentinels that hang where others answer.

        Raises:
            StorageUnavailable: there is none; one sentence says why.
        """
        async with self._looking:
            return await self._find(patience, again)

    async def _find(self, patience: float, again: bool) -> Found:
        failures: dict[Place, str] = {}
        servers: dict[Place, str] = {}  # those that are not the master, and why
        until = time.monotonic() + patience
        self._lookout.begin(sentinel.known(self._address))
        while answers := await self._lookout.soon(until - time.monotonic()):
            for place, answer in sorted(answers.items(), key=lambda each: -_epoch(each[1])):
                try:
                    return await self._led(place, answer, servers, patience)
                except StorageUnavailable as error:
                    failures[place] = str(error).rstrip(".")
            if again and servers:
                break
        known = sentinel.known(self._address)
        silent = {each: self._silent(self._address.sentinel(*each), patience) for each in known if each not in failures}
        raise sentinel.not_found(self._address, [(failures | silent)[each] for each in known])

    async def stop(self) -> None:
        """Closes the connections."""
        await self._lookout.stop()
        for pipe in self._pipes.values():
            pipe.close()

    async def _ask(self, place: Place) -> Named:
        pipe = self._pipes.get(place)
        if pipe is None or not pipe.connected:
            address = self._address.sentinel(*place)
            pipe = self._pipes[place] = await open_pipe(address, self._timeout, on_lost=lambda: None)
        try:
            async with asyncio.timeout(self._timeout):
                answer = await pipe.ask(sentinel.named(self._address.master))
        except BaseException:
            pipe.close()  # the answer may still be on its way
            raise
        sentinel.learn(self._address, place, answer)
        return answer

    async def _led(self, place: Place, answer: Named | Failure, servers: dict[Place, str], patience: float) -> Found:
        """The master, where this sentinel's answer leads there. Raises StorageUnavailable."""
        if not isinstance(answer, Named):
            raise StorageUnavailable(str(answer) or self._silent(self._address.sentinel(*place), self._timeout))
        if answer.place is None:
            raise StorageUnavailable(sentinel.unknown(self._address, place))
        if answer.place not in servers:
            servers[answer.place] = await self._why_no_master(answer.place, patience)
        if servers[answer.place]:
            raise StorageUnavailable(servers[answer.place])
        sentinel.prefer(self._address, place)
        return Found(self._address.at(*answer.place), answer.epoch)

    async def _why_no_master(self, place: Place, patience: float) -> str:
        """Empty where the server says that it is the master."""
        address = self._address.at(*place)
        try:
            role = await ask_once(address, patience, sentinel.role_of())
        except (StorageUnavailable, RedisError, TimeoutError) as error:
            return str(error) or self._silent(address, patience)
        return "" if role == sentinel.MASTER else sentinel.other_role(place, role)

    @staticmethod
    def _silent(address: RedisAddress, seconds: float) -> str:
        return f"Redis at {address.describe()}: silent for {seconds:g} s"


async def find_master(address: RedisAddress, timeout: float) -> RedisAddress:
    """The master behind sentinels, asked once. Raises as `MasterSearch.find`."""
    search = MasterSearch(address, timeout)
    try:
        return (await search.find(timeout)).address
    finally:
        await search.stop()


def _epoch(answer: Named | Failure) -> int:
    return answer.epoch if isinstance(answer, Named) else -1
