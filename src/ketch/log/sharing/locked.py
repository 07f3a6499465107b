"""What a `Share` is in either layout: one group on one partition, with a timer for the locks of its members.

It owns the timer and the lock under which Redis is asked. Who holds which records, and what Redis keeps of that, is
the layout's: `log.sharing.record` and `log.sharing.batch`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from ketch.coordinator.share.config import ShareConfig
from ketch.errors import KetchError
from ketch.log.bounds import PartitionBounds
from ketch.log.live import LiveStream
from ketch.log.sharing.share import Start
from ketch.redis.driver import Driver
from ketch.tasks import lasting

log = logging.getLogger(__name__)

_LEAST_S = 0.01  # between two looks at locks


@dataclass(frozen=True, slots=True)
class SharedPartition:
    """What a `Share` works with: the group's name, the partition, and who asks Redis.

    Attributes:
        start: where a new group begins.
        changed: called when there may be something for those who wait.
    """

    group: str
    stream: LiveStream
    bounds: PartitionBounds
    driver: Driver
    start: Start
    changed: Callable[[], None]


class LockedShare:
    """One share group on one partition."""

    def __init__(self, of: SharedPartition) -> None:
        self._group, self._stream, self._bounds, self._driver = of.group, of.stream, of.bounds, of.driver
        self._start, self._changed = of.start, of.changed
        self._timer: asyncio.TimerHandle | None = None
        self._starved = False  # somebody got nothing because of the limit of locks
        self._lock = asyncio.Lock()

    async def _give_up_expired(self, config: ShareConfig) -> None:
        """Gives up what members have held for too long, and sets the timer again where that is of use."""
        raise NotImplementedError

    def _watch_locks(self, seconds: float, config: ShareConfig) -> None:
        """Has locks looked at in so many seconds, unless the timer is set already."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(max(seconds, _LEAST_S), self._ring, config)

    def _ring(self, config: ShareConfig) -> None:
        self._timer = None
        lasting(self._sweep(config))

    async def _sweep(self, config: ShareConfig) -> None:
        try:
            await self._give_up_expired(config)
        except KetchError as error:  # the next acquisition looks at the locks, too
            log.info("share group %s on %s: %s", self._group, self._stream.key.decode(), error)
