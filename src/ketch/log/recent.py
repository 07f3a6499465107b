"""What readers will want next, held in bounded memory, so that Redis answers once for many readers or not at all.

- `ReadAhead`: the next range of a sequential reader, asked of Redis while the last answer is on its way to the reader.
- `Tails`: what was read last at each place. All who wait at the end of a partition are woken by one write and want the
  same records.
- `Newest`: the batches that were appended last through this broker.

`Tails` and `Newest` serve only while nothing else has changed the stream, which its `StreamInfo` tells. This file sends
nothing to Redis itself; `log.reading` does.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ketch.store.layouts.layout import Chunk, Chunks, Payload
from ketch.store.xinfo import StreamInfo

_SLOTS = 16  # of the whole broker: each may hold a fetch's worth of entries
_STALE_S = 1.0  # a reader that has not come by then has gone elsewhere

_TAILS = 256  # positions whose newest records are kept for the next reader
_TAIL_BYTES = 1 << 16  # of one of them

_NEWEST_BYTES = 16 << 20  # of the batches kept since they were appended
_BATCH_BYTES = 256  # that one of them takes beside its records, about
_NEWEST_BATCHES = 512  # of one stream

_Position = tuple[bytes, int]  # stream of one topic, and offset


class ReadAhead:
    """Replies of XRANGE that nobody has asked for yet. With all slots taken by readers in motion no more are begun."""

    def __init__(self) -> None:
        self._slots: OrderedDict[_Position, tuple[float, asyncio.Future[bytes]]] = OrderedDict()  # oldest first

    def take(self, incarnation: bytes, offset: int) -> asyncio.Future[bytes] | None:
        """The reply for a range that begins at this offset, if it has been asked for within the last second.

        Args:
            incarnation: a stream of one topic, which a topic of the same name made later does not have.
        """
        asked, reply = self._slots.pop((incarnation, offset), (0.0, None))
        return reply if time.monotonic() - asked < _STALE_S else None

    def ask(self, incarnation: bytes, offset: int, send: Callable[[], asyncio.Future[bytes]]) -> None:
        """Asks for a range by calling `send`, if there is a slot for it."""
        now = time.monotonic()
        while self._slots and now - next(iter(self._slots.values()))[0] >= _STALE_S:
            self._slots.popitem(last=False)
        if len(self._slots) < _SLOTS and (incarnation, offset) not in self._slots:
            self._slots[incarnation, offset] = (now, send())


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
        return self.chunk.result().wire_size <= max_bytes


class Tails:
    """What was read last from each position, for the next reader that asks the same before the stream has changed.

    A partition may have several positions: some of its readers may lag by one write, others not.
    """

    def __init__(self) -> None:
        self._tails: OrderedDict[_Position, _Tail] = OrderedDict()  # the latest last

    def read(
        self,
        position: _Position,
        info: StreamInfo,
        max_bytes: int,
        at_hand: Callable[[], Chunk | None],
        read: Callable[[], asyncio.Future[Chunk]],
    ) -> asyncio.Future[Chunk]:
        """The chunk at a position: what a reader of this size got last, what is at hand, or what `read` gives.

        Others may wait for the same future: it is not to be cancelled.
        """
        tail = self._tails.get(position)
        if tail is not None and tail.info is info and tail.serves(max_bytes):
            return tail.chunk
        newest = at_hand()
        if newest is None:
            chunk = read()
            tail = _Tail(info, max_bytes, chunk)
            self._keep(position, tail)
            chunk.add_done_callback(partial(self._done, position, tail))
            return chunk
        return self._found(position, info, max_bytes, newest)

    def at_hand(
        self, position: _Position, info: StreamInfo, max_bytes: int, at_hand: Callable[[], Chunk | None]
    ) -> Chunk | None:
        """What `read` would give without reading; None where that is not there."""
        tail = self._tails.get(position)
        if tail is not None and tail.info is info and tail.serves(max_bytes):
            there = tail.chunk.done() and tail.chunk.exception() is None
            return tail.chunk.result() if there else None
        newest = at_hand()
        if newest is not None:
            self._found(position, info, max_bytes, newest)
        return newest

    def _found(self, position: _Position, info: StreamInfo, max_bytes: int, newest: Chunk) -> asyncio.Future[Chunk]:
        chunk = asyncio.get_running_loop().create_future()
        chunk.set_result(newest)
        if newest.size <= _TAIL_BYTES:
            self._keep(position, _Tail(info, max_bytes, chunk))
        return chunk

    def _keep(self, position: _Position, tail: _Tail) -> None:
        self._tails[position] = tail
        self._tails.move_to_end(position)
        if len(self._tails) > _TAILS:
            self._tails.popitem(last=False)

    def _done(self, position: _Position, tail: _Tail, chunk: asyncio.Future[Chunk]) -> None:
        failed = chunk.exception() is not None
        if (failed or chunk.result().size > _TAIL_BYTES) and self._tails.get(position) is tail:
            del self._tails[position]


@dataclass(slots=True, eq=False)
class Row:
    """Consecutive batches of one stream, up to its end."""

    stream: bytes
    lineage: object  # of the stream's state that they are a part of
    appended: int = 0  # how many there ever were; the oldest ones are gone
    batches: deque[tuple[int, int, Payload]] = field(default_factory=deque)  # end of the batch before, base, batch


class Newest:
    """The batches that this broker appended last. The oldest of all go first; a change by anybody else lets them go.

    Attributes:
        rows: them, by stream.
    """

    def __init__(self) -> None:
        self.rows: dict[bytes, Row] = {}
        self._order: deque[tuple[Row, int, int]] = deque()  # row, index in it, bytes; the oldest first
        self._bytes = 0

    def put(self, stream: bytes, lineage: object, batch: tuple[int, int, Payload]) -> None:
        """Keeps a batch that has just been stored after what `lineage` stands for, see `StreamInfo`.

        Args:
            batch: the end offset of the batch before it, its base offset, and the batch.
        """
        row = self.rows.get(stream)
        if row is None or row.lineage is not lineage:
            row = self.rows[stream] = Row(stream, lineage)
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
        row = self.rows.get(stream)
        if row is None or row.lineage is not lineage or row.batches[0][0] > offset:
            return None
        found: list[tuple[int, Payload]] = []
        for begin, base, batch in reversed(row.batches):
            found.append((base, batch))
            if begin <= offset:
                return _joined(found, max_bytes)
        return None

    def _let_go(self) -> None:
        row, index, size = self._order.popleft()
        self._bytes -= size
        if row.batches and row.appended - len(row.batches) <= index:
            row.batches.popleft()
        if not row.batches and self.rows.get(row.stream) is row:
            del self.rows[row.stream]


def _joined(found: list[tuple[int, Payload]], max_bytes: int) -> Chunk | None:
    """As many of the batches, the last one first, as fit; None if that is none."""
    chunks: list[Chunk] = []
    for base, batch in reversed(found):
        chunk = batch.chunk(base)
        max_bytes -= chunk.wire_size
        if max_bytes < 0:
            break
        chunks.append(chunk)
    if len(chunks) <= 1:
        return chunks[0] if chunks else None
    return Chunks(chunks)
