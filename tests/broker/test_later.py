"""An answer that waits for futures: it is made once, when the last one is done or the deadline has come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ketch.broker.api import Later

LONG, SOON = 60.0, 0.01  # seconds


def waiting(count: int, timeout: float) -> tuple[list[asyncio.Future[Any]], list[str], asyncio.Event]:
    """Futures that an answer waits for, a list that gets a word for each time it is due, and an event that says so."""
    waits = [asyncio.get_running_loop().create_future() for _ in range(count)]
    due, came = list[str](), asyncio.Event()

    def take() -> None:
        due.append("due")
        came.set()

    Later(waits, timeout, lambda: None, answered=True).then(take)
    return waits, due, came


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_it_is_due_when_the_last_future_is_done(order: list[int]) -> None:
    async def run() -> None:
        waits, due, came = waiting(3, LONG)
        for index in order[:-1]:
            waits[index].set_result(index)
        await asyncio.sleep(0)
        assert not due
        waits[order[-1]].set_exception(ValueError("a failure is an end, too"))
        await came.wait()
        assert waits[order[-1]].exception() is not None

    asyncio.run(run())


def test_it_is_due_once_where_the_deadline_comes_first() -> None:
    async def run() -> None:
        waits, due, came = waiting(2, SOON)
        waits[0].set_result(None)
        await came.wait()
        waits[1].set_result(None)
        await asyncio.sleep(0)
        assert due == ["due"]

    asyncio.run(run())


def test_futures_may_be_done_already() -> None:
    async def run() -> None:
        done = asyncio.get_running_loop().create_future()
        done.set_result(1)
        came = asyncio.Event()
        Later([done], LONG, lambda: None, answered=True).then(came.set)
        assert not came.is_set()
        await came.wait()

    asyncio.run(run())


def test_it_is_not_made_of_futures_that_were_cancelled() -> None:
    """They are where the process ends at once; what they were to bring cannot be asked of them."""

    async def run() -> None:
        waits, due, _ = waiting(2, SOON)
        waits[0].cancel()
        await asyncio.sleep(2 * SOON)
        waits[1].cancel()
        await asyncio.sleep(0)
        assert not due

    asyncio.run(run())
