"""What sequential readers will ask for next, asked of Redis while their last answer is still on its way to them."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

_SLOTS = 16  # of the whole broker: each may hold a fetch's worth of entries
_STALE_S = 1.0  # a reader that has not come by then has gone elsewhere

_Place = tuple[bytes, int]  # stream and offset


class ReadAhead:
    """Replies of XRANGE that nobody has asked for yet. With all slots taken by readers in motion no more are begun."""

    def __init__(self) -> None:
        self._slots: OrderedDict[_Place, tuple[float, asyncio.Future[bytes]]] = OrderedDict()  # oldest first

    def take(self, stream: bytes, offset: int) -> asyncio.Future[bytes] | None:
        """The reply for a range that begins at this offset, if it has been asked for within the last second."""
        asked, reply = self._slots.pop((stream, offset), (0.0, None))
        return reply if time.monotonic() - asked < _STALE_S else None

    def ask(self, stream: bytes, offset: int, send: Callable[[], asyncio.Future[bytes]]) -> None:
        """Asks for a range by calling `send`, if there is a slot for it."""
        now = time.monotonic()
        while self._slots and now - next(iter(self._slots.values()))[0] >= _STALE_S:
            self._slots.popitem(last=False)
        if len(self._slots) < _SLOTS and (stream, offset) not in self._slots:
            self._slots[stream, offset] = (now, send())
