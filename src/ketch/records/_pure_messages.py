"""Records as the messages of Kafka 0.6 and 0.7, in plain Python; the twin of `_kernel_messages.pxi`."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from zlib import crc32

from ketch.records._buffers import Buffer
from ketch.records._pure import _batch_rows, _int32_offsets
from ketch.records.batch import DecodedBatch
from ketch.records.compression import BytesLike

_KINDS = (b"\0", b"\1\0")  # by magic: what stands before the checksum, magic and, where there is one, compression
_CHECKSUM = struct.Struct(">I")
_LENGTH = struct.Struct(">i")


def frame_messages(
    batches: Sequence[DecodedBatch],
    start: int,
    stop: int,
    base: int,
    magic: int,
    whole: Sequence[tuple[int, int, bytes]],
    others: Buffer,
) -> tuple[Buffer, Buffer, Buffer, int]:
    """The records from offset `start` up to `stop` as messages: each one's value in a plain message.

    Args:
        base: what the ends begin with.
        magic: of the plain messages, 0 or 1.
        whole: (first record, last record, message) of messages that stand for all of their records, in order. The
            message comes as it is, behind its length.
        others: as int64, first and last record of each run of records, in order, whose messages have the other magic.

    Returns:
        The messages; for each, as int64, where it ends and the offset of its last record; the time of the last one.
    """
    data, ends, lasts, time = bytearray(), array("q"), array("q"), -1
    first, last, message = -1, -1, b""
    left, runs = iter(whole), array("q", bytes(others))
    pairs = iter(zip(runs[::2], runs[1::2], strict=True))
    run = next(pairs, (stop, stop))
    for batch in batches:
        if batch.last_offset < start or batch.base_offset >= stop:
            continue
        for offset, timestamp, _, value, _ in _batch_rows(batch):
            if not start <= offset < stop:
                continue
            while last < offset:
                first, last, message = next(left, (stop, stop, b""))
            if first <= offset < last:
                continue
            while run[1] < offset:
                run = next(pairs, (stop, stop))
            kind = _KINDS[1 - magic if run[0] <= offset else magic]
            data += _plain_message(kind, value or b"") if offset < first else _LENGTH.pack(len(message)) + message
            ends.append(base + len(data))
            lasts.append(offset)
            time = timestamp
    return bytes(data), ends.tobytes(), lasts.tobytes(), time


def _plain_message(kind: bytes, payload: bytes) -> bytes:
    rest = kind + _CHECKSUM.pack(crc32(payload)) + payload
    return _LENGTH.pack(len(rest)) + rest


def has_word(data: BytesLike, word: bytes) -> bool:
    """Whether the word stands in the data. bytes.find takes ten times as long as the kernel where it does not."""
    return word in bytes(data)


def plain_messages(data: bytes) -> tuple[int, bytes, bytes] | None:
    """The payloads of a set of messages: their magic, and the int32 offsets and the data of a column of binary.

    None unless all of them are whole, plain (magic 0, or 1 without compression), of one magic, and have the right
    checksum. Where it is None, `legacy07.messages` takes the set apart and says what is wrong. Of no messages magic 1.
    """
    magic = 0 if data[4:5] == b"\0" else 1
    kind, head = _KINDS[magic], 9 + magic
    pos, payloads = 0, list[bytes]()
    while pos < len(data):
        end = pos + 4 + int.from_bytes(data[pos : pos + 4], signed=True)
        if not pos + head <= end <= len(data) or data[pos + 4 : pos + head - 4] != kind:
            return None
        payload = data[pos + head : end]
        if crc32(payload) != int.from_bytes(data[pos + head - 4 : pos + head]):
            return None
        payloads.append(payload)
        pos = end
    return magic, _int32_offsets([len(payload) for payload in payloads]).tobytes(), b"".join(payloads)
