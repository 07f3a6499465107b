"""Reads of Redis that are made before they are asked for, once for many, or not at all.

`ReadAhead`: what sequential readers will want next is asked of Redis while their last answer is on its way to them.
`Tails`: all who wait at the end of a partition are woken by one write and want the same.
`Newest`: what has just been appended through this broker need not come back from Redis.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ketch.store.layout import Chunk, Chunks, Payload
from ketch.store.streams import StreamInfo

_SLOTS = 16  # of the whole broker: each may hold a fetch's worth of entries
_STALE_S = 1.0  # a reader that has not come by then has gone elsewhere

_TAILS = 256  # places whose newest records are kept for the next reader
_TAIL_BYTES = 1 << 16  # of one of them

_NEWEST_BYTES = 16 << 20  # of the batches kept since they were appended
_BATCH_BYTES = 256  # that one of them takes beside its records, about
_NEWEST_BATCHES = 512  # of one stream

_Place = tuple[bytes, int]  # stream of one topic, and offset


class ReadAhead:
    """Replies of XRANGE that nobody has asked for yet. With all slots taken by readers in motion no more are begun."""

    def __init__(self) -> None:
        self._slots: OrderedDict[_Place, tuple[float, asyncio.Future[bytes]]] = OrderedDict()  # oldest first

    def take(self, place: bytes, offset: int) -> asyncio.Future[bytes] | None:
        """The reply for a range that begins at this offset, if it has been asked for within the last second.

        Args:
            place: a stream of one topic, which a topic of the same name made later does not have.
        """
        asked, reply = self._slots.pop((place, offset), (0.0, None))
        return reply if time.monotonic() - asked < _STALE_S else None

    def ask(self, place: bytes, offset: int, send: Callable[[], asyncio.Future[bytes]]) -> None:
        """Asks for a range by calling `send`, if there is a slot for it."""
        now = time.monotonic()
        while self._slots and now - next(iter(self._slots.values()))[0] >= _STALE_S:
            self._slots.popitem(last=False)
        if len(self._slots) < _SLOTS and (place, offset) not in self._slots:
            self._slots[place, offset] = (now, send())


@dataclass(frozen=True, slots=True)
class _Tail:
    info: StreamInfo  # the stream's state that it was read in, the very object: a change makes another
    max_bytes: int  # that its reader took
    chunk: asyncio.Future[Chunk]

    def serves(self, max_bytes: int) -> bool:
        """Whether it is what a reader who takes so much would get."""
        if max_bytes == self.max_bytes:
            return True
        if max_bytes > self.max_bytes or not self.chunk.done() or self.chunk.exception() is not None:
            return False
        return self.chunk.result().size <= max_bytes


class Tails:
    """What was read last from each place, for whoever asks the same while the stream has not changed.

    Readers that are behind by one write and those that are not take turns: so a partition may have several places.
    """

    def __init__(self) -> None:
        self._tails: OrderedDict[_Place, _Tail] = OrderedDict()  # the latest last

    def read(
        self,
        place: _Place,
        info: StreamInfo,
        max_bytes: int,
        at_hand: Callable[[], Chunk | None],
        read: Callable[[], asyncio.Future[Chunk]],
    ) -> asyncio.Future[Chunk]:
        """The chunk at a place: what somebody who takes as much has just had, or is at hand, or `read` gives.

        Others may wait for the same future: it is not to be cancelled.
        """
        tail = self._tails.get(place)
        if tail is not None and tail.info is info and tail.serves(max_bytes):
            return tail.chunk
        newest = at_hand()
        if newest is None:
            chunk = read()
            tail = _Tail(info, max_bytes, chunk)
            self._keep(place, tail)
            chunk.add_done_callback(partial(self._done, place, tail))
            return chunk
        chunk = asyncio.get_running_loop().create_future()
        chunk.set_result(newest)
        if newest.size <= _TAIL_BYTES:
            self._keep(place, _Tail(info, max_bytes, chunk))
        return chunk

    def _keep(self, place: _Place, tail: _Tail) -> None:
        self._tails[place] = tail
        self._tails.move_to_end(place)
        if len(self._tails) > _TAILS:
            self._tails.popitem(last=False)

    def _done(self, place: _Place, tail: _Tail, chunk: asyncio.Future[Chunk]) -> None:
        failed = chunk.exception() is not None
        if (failed or chunk.result().size > _TAIL_BYTES) and self._tails.get(place) is tail:
            del self._tails[place]


@dataclass(slots=True, eq=False)
class _Row:
    """Batches of one stream, one behind the other up to its end."""

    stream: bytes
    lineage: object  # of the stream's state that they are a part of
    appended: int = 0  # how many there ever were; the oldest ones are gone
    batches: deque[tuple[int, int, Payload]] = field(default_factory=deque)  # offset behind the one before, base, batch


class Newest:
    """The batches that this broker appended last. The oldest of all go first; a change by anybody else lets them go."""

    def __init__(self) -> None:
        self._rows: dict[bytes, _Row] = {}
        self._order: deque[tuple[_Row, int, int]] = deque()  # row, place in it, bytes; the oldest first
        self._bytes = 0

    def put(self, stream: bytes, lineage: object, batch: tuple[int, int, Payload]) -> None:
        """Keeps a batch that has just landed behind what `lineage` stands for, see `StreamInfo`.

        Args:
            batch: the offset behind the batch before, its base offset, and the batch.
        """
        row = self._rows.get(stream)
        if row is None or row.lineage is not lineage:
            row = self._rows[stream] = _Row(stream, lineage)
        row.batches.append(batch)
        size = batch[2].size + _BATCH_BYTES
        self._order.append((row, row.appended, size))
        row.appended += 1
        self._bytes += size
        if len(row.batches) > _NEWEST_BATCHES:
            row.batches.popleft()
        while self._bytes > _NEWEST_BYTES:
            self._let_go()

    def read(self, stream: bytes, lineage: object, offset: int, max_bytes: int) -> Chunk | None:
        """The batches from `offset` on, to the stream's end or about `max_bytes` of them; None where one is missing."""
        row = self._rows.get(stream)
        if row is None or row.lineage is not lineage:
            return None
        found: list[tuple[int, Payload]] = []
        for begin, base, batch in reversed(row.batches):
            found.append((base, batch))
            if begin <= offset:
                return _joined(found, max_bytes)
        return None

    def _let_go(self) -> None:
        row, place, size = self._order.popleft()
        self._bytes -= size
        if row.batches and row.appended - len(row.batches) <= place:
            row.batches.popleft()
        if not row.batches and self._rows.get(row.stream) is row:
            del self._rows[row.stream]


def _joined(found: list[tuple[int, Payload]], max_bytes: int) -> Chunk | None:
    """As many of the batches, the last one first, as fit; None if that is none."""
    chunks: list[Chunk] = []
    for base, batch in reversed(found):
        max_bytes -= batch.size
        if max_bytes < 0:
            break
        chunks.append(batch.chunk(base))
    if len(chunks) <= 1:
        return chunks[0] if chunks else None
    return Chunks(chunks)
