"""Messages of Kafka 0.6 (magic 0) and 0.7 (magic 1), and sets of them, without I/O.

A message on the wire: LENGTH int32 of all that follows, MAGIC int8, with magic 1 COMPRESSION int8, CRC32 of the
payload, payload. A set is messages one after the other. The payload of a compressed message is, inflated, a set again.
What is wrong with a set raises `InvalidMessage`, which says what and where; a message that is cut short at the end of
a set is none of it, as in kafka.message.ByteBufferMessageSet: a fetch cuts messages off, and 0.7 stores what comes
before.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple
from zlib import crc32

from ketch.errors import CorruptRecord
from ketch.legacy07.errors import InvalidMessage
from ketch.records.compression import BytesLike, decompress

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2

_DEPTH_MAX = 8  # compressed messages within each other; no client makes more than two
_HEAD_0 = struct.Struct(">iBI")  # length, magic, checksum
_HEAD_1 = struct.Struct(">iBBI")  # length, magic, compression, checksum
OVERHEAD: Final = (_HEAD_0.size, _HEAD_1.size)  # by magic: bytes around a payload


class Message(NamedTuple):
    """One message, as it came or is sent.

    Attributes:
        payload: as on the wire: the compressed bytes of a set where `compression` is not NONE.
    """

    magic: int
    compression: int
    payload: bytes

    @property
    def size(self) -> int:
        """Bytes of the whole message, its length field included: how far the next one's position is from this one's."""
        return OVERHEAD[self.magic] + len(self.payload)

    def encode(self) -> bytes:
        """The message as it came: nothing in it is free to choose."""
        payload = self.payload
        if self.magic == 0:
            return _HEAD_0.pack(5 + len(payload), 0, crc32(payload)) + payload
        return _HEAD_1.pack(6 + len(payload), 1, self.compression, crc32(payload)) + payload


def split(data: BytesLike) -> list[Message]:
    """As `take`, the messages alone."""
    return take(data)[0]


def take(data: BytesLike) -> tuple[list[Message], int]:
    """The messages of a set, compressed ones as they are, without the one that is cut short at its end; their bytes.

    Raises:
        InvalidMessage: one of them is damaged or of a kind that is not known, or the only one is cut short.
    """
    data = bytes(data)
    messages: list[Message] = []
    head, made = _HEAD_1.unpack_from, Message._make
    pos, end = 0, len(data)
    while end - pos >= 4:
        # Of a message of magic 0 the head is a byte shorter; the last one of a set is read as far as it goes.
        length, magic, compression, checksum = head(data, pos) if end - pos >= 10 else _short_head(data[pos:])
        after = pos + 4 + length
        if length < 5 or after > end:
            if length < 5 or not messages:
                raise InvalidMessage("length", f"message {len(messages)} of a set says it has {length} bytes")
            break
        if magic == 1 and length > 5:
            payload = data[pos + 10 : after]
        elif magic == 0:
            compression, checksum = NONE, int.from_bytes(data[pos + 5 : pos + 9])
            payload = data[pos + 9 : after]
        else:
            raise _unknown_kind(len(messages), magic, length)
        if compression > SNAPPY:
            raise InvalidMessage("compression", f"message {len(messages)} of a set has compression {compression}")
        if crc32(payload) != checksum:
            raise InvalidMessage("checksum", f"message {len(messages)} of a set fails its checksum")
        messages.append(made((magic, compression, payload)))
        pos = after
    return messages, pos


def _short_head(rest: bytes) -> tuple[int, int, int, int]:
    length, magic, compression, checksum = _HEAD_1.unpack(rest.ljust(_HEAD_1.size, b"\0"))
    return length, magic, compression, checksum


def _unknown_kind(index: int, magic: int, length: int) -> InvalidMessage:
    if magic == 1:
        return InvalidMessage("length", f"message {index} of a set says it has {length} bytes")
    return InvalidMessage("magic", f"message {index} of a set has magic {magic}")


def inner(message: Message, limit: int) -> Iterator[bytes]:
    """The payloads that a message holds: its own where it is not compressed, else those within, to any depth.

    Args:
        limit: bytes that all that is inflated on the way may have in sum.

    Raises:
        InvalidMessage: what is within is damaged, or too deep.
        RecordTooLarge: it inflates to more.
    """
    left = limit
    waiting = [(message, 0)]  # the next one last, with its depth
    while waiting:
        one, depth = waiting.pop()
        if one.compression == NONE:
            yield one.payload
            continue
        if depth == _DEPTH_MAX:
            raise InvalidMessage("nesting", f"compressed messages within each other, more than {_DEPTH_MAX} deep")
        plain = _inflate(one, left)
        left -= len(plain)
        waiting += [(each, depth + 1) for each in reversed(split(plain))]


def _inflate(message: Message, limit: int) -> BytesLike:
    try:
        return decompress(message.compression, message.payload, limit)  # the codes are those of today's batches
    except CorruptRecord as error:
        raise InvalidMessage("content", f"a compressed message: {error}") from None
