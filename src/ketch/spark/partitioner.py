"""Kafka's default partitioner over a column of keys: murmur2, as `org.apache.kafka.common.utils.Utils` has it."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_SEED = 0x9747B28C
_M = np.uint32(0x5BD1E995)

Hashes: TypeAlias = npt.NDArray[np.uint32]
Indexes: TypeAlias = npt.NDArray[np.int64]


def partitions(keys: pa.Array, count: int, unkeyed: int) -> Indexes:
    """The partition of each key (binary), `unkeyed` for null ones."""
    chosen: Indexes = (murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    if keys.null_count:
        chosen[keys.is_null().to_numpy(zero_copy_only=False)] = unkeyed
    return chosen


def murmur2(keys: pa.Array) -> Hashes:
    """The hash of each key, all keys of one length at a time."""
    _, offsets_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer or b"", np.uint8)
    lengths = np.diff(offsets)
    hashes = np.zeros(len(keys), np.uint32)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        hashes[rows] = _hashed(data[offsets[rows][:, None] + np.arange(length)])
    return hashes


def _hashed(keys: npt.NDArray[np.uint8]) -> Hashes:
    """A row of bytes each."""
    count, length = keys.shape
    hashes = np.full(count, _SEED ^ length, np.uint32)
    whole = length // 4 * 4
    words = np.ascontiguousarray(keys[:, :whole]).view("<u4") if count else np.zeros((0, 0), np.uint32)
    for column in range(whole // 4):
        word = words[:, column] * _M
        word = (word ^ (word >> np.uint32(24))) * _M
        hashes = (hashes * _M) ^ word
    if length > whole:
        for column in range(whole, length):
            hashes ^= keys[:, column].astype(np.uint32) << np.uint32(8 * (column - whole))
        hashes *= _M
    hashes = (hashes ^ (hashes >> np.uint32(13))) * _M
    return hashes ^ (hashes >> np.uint32(15))
