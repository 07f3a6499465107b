"""Reads of Redis that are made before they are asked for, or once for many.

`ReadAhead`: what sequential readers will want next is asked of Redis while their last answer is on its way to them.
`Tails`: all who wait at the end of a partition are woken by one write and want the same.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ketch.store.layout import Chunk
from ketch.store.streams import StreamInfo

_SLOTS = 16  # of the whole broker: each may hold a fetch's worth of entries
_STALE_S = 1.0  # a reader that has not come by then has gone elsewhere

_TAILS = 256  # places whose newest records are kept for the next reader
_TAIL_BYTES = 1 << 16  # of one of them

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


@dataclass(frozen=True, slots=True)
class _Tail:
    info: StreamInfo  # the stream's state that it was read in, the very object: a change makes another
    max_bytes: int  # that its reader took
    chunk: asyncio.Future[Chunk]


class Tails:
    """What was read last from each place, for whoever asks the same while the stream has not changed.

    Readers that are behind by one write and those that are not take turns: so a partition may have several places.
    """

    def __init__(self) -> None:
        self._tails: OrderedDict[_Place, _Tail] = OrderedDict()  # the latest last

    async def read(
        self, stream: bytes, offset: int, info: StreamInfo, max_bytes: int, read: Callable[[], Awaitable[Chunk]]
    ) -> Chunk:
        """The chunk from `offset` on, by calling `read` unless somebody who takes as much has just done so."""
        place = stream, offset
        tail = self._tails.get(place)
        if tail is not None and tail.info is info and tail.max_bytes >= max_bytes:
            chunk = await asyncio.shield(tail.chunk)
            return chunk if chunk.size <= max_bytes else await read()
        tail = _Tail(info, max_bytes, asyncio.ensure_future(read()))
        self._tails[place] = tail
        self._tails.move_to_end(place)
        if len(self._tails) > _TAILS:
            self._tails.popitem(last=False)
        tail.chunk.add_done_callback(lambda chunk: self._done(place, tail, chunk))
        return await asyncio.shield(tail.chunk)

    def _done(self, place: _Place, tail: _Tail, chunk: asyncio.Future[Any]) -> None:
        failed = chunk.cancelled() or chunk.exception() is not None
        if (failed or chunk.result().size > _TAIL_BYTES) and self._tails.get(place) is tail:
            del self._tails[place]
