"""What a person has to act on: one line a minute for the whole broker, however many clients it fails, and a metric."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ketch import metrics
from ketch.errors import KetchError, RightMissing, WritesRefused
from ketch.log.log import Log

log = logging.getLogger(__name__)

_EVERY_S = 60.0


class _Refused:
    """How many requests were refused since the last line, and when the next one may be written."""

    def __init__(self) -> None:
        self._next, self._count = 0.0, 0

    def one_more(self, now: float) -> bool:
        """Whether a line is to be written for it. `now`: a clock that only rises, seconds."""
        self._count += 1
        if now < self._next:
            return False
        self._next = now + _EVERY_S
        return True

    def told(self) -> int:
        """A line is written: with this number."""
        count, self._count = self._count, 0
        return count


class WritesAlert:
    """Says that Redis takes no writes.

    Args:
        log_: knows the memory of Redis.
        background: keeps a task alive until it is done.
    """

    def __init__(self, log_: Log, background: Callable[[asyncio.Future[Any]], None]) -> None:
        self._log, self._background, self._refused = log_, background, _Refused()

    def tell(self, error: WritesRefused, now: float) -> None:
        """A write was refused.

        Args:
            now: a clock that only rises, seconds.
        """
        metrics.writes_refused.inc()
        if self._refused.one_more(now):
            self._background(asyncio.get_running_loop().create_task(self._write(error)))

    async def _write(self, error: WritesRefused) -> None:
        """EXEC does not say why it refused: the memory of Redis does."""
        try:
            room = max(await self._log.rooms(), key=lambda each: each.full)
            full = f"it uses {room.used} bytes, and maxmemory is {room.limit}"
            memory = full if room.limit else "its own log says why"
        except KetchError:
            memory = "its memory is not known"
        refused = self._refused.told()
        log.error("Redis refuses writes, reads go on: %s (%d refused since the last line; %s)", memory, refused, error)


class RightsAlert:
    """Says that the broker's user of Redis may not do what a broker needs."""

    def __init__(self) -> None:
        self._refused = _Refused()

    def tell(self, error: RightMissing, now: float) -> None:
        """A client's request could not be carried out for it.

        Args:
            now: a clock that only rises, seconds.
        """
        if self._refused.one_more(now):
            log.error(
                "the broker's user of Redis lacks a right, give it what `ketch redis user broker` prints: %s "
                "(%d refused since the last line)",
                error,
                self._refused.told(),
            )
