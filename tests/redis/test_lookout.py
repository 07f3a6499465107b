"""Several nodes that are asked at once, and what of them counts. Each node is a future."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ketch.errors import RedisError, StorageUnavailable
from ketch.redis.lookout import Lookout
from ketch.redis.topology import Place

A, B, C = ("a", 1), ("b", 2), ("c", 3)
LONG = 60.0


class Nodes:
    """Attributes: asked: how often each was."""

    def __init__(self) -> None:
        self.asked: Counter[Place] = Counter()
        self._answers: dict[Place, asyncio.Future[str]] = defaultdict(asyncio.get_running_loop().create_future)

    async def ask(self, place: Place) -> str:
        self.asked[place] += 1
        return await self._answers[place]

    def answer(self, place: Place, what: str | Exception) -> None:
        """To all questions from now on."""
        future = self._answers[place]
        if isinstance(what, Exception):
            future.set_exception(what)
        else:
            future.set_result(what)


def run(work: Callable[[Nodes, Lookout[str]], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        nodes = Nodes()
        lookout = Lookout(nodes.ask)
        try:
            async with asyncio.timeout(LONG / 2):
                await work(nodes, lookout)
        finally:
            await lookout.stop()

    asyncio.run(main())


def test_all_answer() -> None:
    async def work(nodes: Nodes, lookout: Lookout[str]) -> None:
        for place in (A, B):
            nodes.answer(place, place[0])
        lookout.begin((A, B))
        assert await lookout.soon(LONG) == {A: "a", B: "b"}
        assert not lookout.waits
        assert await lookout.soon(LONG) == {}

    run(work)


def test_one_that_hangs_delays_nobody_and_is_asked_once() -> None:
    async def work(nodes: Nodes, lookout: Lookout[str]) -> None:
        nodes.answer(A, "a")
        for _ in range(3):
            lookout.begin((A, B))
            assert await lookout.soon(LONG) == {A: "a"}
            assert lookout.silent(B)
            assert lookout.waits
        assert nodes.asked == {A: 3, B: 1}
        nodes.answer(B, "b")
        lookout.begin((A,))
        assert await lookout.soon(LONG) == {A: "a", B: "b"}
        assert not lookout.silent(B)

    run(work)


def test_what_came_too_late_is_asked_again() -> None:
    async def work(nodes: Nodes, lookout: Lookout[str]) -> None:
        nodes.answer(A, "a")
        lookout.begin((A, B))
        await lookout.soon(LONG)
        nodes.answer(B, "b")
        while lookout.silent(B):
            await asyncio.sleep(0)
        lookout.begin((A, B))
        assert nodes.asked[B] == 1
        assert await lookout.soon(LONG) == {A: "a", B: "b"}
        assert nodes.asked == {A: 2, B: 2}

    run(work)


@pytest.mark.parametrize("error", [StorageUnavailable("gone"), RedisError("no"), TimeoutError()], ids=repr)
def test_an_error_is_no_good_answer(error: Exception) -> None:
    async def work(nodes: Nodes, lookout: Lookout[str]) -> None:
        nodes.answer(A, error)
        lookout.begin((A, B))
        waiting = asyncio.create_task(lookout.soon(LONG))
        while lookout.silent(A):
            await asyncio.sleep(0)
        nodes.answer(B, "b")
        assert await waiting == {A: error, B: "b"}

    run(work)


def test_nobody_answers() -> None:
    async def work(nodes: Nodes, lookout: Lookout[str]) -> None:
        lookout.begin((A, B, C))
        assert await lookout.soon(0.01) == {}
        await lookout.stop()
        assert not lookout.waits

    run(work)
