"""Tasks that run to their end although the caller that started them was cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
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


def _seen(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
