"""Lays records out as the messages that a client of Kafka 0.7 sees: their bytes, and the record that each ends with.

- A record is a message of magic 0 that is its value. Key, headers and timestamp have no place in it. A null value (a
  tombstone) is an empty payload. Magic 0, for clients of 0.6 and of 0.7 know it.
- The records of a message that was compressed by its producer are that message, byte for byte (`store.layouts.marked`).

A stretch is what lies between two boundaries of messages. No I/O; where it begins in the log is not known here.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from ketch.log.reading import Records
from ketch.records import frame_messages
from ketch.records._buffers import Buffer
from ketch.store.layouts.marked import Marks, read_mark
from ketch.store.stream.positions import STEP, Place

_COMPRESSED_MIN = 7  # magic, compression, checksum and a payload
_COMPRESSIONS = (1, 2)  # gzip, snappy
_NO_END = (1 << 63) - 1


class Stretch:
    """Messages in a row.

    Attributes:
        ends: where each message ends, its length field included, from the stretch's beginning on.
        lasts: the offset of each message's last record.
        next: the offset after its last record, of a message or not.
        time: ms, of the last record.
    """

    def __init__(self, first: int) -> None:
        self.next = first
        self.time = -1
        self.ends = array("q")
        self.lasts = array("q")
        self._pieces: list[Buffer] = []

    @property
    def size(self) -> int:
        return self.ends[-1] if self.ends else 0

    def add(self, records: Records, end: int | None = None, more: bool = True) -> int:
        """Lays out the records from `next` on.

        Args:
            end: records from here on do not belong to it.
            more: others may follow those given: a message whose last records are not among them is left out.

        Returns:
            How many records the message that was left out has; 0 where all is laid out.
        """
        read = records.batches[-1].last_offset + 1 if records.batches else self.next
        stop = _NO_END if end is None else end
        whole, left_out = _compressed(records.marks, self.next, stop, read if more else stop)
        if left_out is not None:
            stop = left_out
        data, ends, lasts, time = frame_messages(records.batches, self.next, stop, self.size, whole)
        known = len(self.lasts)
        self._pieces.append(data)
        self.ends.frombytes(ends)
        self.lasts.frombytes(lasts)
        if len(self.lasts) > known:
            self.next, self.time = self.lasts[-1] + 1, time
        if left_out is not None:
            return read_mark(records.marks[left_out])[0]
        self.next = max(self.next, records.end if end is None else min(records.end, end))
        return 0

    def encode(self) -> Buffer:
        """The messages' bytes."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def places(self, start: int) -> list[Place]:
        """The places to keep, where it begins at `start`: the first boundary at or above each multiple of STEP."""
        first = start - start % STEP + STEP
        found = {bisect_left(self.ends, step - start): None for step in range(first, start + self.size + 1, STEP)}
        return [Place(start + self.ends[at], self.lasts[at] + 1) for at in found]


def _compressed(marks: Marks, start: int, stop: int, read: int) -> tuple[list[tuple[int, int, bytes]], int | None]:
    """The compressed messages that end from offset `start` up to `stop`: first record, last record, the message.

    Beside them the first record of the one that reaches up to `read` or beyond it, but not up to `stop`; None for none.
    """
    whole: list[tuple[int, int, bytes]] = []
    for offset, mark in sorted(marks.items()):
        if not start <= offset < stop:
            continue
        count, message = read_mark(mark)
        if message and _is_compressed(message):
            whole.append((offset - max(count, 1) + 1, offset, message))
        elif read < offset + count < stop + 1:
            return whole, offset
    return whole, None


def _is_compressed(message: bytes) -> bool:
    return len(message) >= _COMPRESSED_MIN and message[0] == 1 and message[1] in _COMPRESSIONS


class Block:
    """A stretch at its place in a byte log. Positions are for ever, so it stays true."""

    __slots__ = ("_ends", "data", "end", "lasts", "next", "start")

    def __init__(self, stretch: Stretch, start: int) -> None:
        self.data = memoryview(stretch.encode())
        self.start, self.end = start, start + len(self.data)
        self.lasts, self.next = stretch.lasts, stretch.next
        self._ends = stretch.ends

    def size_at(self, position: int) -> int:
        """Bytes of the message that begins at `position`; 0 where none does."""
        at = bisect_right(self._ends, position - self.start)
        return self._ends[at] + self.start - position if self._starts(at) == position < self.end else 0

    def position_of(self, offset: int) -> int:
        """Where the message with the record `offset` begins, or the first one after that; else the end."""
        return self._starts(bisect_left(self.lasts, offset))

    def _starts(self, at: int) -> int:
        return self.start + self._ends[at - 1] if at else self.start
