"""How work shares the event loop: tasks that outlive the caller that started them, and loops that let others run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def lasting(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task to be awaited by way of `asyncio.shield`.

    Its failure counts as seen: `shield` drops it when the waiter was cancelled before, and asyncio would then log
    "Task exception was never retrieved".
    """
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(_seen)
    return task


async def taking_turns(items: Iterable[T], at_once: int) -> AsyncIterator[T]:
    """The items; behind every `at_once` of them the event loop's other tasks run, so that other clients are served."""
    for count, item in enumerate(items, 1):
        yield item
        if count % at_once == 0:
            await asyncio.sleep(0)


def _seen(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
