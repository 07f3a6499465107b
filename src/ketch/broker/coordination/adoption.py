"""Commits that another Redis client has SET: their groups are found by the commits' keys.

OffsetFetch of named partitions reads the commit keys themselves. ListGroups, DescribeGroups, DeleteGroups, OffsetFetch
of all topics and the expiry of commits go by `{ks}:groups` and `{ks}:offsets:{group}`, which a client that writes only
commits does not keep. So before one of these is answered, SCAN looks through the commit keys, and those that are
missing there are listed, once for all. With 100,000 commits of 10,000 groups a look takes a few seconds. So a look
comes at most every `_EVERY_S` seconds and takes at most one part in `_SHARE` of the time. A question waits for it
`_PATIENCE_S` at most; what is found later is in the next answer. Without such questions the expiry alone looks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from ketch.clock import now_ms
from ketch.errors import KetchError
from ketch.log.log import Log

log = logging.getLogger(__name__)

_EVERY_S = 10.0
_SHARE = 20
_PATIENCE_S = 2.0


class Adoption:
    """Looks for commits that are not listed beside their group.

    Args:
        keep: keeps a task alive until it is done or the broker stops.
    """

    def __init__(self, log_: Log, keep: Callable[[asyncio.Task[None]], None]) -> None:
        self._log, self._keep = log_, keep
        self._next = 0.0  # when another look may begin
        self._looking: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Looks for commits that are not listed beside their group, unless the last look was a short while ago."""
        if self._looking is None or (self._looking.done() and time.monotonic() >= self._next):
            self._looking = asyncio.get_running_loop().create_task(self._look())
            self._keep(self._looking)
        await asyncio.wait([self._looking], timeout=_PATIENCE_S)

    async def _look(self) -> None:
        began = time.monotonic()
        try:
            partitions = {topic.name: topic.partitions for topic in await self._log.topics.all()}
            found = await self._log.commits.adopt(partitions, now_ms())
        except KetchError:
            return  # the question itself meets it; the next one looks again
        ended = time.monotonic()
        self._next = ended + max(_EVERY_S, _SHARE * (ended - began))
        for group, count in found.items():
            log.info("group %s: %d commits that were set by another Redis client are listed", group, count)
