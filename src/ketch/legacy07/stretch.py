"""Lays records out as the messages that a client of Kafka 0.7 sees: their bytes, and the record that each ends with.

- A record is a message of magic 0 that is its value. Key, headers and timestamp have no place in it. A null value (a
  tombstone) is an empty payload. Magic 0, for clients of 0.6 and of 0.7 know it.
- The records of a message that was compressed by its producer are that message, byte for byte (`store.marked`).

A stretch is what lies between two boundaries of messages. No I/O; where it begins in the log is not known here.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

from ketch.log.reading import Records
from ketch.records import DecodedBatch, frame_messages, records_to_columns
from ketch.records._buffers import Buffer
from ketch.store.marked import read_mark
from ketch.store.positions import STEP, Place

_LENGTH = struct.Struct(">i")
_PLAIN = 9  # bytes around the payload of a message of magic 0
_COMPRESSED_MIN = 7  # magic, compression, checksum and a payload
_COMPRESSIONS = (1, 2)  # gzip, snappy
_NO_END = 1 << 63


@dataclass(slots=True)
class _Rows:
    offsets: memoryview
    times: memoryview
    ends: memoryview  # of the values, and 0 before them
    values: Buffer

    @classmethod
    def of(cls, batches: Sequence[DecodedBatch]) -> _Rows:
        _, offsets, times, _, (_, _, ends, values), *_ = records_to_columns(batches)
        return cls(_cast(offsets, "q"), _cast(times, "q"), _cast(ends, "i"), values)


def _framed(rows: _Rows, start: int, stop: int) -> bytes:
    return frame_messages(rows.ends, rows.values, start, stop)


class Stretch:
    """Messages in a row.

    Attributes:
        sizes: bytes of each message, its length field included.
        lasts: the offset of each message's last record.
        next: the offset after its last record, of a message or not.
        time: ms, of the last record.
    """

    def __init__(self, first: int) -> None:
        self.next = first
        self.time = -1
        self.sizes = array("q")
        self.lasts = array("q")
        self._pieces: list[tuple[_Rows, int, int] | bytes] = []  # plain messages; a compressed one, length and all

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def add(self, records: Records, end: int | None = None, more: bool = True) -> int:
        """Lays out the records from `next` on.

        Args:
            end: records from here on do not belong to it.
            more: others may follow those given: a message whose last records are not among them is left out.

        Returns:
            How many records the message that was left out has; 0 where all is laid out.
        """
        rows = _Rows.of(records.batches)
        row, stop = bisect_left(rows.offsets, self.next), len(rows.offsets)
        if end is not None:
            stop = bisect_left(rows.offsets, end)
        for offset, mark in sorted(records.marks.items()):
            at = bisect_left(rows.offsets, offset, row, stop)
            if at == stop or rows.offsets[at] != offset:
                continue
            count, message = read_mark(mark)
            if message and _is_compressed(message):
                self._plain(rows, row, bisect_left(rows.offsets, offset - count + 1, row, at))
                self._compressed(rows, at, message)
                row = at + 1
            elif more and rows.offsets[-1] < offset + count - 1 < (end or _NO_END):
                self._plain(rows, row, at)
                return count
        self._plain(rows, row, stop)
        self.next = max(self.next, records.end if end is None else min(records.end, end))
        return 0

    def _plain(self, rows: _Rows, start: int, stop: int) -> None:
        if start >= stop:
            return
        self.sizes.extend([_PLAIN + b - a for a, b in pairwise(rows.ends[start : stop + 1])])
        self.lasts.frombytes(rows.offsets[start:stop].cast("B"))
        self._pieces.append((rows, start, stop))
        self._passed(rows, stop - 1)

    def _compressed(self, rows: _Rows, last: int, message: bytes) -> None:
        self.sizes.append(4 + len(message))
        self.lasts.append(rows.offsets[last])
        self._pieces.append(_LENGTH.pack(len(message)) + message)
        self._passed(rows, last)

    def _passed(self, rows: _Rows, row: int) -> None:
        self.next, self.time = rows.offsets[row] + 1, rows.times[row]

    def encode(self) -> bytes:
        """The messages' bytes."""
        return b"".join([each if isinstance(each, bytes) else _framed(*each) for each in self._pieces])

    def places(self, start: int) -> list[Place]:
        """The places to keep, where it begins at `start`: the first boundary at or above each multiple of STEP."""
        ends = list(accumulate(self.sizes, initial=start))
        kept = {bisect_left(ends, step): None for step in range(start - start % STEP + STEP, ends[-1] + 1, STEP)}
        return [Place(ends[at], self.lasts[at - 1] + 1) for at in kept]


def _is_compressed(message: bytes) -> bool:
    return len(message) >= _COMPRESSED_MIN and message[0] == 1 and message[1] in _COMPRESSIONS


def _cast(buffer: Buffer, code: Literal["q", "i"]) -> memoryview:
    return memoryview(buffer).cast("B").cast(code)


class Block:
    """A stretch at its place in a byte log. Positions are for ever, so it stays true."""

    __slots__ = ("_starts", "data", "end", "lasts", "next", "start")

    def __init__(self, stretch: Stretch, start: int) -> None:
        self.data = stretch.encode()
        self.start, self.end = start, start + len(self.data)
        self.lasts, self.next = stretch.lasts, stretch.next
        self._starts = array("q", accumulate(stretch.sizes, initial=start))

    def size_at(self, position: int) -> int:
        """Bytes of the message that begins at `position`; 0 where none does."""
        at = bisect_left(self._starts, position)
        return self._starts[at + 1] - position if self._starts[at] == position and position < self.end else 0

    def position_of(self, offset: int) -> int:
        """Where the message with the record `offset` begins, or the first one after that; else the end."""
        return self._starts[bisect_left(self.lasts, offset)]
