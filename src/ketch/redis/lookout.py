"""Asks several nodes the same thing at once and goes on with what comes first, so that a node that hangs delays nobody.

It owns the questions that are on their way. What is asked, and over which connection, is its caller's business: the
driver of a cluster asks nodes for the topology, that behind sentinels asks these for the master.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from ketch.errors import RedisError, StorageUnavailable
from ketch.redis.topology import Place


class Dated(Protocol):
    """What a node says of something that changes over time; of two answers that with the higher epoch is the newer."""

    @property
    def epoch(self) -> int: ...


T = TypeVar("T")
D = TypeVar("D", bound=Dated)

Failure = StorageUnavailable | RedisError | TimeoutError
_FAILURES = (StorageUnavailable, RedisError, TimeoutError)

_GRACE_S = 0.1  # after the first answer: another node may know something newer


class Lookout(Generic[T]):
    """One question that is asked again and again.

    Args:
        ask: puts it to a node; it may raise StorageUnavailable, RedisError or TimeoutError, and must end some time.
    """

    def __init__(self, ask: Callable[[Place], Awaitable[T]]) -> None:
        self._ask = ask
        self._asked: dict[Place, asyncio.Task[T | Failure]] = {}

    def silent(self, place: Place) -> bool:
        """Whether the node was asked before and has not answered yet."""
        return place in self._asked and not self._asked[place].done()

    @property
    def waits(self) -> bool:
        """Whether any node was asked and has not answered yet."""
        return any(not task.done() for task in self._asked.values())

    def begin(self, places: Iterable[Place]) -> None:
        """Asks these nodes, but for those that are silent. Answers that came after the last `soon` are dropped."""
        self._asked = {place: task for place, task in self._asked.items() if not task.done()}
        for place in places:
            if place not in self._asked:
                self._asked[place] = asyncio.get_running_loop().create_task(self._answer(place))

    async def soon(self, limit: float) -> dict[Place, T | Failure]:
        """What nodes have answered until shortly after the first good answer. An error is an answer, and no good one.

        Args:
            limit: s to wait for the first good answer, while any node has not answered.
        """
        found: dict[Place, T | Failure] = {}
        until = time.monotonic() + limit
        good = False
        while self._asked and (left := until - time.monotonic()) > 0:
            await asyncio.wait(self._asked.values(), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for place in [place for place, task in self._asked.items() if task.done()]:
                answer = found[place] = self._asked.pop(place).result()
                if not good and not isinstance(answer, Failure):
                    good, until = True, min(until, time.monotonic() + _GRACE_S)
        return found

    async def stop(self) -> None:
        """Nobody waits for answers any more."""
        asked, self._asked = [*self._asked.values()], {}
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    async def _answer(self, place: Place) -> T | Failure:
        try:
            return await self._ask(place)
        except _FAILURES as error:
            return error


def newest(answers: Mapping[Place, D | Failure]) -> D | None:
    """The answer with the highest epoch; None where there are errors only."""
    good = [each for each in answers.values() if not isinstance(each, Failure)]
    return max(good, key=lambda each: each.epoch, default=None)
