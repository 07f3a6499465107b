"""Records that librdkafka gave, as batches for a stream of Redis: each record on the offset that it had.

They go through the columns that `records.columns_to_records` takes, so that what a record looks like in a stream is
said in one place. Pure functions on messages.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ketch.records import DecodedBatch, columns_to_records
from ketch.records._buffers import BinaryBuffers

if TYPE_CHECKING:
    from confluent_kafka import Message

_NO_LIMIT = 1 << 31
_TIMESTAMP_NOT_AVAILABLE = 0  # confluent_kafka.TIMESTAMP_NOT_AVAILABLE


def batches(messages: Sequence[Message], most: int, size: int) -> Iterator[DecodedBatch]:
    """The records as batches without gaps: one ends where an offset is missing, or it holds as much as it may.

    Args:
        messages: of one partition, in the order of their offsets.
        most: records of a batch.
        size: bytes of a batch, about; a larger record is a batch of its own.
    """
    first, held = 0, 0
    for index, message in enumerate(messages):
        gap = index > first and message.offset() != (messages[index - 1].offset() or 0) + 1
        if gap or index - first == most or (held and held + len(message) > size):
            yield from _batches(messages[first:index])
            first, held = index, 0
        held += len(message)
    yield from _batches(messages[first:])


def _batches(messages: Sequence[Message]) -> list[DecodedBatch]:
    if not messages:
        return []
    headers: list[Any] = [message.headers() or () for message in messages]
    names: list[bytes] = []
    contents: list[bytes | None] = []
    for each in headers:
        for name, content in each:
            names.append(name.encode())
            contents.append(content)
    return columns_to_records(
        len(messages),
        array("q", [message.offset() for message in messages]),
        array("q", [_timestamp(message) for message in messages]),
        _column([message.key() for message in messages]),
        _column([message.value() for message in messages]),
        (None, 0, array("i", accumulate(map(len, headers), initial=0))),
        _column(names),
        _column(contents),
        _NO_LIMIT,
        False,
    )


def _timestamp(message: Message) -> int:
    kind, timestamp = message.timestamp()
    return -1 if kind == _TIMESTAMP_NOT_AVAILABLE else timestamp


def _column(cells: Sequence[bytes | None]) -> BinaryBuffers:
    ends = array("i", accumulate((len(cell) if cell else 0 for cell in cells), initial=0))
    data = b"".join([cell for cell in cells if cell])
    if None not in cells:
        return None, 0, ends, data
    bits = bytearray(-(-len(cells) // 8))
    for index, cell in enumerate(cells):
        if cell is not None:
            bits[index >> 3] |= 1 << (index & 7)
    return bytes(bits), 0, ends, data
