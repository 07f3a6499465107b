"""Messages that a client of Kafka 0.7 compressed, and how their entries keep the bytes that it sent.

A compressed message is stored as the records that it holds, for everybody. The field `legacy07`, which nobody else
looks at, keeps the message itself for 0.7's consumers. It stands in the entry of the LAST record: entries leave a
stream at its front, so the message is there as long as a record of it is.

===============  ===============================================================================================
layout           field `legacy07`
===============  ===============================================================================================
record           last entry: `<records>:<message>`, the message without its length. First of several: `<records>`,
                 which tells a reader in the middle of a message from one between two plain records.
batch            `<records>:<message>` beside the field `batch` that holds the records
===============  ===============================================================================================

The entries of a message go into the stream in one transaction, as those of any batch. This module knows nothing of what
is in a message.
"""

from __future__ import annotations

from dataclasses import dataclass

from ketch.records import BytesLike, find_batches, has_word, scan_reply
from ketch.store.layouts.layout import Chunk, Operands, Payload
from ketch.store.offsets import OffsetNumbering

FIELD = b"legacy07"

_NAME = b"$8\r\nlegacy07\r\n"
_LARGE_ENTRY = 1 << 12  # bytes

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


@dataclass(frozen=True, slots=True)
class MarkedBatch:
    """The records of one compressed message and the message: a `Payload`.

    Args:
        records: they as a payload of their own.
        last: the last of them alone, where each is an entry of its own.
        message: without its length.
    """

    records: Payload
    last: Payload
    message: bytes

    @property
    def count(self) -> int:
        return self.records.count

    @property
    def entries(self) -> int:
        return self.records.entries

    @property
    def size(self) -> int:
        return self.records.size + len(self.message)

    @property
    def weight(self) -> int:
        return self.records.weight + len(self.message)

    @property
    def timestamp(self) -> int | None:
        return self.records.timestamp

    @property
    def producer(self) -> int | None:
        return self.records.producer

    def plain(self, inflated_max: int) -> BytesLike:
        return self.records.plain(inflated_max)

    def largest(self) -> int:
        return self.records.largest() + len(self.message)

    def operands(self) -> Operands | None:
        return None  # the module makes the same fields of all records

    def chunk(self, base: int) -> Chunk:
        return self.records.chunk(base)

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
