"""Records of batches to Arrow and back: one row per record, and no Python object for any of them.

Needs pyarrow (the extra ``spark``); :mod:`ketch.records` itself does not import this module.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ketch.records import DecodedBatch, columns_to_records, records_to_columns
from ketch.records._buffers import BinaryBuffers, BinaryColumn

_BINARY = pa.binary()
_HEADER = pa.struct([pa.field("key", _BINARY, nullable=False), pa.field("value", _BINARY)])
_ANY_HEADERS = pa.list_(pa.struct([pa.field("key", _BINARY), pa.field("value", _BINARY)]))

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),  # ms since the epoch, -1: none
        pa.field("key", _BINARY),
        pa.field("value", _BINARY),
        pa.field("headers", pa.list_(_HEADER), nullable=False),
    ]
)


def to_arrow(batches: Sequence[DecodedBatch]) -> pa.RecordBatch:
    """All records of the batches as rows of :data:`SCHEMA`; a row's headers may be empty and are never null.

    Raises :class:`~ketch.errors.InvalidRecord` for records that are damaged or whose offset deltas do not rise, and
    ValueError where the keys, values or headers pass 2 GB, which one Arrow array of binary cannot hold.
    """
    count, offsets, timestamps, keys, values, header_offsets, headers, names, contents = records_to_columns(batches)
    header_fields = [_binary(headers, names), _binary(headers, contents)]
    items = pa.StructArray.from_arrays(header_fields, fields=list(_HEADER))
    lists = [None, pa.py_buffer(header_offsets)]
    columns = [
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(offsets)], 0),
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(timestamps)], 0),
        _binary(count, keys),
        _binary(count, values),
        pa.Array.from_buffers(SCHEMA.field("headers").type, count, lists, 0, children=[items]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def from_arrow(rows: pa.RecordBatch, max_bytes: int, split_timestamps: bool = False) -> list[DecodedBatch]:
    """Rows as batches, from the first on and up to ``max_bytes`` of records, but at least one record.

    A new batch starts where the distance to the batch's first offset is no int32, or that to its first timestamp no
    int64; with ``split_timestamps`` each batch has a single timestamp. The sum of the batches' record counts says how
    many rows were taken: ``rows.slice(taken)`` are the others.

    Columns are found by the names of :data:`SCHEMA`; binary may come as any type that Arrow casts to it, and headers
    may be null. Raises ValueError for offsets that do not rise from 0 on, nulls where there can be none, and a record
    that is larger than a batch can be.
    """
    if rows.num_rows == 0:
        return []
    headers = _cast(rows.column("headers"), _ANY_HEADERS)
    items = headers.values
    if items.null_count and headers.flatten().null_count:
        raise ValueError("a header is null")
    validity, header_offsets = headers.buffers()[:2]
    return columns_to_records(
        rows.num_rows,
        _int64s(rows, "offset"),
        _int64s(rows, "timestamp"),
        _buffers(_cast(rows.column("key"), _BINARY)),
        _buffers(_cast(rows.column("value"), _BINARY)),
        (validity, headers.offset, _window(headers, header_offsets)),
        _buffers(items.field(0)),
        _buffers(items.field(1)),
        max_bytes,
        split_timestamps,
    )


def _binary(count: int, column: BinaryColumn) -> pa.Array:
    validity, nulls, offsets, data = column
    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(_BINARY, count, buffers, nulls)


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    return array if array.type == wanted else array.cast(wanted)


def _int64s(rows: pa.RecordBatch, name: str) -> pa.Buffer:
    array = rows.column(name)
    if array.type != pa.int64() or array.null_count:
        raise ValueError(f"the column {name} is {array.type} with {array.null_count} nulls, not int64 without")
    return array.buffers()[1].slice(8 * array.offset, 8 * len(array))


def _buffers(array: pa.Array) -> BinaryBuffers:
    validity, offsets, data = array.buffers()
    return validity, array.offset, _window(array, offsets), data or b""


def _window(array: pa.Array, offsets: pa.Buffer | None) -> pa.Buffer | bytes:
    """The int32 offsets of the array's own elements; an empty array may have none at all."""
    return b"" if offsets is None or len(array) == 0 else offsets.slice(4 * array.offset, 4 * (len(array) + 1))
