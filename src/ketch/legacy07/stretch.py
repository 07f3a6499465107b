"""Lays out records as the bytes that a client of Kafka 0.7 reads: message behind message.

How a record, or several, become a message:

- A compressed message that a 0.7 client sent was stored as the records within it, and a mark keeps its bytes
  (`store.layouts.marked`). These bytes are the message; its records make no further ones.
- Every other record is one plain message. Its payload is the record's value; a null value (a tombstone) is an empty
  payload. Key, headers and timestamp are left out, because a 0.7 message has no room for them.
- The magic of a plain message is the usual one, which the caller names, unless a mark says that it was sent with the
  other one.

A `Stretch` collects messages that follow each other, from a record on. It does not know at which position of the byte
log it begins. A `Block` is a finished stretch at its position. Neither does I/O.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from ketch.log.reading import Records
from ketch.records import frame_messages
from ketch.records._buffers import Buffer
from ketch.store.layouts.marked import Marks, read_mark, read_plain_mark
from ketch.store.stream.positions import STEP, Place

_COMPRESSED_MIN = 7  # magic, compression, checksum and a payload
_COMPRESSIONS = (1, 2)  # gzip, snappy
_NO_END = (1 << 63) - 1


class Stretch:
    """Messages that follow each other.

    Args:
        first: the offset of the first record.

    Attributes:
        ends: where each message ends, in bytes from the beginning of the stretch.
        lasts: the offset of each message's last record.
        next: the offset of the record to go on with. It may lie beyond the last message's records, because records of
            aborted transactions and markers become no message.
        time: timestamp of the last record that became a message, ms.
    """

    def __init__(self, first: int) -> None:
        self.next = first
        self.time = -1
        self.ends = array("q")
        self.lasts = array("q")
        self._pieces: list[Buffer] = []

    @property
    def size(self) -> int:
        """Bytes of the messages."""
        return self.ends[-1] if self.ends else 0

    def add(self, records: Records, usual: int, end: int | None = None, more: bool = True) -> int:
        """Adds the messages of the records from `next` on.

        Args:
            usual: the magic of plain messages without a mark.
            end: the offset to stop before; None: all records are added.
            more: the caller can read further records than these. A compressed message whose last record is not among
                them is then left out, and so is everything behind it.

        Returns:
            The number of records of the message that was left out; 0 if none was.
        """
        read = records.batches[-1].last_offset + 1 if records.batches else self.next
        stop = _NO_END if end is None else end
        marked = _take_marks(records.marks, usual, self.next, stop, read if more else stop)
        if marked.left_out is not None:
            stop = marked.left_out
        data, ends, lasts, time = frame_messages(
            records.batches, self.next, stop, self.size, usual, marked.compressed, marked.others
        )
        known = len(self.lasts)
        self._pieces.append(data)
        self.ends.frombytes(ends)
        self.lasts.frombytes(lasts)
        if len(self.lasts) > known:
            self.next, self.time = self.lasts[-1] + 1, time
        if marked.left_out is not None:
            return read_mark(records.marks[marked.left_out])[0]
        self.next = max(self.next, records.end if end is None else min(records.end, end))
        return 0

    def encode(self) -> Buffer:
        """The messages' bytes."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def places(self, start: int) -> list[Place]:
        """The places that the index keeps of a stretch which begins at position `start`.

        There is one for each multiple of STEP within the stretch: the first end of a message at or above it.
        """
        first = start - start % STEP + STEP
        found = {bisect_left(self.ends, step - start): None for step in range(first, start + self.size + 1, STEP)}
        return [Place(start + self.ends[at], self.lasts[at] + 1) for at in found]


class _Marked(NamedTuple):
    """What the marks of some records say.

    Attributes:
        compressed: the compressed messages, each with its first and its last record.
        others: first and last record of each run of plain messages that have not the usual magic.
        left_out: the first record of a compressed message whose last record has not been read.
    """

    compressed: list[tuple[int, int, bytes]]
    others: array[int]
    left_out: int | None


def _take_marks(marks: Marks, usual: int, start: int, stop: int, read: int) -> _Marked:
    """What the marks say of the records from `start` up to `stop`.

    Args:
        read: the offset that records have been read up to. A compressed message that ends beyond it is left out. One
            that would end beyond `stop`, too, is none: such a mark was written by hand.
    """
    compressed: list[tuple[int, int, bytes]] = []
    others = array("q")
    for offset, mark in sorted(marks.items()):
        count, magic = read_plain_mark(mark)
        if count:
            if magic != usual:
                _add_run(others, offset - count + 1, offset)
            continue
        if not start <= offset < stop:
            continue
        count, message = read_mark(mark)
        if message and _is_compressed(message):
            compressed.append((offset - max(count, 1) + 1, offset, message))
        elif read < offset + count < stop + 1:
            return _Marked(compressed, others, offset)
    return _Marked(compressed, others, None)


def _add_run(runs: array[int], first: int, last: int) -> None:
    if runs and runs[-1] + 1 >= first:
        runs[-1] = last
    else:
        runs.extend((first, last))


def _is_compressed(message: bytes) -> bool:
    return len(message) >= _COMPRESSED_MIN and message[0] == 1 and message[1] in _COMPRESSIONS


class Block:
    """The messages of a stretch at a position of the byte log.

    Positions never change, so neither does a block: it can be kept for any reader.

    Attributes:
        data: the messages' bytes.
        start, end: positions.
        lasts, next: as those of the stretch.
    """

    __slots__ = ("_ends", "data", "end", "lasts", "next", "start")

    def __init__(self, stretch: Stretch, start: int) -> None:
        self.data = memoryview(stretch.encode())
        self.start, self.end = start, start + len(self.data)
        self.lasts, self.next = stretch.lasts, stretch.next
        self._ends = stretch.ends

    def size_at(self, position: int) -> int:
        """Bytes of the message that begins at `position`; 0 if none begins there."""
        at = bisect_right(self._ends, position - self.start)
        return self._ends[at] + self.start - position if self._starts(at) == position < self.end else 0

    def position_of(self, offset: int) -> int:
        """Where the message with the record `offset` begins; if there is none, where the next one does, or the end."""
        return self._starts(bisect_left(self.lasts, offset))

    def _starts(self, at: int) -> int:
        """The position of the message with this index."""
        return self.start + self._ends[at - 1] if at else self.start
