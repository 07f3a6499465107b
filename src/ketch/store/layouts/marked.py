"""Marks: what a client of Kafka 0.7 sent that its records do not say. A mark is the field `legacy07` of an entry.

Every message of a 0.7 client is stored as records, for everybody, and 0.7's consumers get back the bytes that came. Of
most messages the records say all: a plain one is its payload behind a head that is always the same. Two kinds need a
mark, which nobody but Ketch looks at:

- A compressed message: the mark keeps the message. It stands in the entry of the LAST record: entries leave a stream at
  its front, so the message is there as long as a record of it is.
- A plain message whose magic is not the usual one (`legacy_magic`): the mark keeps the magic. Each entry has its own.

===============  ===============================================================================================
layout           field `legacy07`
===============  ===============================================================================================
record           last entry of a compressed message: `<records>:<message>`, the message without its length. First of
                 several: `<records>`, which tells a reader in the middle of a message from one between two plain
                 records. Entry of a plain message: `plain:1:<magic>`
batch            beside the field `batch` that holds the records: `<records>:<message>`, or `plain:<records>:<magic>`
                 for as many plain messages
===============  ===============================================================================================

The entries of a message go into the stream in one transaction, as those of any batch. This module knows nothing of what
is in a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ketch.records import BytesLike, find_batches, has_word, scan_reply
from ketch.store.layouts.layout import Chunk, Operands, Payload
from ketch.store.offsets import OffsetNumbering

FIELD = b"legacy07"

_NAME = b"$8\r\nlegacy07\r\n"
_LARGE_ENTRY = 1 << 12  # bytes
_PLAIN = b"plain"
_DIGITS_MAX = 5  # of the number of plain messages in an entry: the field may be written by hand
_MARK_SIZE = 40  # bytes of a plain message's field as arguments of a command, about

Marks = dict[int, bytes]
"""The field's values, by the offset of an entry's last record."""


def closing(count: int, message: bytes) -> bytes:
    """The field of a message's last record."""
    return b"%d:%b" % (count, message)


def opening(count: int) -> bytes:
    """The field of the first of several records."""
    return b"%d" % count


def read_mark(value: bytes) -> tuple[int, bytes]:
    """How many records a message has, and the message, empty in an opening field; (0, b"") for any other value."""
    head, colon, message = value.partition(b":")
    if not head.isdigit() or len(head) > 10 or bool(colon) != bool(message):
        return 0, b""
    return int(head), message


def plain_mark(count: int, magic: int) -> bytes:
    """The field of an entry with so many plain messages."""
    return b"%b:%d:%d" % (_PLAIN, count, magic)


def read_plain_mark(value: bytes) -> tuple[int, int]:
    """How many plain messages an entry holds, and their magic; (0, 0) for any other value."""
    word, _, rest = value.partition(b":")
    count, _, magic = rest.partition(b":")
    if word != _PLAIN or not count.isdigit() or len(count) > _DIGITS_MAX or magic not in (b"0", b"1"):
        return 0, 0
    return int(count), int(magic)


def spread(marks: Marks) -> Marks:
    """The marks of records that do not lie in entries: each plain message has one for itself."""
    spread = Marks()
    for offset, mark in marks.items():
        count, magic = read_plain_mark(mark)
        if count > 1:
            spread |= dict.fromkeys(range(offset - count + 1, offset + 1), plain_mark(1, magic))
        else:
            spread[offset] = mark
    return spread


@dataclass(frozen=True, slots=True)
class _WithMarks:
    """What a payload with marks has of that without them.

    Args:
        records: the payload without marks.
    """

    records: Payload

    @property
    def count(self) -> int:
        return self.records.count

    @property
    def entries(self) -> int:
        return self.records.entries

    @property
    def timestamp(self) -> int | None:
        return self.records.timestamp

    @property
    def producer(self) -> int | None:
        return self.records.producer

    def plain(self, inflated_max: int) -> BytesLike:
        return self.records.plain(inflated_max)

    def chunk(self, base: int) -> Chunk:
        return self.records.chunk(base)

    def operands(self) -> Operands | None:
        return None  # the append module has no field for marks


@dataclass(frozen=True, slots=True)
class PlainBatch(_WithMarks):
    """Plain messages of one magic, which is not the usual one: a `Payload`.

    Args:
        magic: of all of them.
    """

    magic: int

    @property
    def size(self) -> int:
        return self.records.size

    @property
    def weight(self) -> int:
        return self.records.weight + _MARK_SIZE * self.entries

    def largest(self) -> int:
        return self.records.largest() + _MARK_SIZE

    def appends(self, stream: bytes, numbering: OffsetNumbering, base: int) -> bytes:
        whole = self.records.appends(stream, numbering, base)
        return b"".join([_widened(command, self._field) for command in _pieces(whole, self.entries)])

    def arguments(self) -> tuple[bytes, int]:
        whole, count = self.records.arguments()
        entries = [_with_words(entry, self._field) for entry in _pieces(whole, self.entries, _number)]
        return b"".join(entries), count + 2 * self.entries

    @property
    def _field(self) -> bytes:
        return _NAME + _bulk(plain_mark(self.count // self.entries, self.magic))


def _pieces(whole: bytes, count: int, further: Callable[[bytes], int] = lambda _: 0) -> Iterator[bytes]:
    """The commands or entries that stand in a row.

    Args:
        further: how many words an entry has beside its first one.
    """
    start = 0
    for _ in range(count):
        end, _ = scan_reply(whole, start, len(whole), 1 + further(whole[start : start + 32]))
        yield whole[start:end]
        start = end


@dataclass(frozen=True, slots=True)
class MarkedBatch(_WithMarks):
    """The records of one compressed message and the message: a `Payload`.

    Args:
        last: the last of them alone, where each is an entry of its own.
        message: without its length.
    """

    last: Payload
    message: bytes

    @property
    def size(self) -> int:
        return self.records.size + len(self.message)

    @property
    def weight(self) -> int:
        return self.records.weight + len(self.message)

    def largest(self) -> int:
        return self.records.largest() + len(self.message)

    def appends(self, stream: bytes, numbering: OffsetNumbering, base: int) -> bytes:
        whole = self.records.appends(stream, numbering, base)
        last = self.last.appends(stream, numbering, base + self.count - self.last.count)
        middle = whole[: len(whole) - len(last)]
        if middle:  # the first entry's command begins it
            first_end, _ = scan_reply(middle, 0, len(middle), 1)
            middle = _widened(middle[:first_end], self._opening) + middle[first_end:]
        return middle + _widened(last, self._closing)

    def arguments(self) -> tuple[bytes, int]:
        whole, count = self.records.arguments()
        last, _ = self.last.arguments()
        middle = whole[: len(whole) - len(last)]
        if middle:
            words = _number(middle)
            first_end, _ = scan_reply(middle, 0, len(middle), 1 + words)
            middle = _with_words(middle[:first_end], self._opening) + middle[first_end:]
        return middle + _with_words(last, self._closing), count + 2 * (2 if middle else 1)

    @property
    def _opening(self) -> bytes:
        return _NAME + _bulk(opening(self.count))

    @property
    def _closing(self) -> bytes:
        return _NAME + _bulk(closing(self.count, self.message))


def _bulk(word: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(word), word)


def _widened(command: bytes, field: bytes) -> bytes:
    """A command with a field and its value more at its end."""
    head = command.index(b"\r\n")
    return b"*%d%b%b" % (int(command[1:head]) + 2, command[head:], field)


def _number(arguments: bytes) -> int:
    """The first of packed arguments, a number."""
    head = arguments.index(b"\r\n") + 2
    return int(arguments[head : arguments.index(b"\r\n", head)])


def _with_words(arguments: bytes, field: bytes) -> bytes:
    """An entry's packed arguments, the number of its fields and values first, with a field and its value more."""
    head = arguments.index(b"\r\n") + 2
    end = arguments.index(b"\r\n", head) + 2
    return _bulk(b"%d" % (int(arguments[head : end - 2]) + 2)) + arguments[end:] + field


def find_marks(reply: BytesLike, numbering: OffsetNumbering, entries: int) -> Marks:
    """The marks in a reply of so many entries to XRANGE; of a message in one entry, too, that of its first record."""
    data, marks = bytes(reply), Marks()
    # Through small entries the walk takes longer than the search for a name that hardly any topic has.
    if len(data) > _LARGE_ENTRY * entries or has_word(data, _NAME):
        for offset, _, _, start, end in find_batches(data, numbering.bits, numbering.dense, FIELD):
            if start < end:
                marks[offset] = mark = data[start:end]
                count, message = read_mark(mark)
                if message and count > 1:
                    marks.setdefault(offset - count + 1, opening(count))
    return marks
