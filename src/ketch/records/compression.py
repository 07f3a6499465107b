"""The compression codecs of a record batch (org.apache.kafka.common.record.CompressionType), in bounded memory."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import TypeAlias

import cramjam

from ketch.errors import CorruptRecord, RecordTooLarge, UnsupportedCompression

BytesLike: TypeAlias = bytes | bytearray | memoryview


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


GZIP_LEVEL = 6
ZSTD_LEVEL = 3

# snappy-java's SnappyOutputStream ("xerial" framing): magic, version, oldest compatible version, then blocks.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024

# Kafka's Lz4BlockInputStream refuses frames whose blocks depend on each other, which is what cramjam's frames have,
# so frames are built here: version 1, independent blocks of 64 KB, no checksums (the batch has its own).
_LZ4_HEADER = bytes.fromhex("04224d18 60 40 82")
_LZ4_BLOCK = 64 * 1024
_LZ4_STORED = 0x8000_0000
_LZ4_END = bytes(4)

# What Rust's std::io says when a bounded output is full; cramjam knows no other sign of it.
_OUTPUT_FULL = "failed to write whole buffer"

# Fresh pages cost more than inflating a usual batch into them, so rooms of this size outlive their call: one per thread
# that was ever in here at once.
_SPARE_SIZE = 2 * 1024 * 1024
_SPARE: list[bytearray] = []

_DECOMPRESS_INTO: dict[int, Callable[[BytesLike, memoryview], int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def decompress(codec: int, data: BytesLike, limit: int) -> BytesLike:
    """Returns what ``data`` inflates to, at most ``limit`` bytes, using about that much memory at most.

    Snappy may be raw or in xerial framing; gzip, lz4 and zstd may be several members or frames, sized or not.

    Raises :class:`UnsupportedCompression` for a codec outside 0 to 4, :class:`RecordTooLarge` beyond ``limit`` and
    :class:`CorruptRecord` for data that is damaged or cut short.
    """
    if codec:
        return _snappy(data, limit) if _known(codec) is Codec.SNAPPY else _stream(codec, data, limit)
    if len(data) > limit:
        raise _too_large(codec, limit)
    return data


def compress(codec: int, data: BytesLike) -> bytes:
    """Compresses the records of one batch in the framing that every client reads.

    Raises :class:`UnsupportedCompression` for a codec outside 0 to 4.
    """
    match _known(codec):
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=GZIP_LEVEL))
        case Codec.SNAPPY:
            return b"".join(_xerial_parts(data))
        case Codec.LZ4:
            return b"".join(_lz4_parts(data))
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL))
        case _:
            return bytes(data)


def _known(codec: int) -> Codec:
    try:
        return Codec(codec)
    except ValueError:
        raise UnsupportedCompression(f"compression codec {codec} is not known") from None


def _too_large(codec: int, limit: int) -> RecordTooLarge:
    return RecordTooLarge(f"the batch inflates ({Codec(codec).name.lower()}) to more than {limit} bytes")


def _corrupt(codec: int, reason: object) -> CorruptRecord:
    return CorruptRecord(f"the batch does not inflate ({Codec(codec).name.lower()}): {reason}")


def _stream(codec: int, data: BytesLike, limit: int) -> bytes:
    room = _SPARE.pop() if _SPARE else bytearray(_SPARE_SIZE)
    try:
        plain = _inflate(codec, data, memoryview(room)[:limit])
    finally:
        _SPARE.append(room)
    if plain is None and limit > _SPARE_SIZE:
        # Pages of an anonymous map take no memory until they are written.
        with mmap.mmap(-1, limit) as pages, memoryview(pages) as view:
            plain = _inflate(codec, data, view)
    if plain is None:
        raise _too_large(codec, limit)
    return plain


def _inflate(codec: int, data: BytesLike, room: memoryview) -> bytes | None:
    """What ``data`` inflates to, or None when ``room`` cannot hold it."""
    try:
        return bytes(room[: _DECOMPRESS_INTO[codec](data, room)])
    except cramjam.DecompressionError as error:
        if _OUTPUT_FULL in str(error):
            return None
        raise _corrupt(codec, error) from None


def _snappy(data: BytesLike, limit: int) -> bytearray:
    view = memoryview(data)
    blocks = list(_xerial_blocks(view)) if view[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC else [view]
    try:
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        if sum(sizes) > limit:
            raise _too_large(Codec.SNAPPY, limit)
        out = bytearray(sum(sizes))
        room = memoryview(out)
        for block, size in zip(blocks, sizes, strict=True):
            cramjam.snappy.decompress_raw_into(block, room[:size])
            room = room[size:]
    except cramjam.DecompressionError as error:
        raise _corrupt(Codec.SNAPPY, error) from None
    return out


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    pos = len(_XERIAL_HEADER)
    if len(view) < pos:
        raise _corrupt(Codec.SNAPPY, "its header is cut short")
    while pos < len(view):
        size = int.from_bytes(view[pos : pos + 4], "big")
        pos += 4
        if not 0 < size <= len(view) - pos:
            raise _corrupt(Codec.SNAPPY, "a block is cut short")
        yield view[pos : pos + size]
        pos += size


def _xerial_parts(data: BytesLike) -> Iterator[bytes]:
    view = memoryview(data)
    yield _XERIAL_HEADER
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        yield struct.pack(">i", len(block))
        yield block


def _lz4_parts(data: BytesLike) -> Iterator[bytes]:
    view = memoryview(data)
    yield _LZ4_HEADER
    for start in range(0, len(view), _LZ4_BLOCK):
        plain = view[start : start + _LZ4_BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            yield struct.pack("<I", len(block))
            yield block
        else:
            yield struct.pack("<I", len(plain) | _LZ4_STORED)
            yield bytes(plain)
    yield _LZ4_END
