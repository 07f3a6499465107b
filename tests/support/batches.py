"""RecordBatches (magic 2) built field by field, so that a test can get any one of them wrong.

Layout: Kafka's DefaultRecordBatch and DefaultRecord. Written plainly on purpose: it shares no code with ketch.records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import cramjam
import crc32c

Headers = Sequence[tuple[bytes, bytes | None]]
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def varint(value: int) -> bytes:
    """Zig-zag, as Kafka's ByteUtils.writeVarlong."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    value: bytes | None,
    key: bytes | None = None,
    headers: Headers = (),
    offset_delta: int = 0,
    timestamp_delta: int = 0,
) -> bytes:
    """One record with its length prefix."""
    body = (
        b"\0" + varint(timestamp_delta) + varint(offset_delta) + nullable(key) + nullable(value) + varint(len(headers))
    )
    body += b"".join(varint(len(name)) + name + nullable(content) for name, content in headers)
    return varint(len(body)) + body


def records(values: Iterable[bytes | None]) -> list[bytes]:
    return [record(value, offset_delta=n) for n, value in enumerate(values)]


class Read(NamedTuple):
    """A record as `read_records` gives it; a header's name is None where it was null."""

    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[Any, bytes | None], ...]


def read_records(data: bytes) -> Iterator[Read]:
    """The uncompressed records of a batch; each is as long as it says."""
    pos = 0
    while pos < len(data):
        size, pos = _read_varint(data, pos)
        end = pos + size
        timestamp_delta, pos = _read_varint(data, pos + 1)
        offset_delta, pos = _read_varint(data, pos)
        key, pos = _read_nullable(data, pos)
        value, pos = _read_nullable(data, pos)
        count, pos = _read_varint(data, pos)
        headers = []
        for _ in range(count):
            name, pos = _read_nullable(data, pos)
            content, pos = _read_nullable(data, pos)
            headers.append((name, content))
        assert pos == end
        yield Read(offset_delta, timestamp_delta, key, value, tuple(headers))


def _read_varint(data: bytes, pos: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        raw |= (data[pos] & 0x7F) << shift
        pos, shift = pos + 1, shift + 7
        if data[pos - 1] < 0x80:
            return raw >> 1 ^ -(raw & 1), pos


def _read_nullable(data: bytes, pos: int) -> tuple[bytes | None, int]:
    size, pos = _read_varint(data, pos)
    return (None, pos) if size < 0 else (data[pos : pos + size], pos + size)


def compress(codec: int, data: bytes) -> bytes:
    """Codec numbers above 4 leave the data as it is."""
    if codec == 1:
        return bytes(cramjam.gzip.compress(data))
    if codec == 2:
        return bytes(cramjam.snappy.compress_raw(data))
    if codec == 3:
        # Java reads independent blocks only ("Dependent block stream is unsupported").
        compressor = cramjam.lz4.Compressor(block_linked=False)
        compressor.compress(data)
        return bytes(compressor.finish())
    if codec == 4:
        return bytes(cramjam.zstd.compress(data))
    return data


def batch(
    encoded: Sequence[bytes],
    *,
    codec: int = 0,
    attributes: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
    magic: int = 2,
    last_offset_delta: int | None = None,
    base_timestamp: int = 1_700_000_000_000,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    count: int | None = None,
    crc: int | None = None,
    payload: bytes | None = None,
) -> bytes:
    """A whole batch. What is None is computed as a producer would; `payload` replaces the compressed records."""
    count = len(encoded) if count is None else count
    data = compress(codec, b"".join(encoded)) if payload is None else payload
    body = struct.pack(
        ">hiqqqhii",
        attributes | codec,
        len(encoded) - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        base_timestamp if max_timestamp is None else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    body += data
    crc = crc32c.crc32c(body) if crc is None else crc
    return struct.pack(">qiibI", base_offset, len(body) + 9, leader_epoch, magic, crc) + body


HEADER = struct.Struct(">qiibIhiqqqhii")


def decompress(codec: int, data: bytes) -> bytes:
    """What a broker sends: snappy comes in snappy-java's blocks (magic, two versions, then length and raw snappy)."""
    if codec == 2 and data.startswith(b"\x82SNAPPY\0"):
        plain, pos = b"", 16
        while pos < len(data):
            size = int.from_bytes(data[pos : pos + 4])
            plain += bytes(cramjam.snappy.decompress_raw(data[pos + 4 : pos + 4 + size]))
            pos += 4 + size
        return plain
    if codec == 2:
        return bytes(cramjam.snappy.decompress_raw(data))
    modules = {1: cramjam.gzip, 3: cramjam.lz4, 4: cramjam.zstd}
    return bytes(modules[codec].decompress(data)) if codec else data
