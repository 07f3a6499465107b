"""What compaction asks of records, in plain Python; the twin of `_kernel_compact.pxi`, which says what a table is."""

from __future__ import annotations

import struct
from hashlib import blake2b

from ketch.records._pure import _read_records, _Reader
from ketch.records.compression import BytesLike

_SLOT = struct.Struct("<16sq")  # hash, newest offset + 1
_FREE = 0


def add_newest(
    table: bytearray, secret: bytes, room: int, records: BytesLike, count: int, base_offset: int
) -> tuple[int, int]:
    added = 0
    for index, (_, offset_delta, key, *_) in enumerate(_read_records(records, count)):
        if key is None:
            continue
        hashed = blake2b(key, digest_size=16, key=secret).digest()
        at, after = _find(table, hashed)
        if after == _FREE:
            if added >= room:
                return index, added
            added += 1
        _SLOT.pack_into(table, at, hashed, max(after, base_offset + offset_delta + 1))
    return count, added


def still_newest(
    table: bytearray,
    secret: bytes,
    records: BytesLike,
    count: int,
    base_offset: int,
    below: int,
    tombstones_below: int,
) -> bytearray:
    kept = bytearray(count)
    for index, (_, offset_delta, key, value, _) in enumerate(_read_records(records, count)):
        offset = base_offset + offset_delta
        if offset >= below:
            kept[index] = True
            continue
        if key is None or (value is None and offset < tombstones_below):
            continue
        _, after = _find(table, blake2b(key, digest_size=16, key=secret).digest())
        kept[index] = after <= offset + 1
    return kept


def select_records(records: BytesLike, mask: bytearray) -> bytes:
    data = bytes(records)
    reader = _Reader(data)
    selected = []
    for index, chosen in enumerate(mask):
        start = reader.pos
        reader.record(index)
        if chosen:
            selected.append(data[start : reader.pos])
    return b"".join(selected)


def _find(table: bytearray, hashed: bytes) -> tuple[int, int]:
    """The key's slot, or the free one where it belongs, and its newest offset + 1."""
    slots = len(table) // _SLOT.size
    at = int.from_bytes(hashed[:8], "little") % slots
    while True:
        held, after = _SLOT.unpack_from(table, at * _SLOT.size)
        if after == _FREE or held == hashed:
            return at * _SLOT.size, after
        at = (at + 1) % slots
