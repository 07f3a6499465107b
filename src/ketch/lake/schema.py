"""The columns of an archive table; turns records into rows and back, column by column.

=========== ============================================== ==========================================================
column      type                                           holds
=========== ============================================== ==========================================================
partition   int, required                                  the topic's partition
offset      long, required                                 the record's offset
timestamp   timestamptz                                    the record's; null: it has none (-1), or see `exact`
key         binary                                         null: the key is null
value       binary                                         null: the value is null (a tombstone)
headers     list<struct<key: string, value: binary>>       in the record's order; key required, value null or not;
                                                           or one that is a mark, see below
append_time timestamptz, required                          when it was appended: the time in its entry id; with dense
                                                           offsets, whose ids hold none, when it was archived
exact       struct<timestamp_ms: long,                     set only when the columns above cannot hold the record:
            header_keys: list<binary>>                     a timestamp outside the years 1 to 9999, or a header
                                                           whose name is not UTF-8 (`headers` then shows it with
                                                           replacement characters)
=========== ============================================== ==========================================================

A *mark* is no header of the record: it keeps what `store.layouts.marked` says of an entry, for clients of Kafka 0.7. It
is the only header of its row, of the name MARK, and `exact.header_keys` is null. A record that has a header of that
name has it in `header_keys`, too. Readers of records never see a mark.

Field ids are those a catalog gives to a new table of this schema, so that files and tables agree in every catalog.
Importing this module needs pyarrow; only `iceberg_schema` and its neighbours need pyiceberg.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ketch.records.arrow import SCHEMA as RECORDS_SCHEMA

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.sorting import SortOrder

NO_TIMESTAMP = -1  # RecordBatch.NO_TIMESTAMP
EARLIEST_MS = -62_135_596_800_000  # 0001-01-01, and the end of 9999: what every engine's timestamps can hold
LATEST_MS = 253_402_300_799_999
DAY_MS = 86_400_000
OFFSET, TIMESTAMP, APPEND_TIME = 2, 3, 7  # field ids of the columns whose bounds are asked for

MARK = "ketch.legacy07"

_NOTHING: Mapping[int, bytes] = MappingProxyType({})
_TIME = pa.timestamp("us", tz="UTC")


def _field(name: str, kind: pa.DataType, field_id: int, required: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=not required, metadata={b"PARQUET:field_id": b"%d" % field_id})


_HEADER = pa.struct([_field("key", pa.string(), 10, True), _field("value", pa.binary(), 11)])
_HEADERS = pa.list_(_field("element", _HEADER, 9, True))
_HEADER_KEYS = pa.list_(_field("element", pa.binary(), 14, True))
_EXACT = pa.struct([_field("timestamp_ms", pa.int64(), 12), _field("header_keys", _HEADER_KEYS, 13)])

ARROW_SCHEMA = pa.schema(
    [
        _field("partition", pa.int32(), 1, True),
        _field("offset", pa.int64(), OFFSET, True),
        _field("timestamp", _TIME, TIMESTAMP),
        _field("key", pa.binary(), 4),
        _field("value", pa.binary(), 5),
        _field("headers", _HEADERS, 6, True),
        _field("append_time", _TIME, APPEND_TIME, True),
        _field("exact", _EXACT, 8),
    ]
)

_RECORD_HEADERS = RECORDS_SCHEMA.field("headers").type


def append_times(offsets: pa.Int64Array, bits: int) -> pa.Int64Array:
    """The ms in the entry ids of time offsets, no later than a timestamp column can hold."""
    return pc.min_element_wise(pc.shift_right(offsets, pa.scalar(bits, pa.int64())), pa.scalar(LATEST_MS))


def to_lake(
    rows: pa.RecordBatch, partition: int, appended: pa.Int64Array | int, marks: Mapping[int, bytes] = _NOTHING
) -> pa.RecordBatch:
    """Records (`records.arrow.SCHEMA`) as rows of an archive table (ARROW_SCHEMA).

    Args:
        appended: ms, one for each record (`append_times`), or one for all of them.
        marks: by offset; of records without headers.
    """
    count = rows.num_rows
    if isinstance(appended, int):
        appended = pa.repeat(pa.scalar(appended, pa.int64()), count)
    timestamp, odd_time = _timestamps(rows.column("timestamp"))
    headers, header_keys = _named(rows.column("headers"))
    if marks:
        headers = _marked(rows.column("offset"), headers, marks)
    columns = [
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        rows.column("offset"),
        timestamp,
        rows.column("key"),
        rows.column("value"),
        headers,
        _times(appended),
        _exact(rows.column("timestamp"), odd_time, header_keys),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


def from_lake(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of an archive table, from any engine's files, as records (`records.arrow.SCHEMA`) in the rows' order.

    Args:
        rows: with the columns offset, timestamp, key, value, headers and exact at least.
    """
    millis = pc.fill_null(_cast(rows.column("timestamp"), pa.timestamp("ms", tz="UTC")).cast(pa.int64()), NO_TIMESTAMP)
    headers = _cast(rows.column("headers"), _HEADERS)
    header_keys = None
    exact = rows.column("exact")
    if exact.null_count < len(exact):
        exact = _cast(exact, _EXACT)
        time, header_keys = exact.flatten()  # a null struct's children are null here
        millis = pc.coalesce(time, millis)
    columns = [
        _cast(rows.column("offset"), pa.int64()),
        millis,
        _cast(rows.column("key"), pa.binary()),
        _cast(rows.column("value"), pa.binary()),
        _raw(headers, header_keys),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS_SCHEMA)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    # Truncating: a file that another engine rewrote might hold microseconds, which no record has.
    return column if column.type.equals(kind) else column.cast(kind, safe=False)


def _times(millis: pa.Int64Array) -> pa.Array:
    return millis.cast(pa.timestamp("ms", tz="UTC")).cast(_TIME)


def _timestamps(millis: pa.Int64Array) -> tuple[pa.Array, pa.Array]:
    """The timestamp column, and which records' timestamps do not fit into it."""
    odd = pc.or_(pc.less(millis, EARLIEST_MS), pc.greater(millis, LATEST_MS))
    absent = pc.or_(odd, pc.equal(millis, NO_TIMESTAMP))
    return _times(pc.if_else(absent, pa.scalar(None, pa.int64()), millis)), odd


def _named(headers: pa.ListArray) -> tuple[pa.ListArray, pa.ListArray | None]:
    """Headers with their names as text, and the names of those records that have one which is no text, if any has."""
    keys, values = headers.values.field("key"), headers.values.field("value")
    try:
        names, odd = keys.cast(pa.string()), None
    except pa.ArrowInvalid:
        texts = [key.decode(errors="replace") for key in keys.to_pylist()]
        names = pa.array(texts, pa.string())
        odd = _odd_keys(headers, keys, pc.or_(pc.not_equal(names.cast(pa.binary()), keys), pc.equal(names, MARK)))
    else:
        if len(names) and pc.index(names, MARK).as_py() >= 0:
            odd = _odd_keys(headers, keys, pc.equal(names, MARK))
    header = pa.StructArray.from_arrays([names, values], fields=list(_HEADER))
    return pa.ListArray.from_arrays(headers.offsets, header, type=_HEADERS), odd


def _marked(offsets: pa.Int64Array, headers: pa.ListArray, marks: Mapping[int, bytes]) -> pa.ListArray:
    """Headers, and the marks of records that have none."""
    lists = headers.to_pylist()
    for row, offset in enumerate(offsets.to_pylist()):
        if offset in marks and not lists[row]:
            lists[row] = [{"key": MARK, "value": marks[offset]}]
    return pa.array(lists, _HEADERS)


def split_marks(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, bytes]]:
    """Rows of an archive table without their marks, and these by offset."""
    headers = rows.column("headers")
    names = headers.flatten().field("key").cast(pa.string())
    if not len(names) or pc.index(names, MARK).as_py() < 0:
        return rows, {}
    exact, marks = rows.column("exact").to_pylist(), dict[int, bytes]()
    lists = headers.to_pylist()
    for row, offset in enumerate(rows.column("offset").to_pylist()):
        odd = exact[row] is not None and exact[row]["header_keys"] is not None
        if len(lists[row]) == 1 and lists[row][0]["key"] == MARK and not odd:
            marks[offset], lists[row] = lists[row][0]["value"], []
    column = rows.schema.get_field_index("headers")
    return rows.set_column(column, rows.schema.field(column), pa.array(lists, headers.type)), marks


def _odd_keys(headers: pa.ListArray, keys: pa.BinaryArray, odd: pa.BooleanArray) -> pa.ListArray:
    ends, flags = headers.offsets.to_pylist(), odd.to_pylist()
    whole = [not any(flags[start:end]) for start, end in pairwise(ends)]
    every = pa.ListArray.from_arrays(headers.offsets, keys, type=_HEADER_KEYS)
    return pc.if_else(pa.array(whole, pa.bool_()), pa.scalar(None, _HEADER_KEYS), every)


def _exact(millis: pa.Int64Array, odd_time: pa.BooleanArray, header_keys: pa.ListArray | None) -> pa.Array:
    if header_keys is None and not pc.any(odd_time).as_py():
        return pa.nulls(len(millis), _EXACT)
    if header_keys is None:
        header_keys = pa.nulls(len(millis), _HEADER_KEYS)
    absent = pc.and_(pc.invert(odd_time), header_keys.is_null())
    return pa.StructArray.from_arrays([millis, header_keys], fields=list(_EXACT), mask=absent)


def _raw(headers: pa.ListArray, header_keys: pa.ListArray | None) -> pa.ListArray:
    """Headers with their names as bytes: their own where `header_keys` has them."""
    keys = headers.values.field("key").cast(pa.binary())
    if header_keys is not None and header_keys.null_count < len(header_keys):
        names, ends = keys.to_pylist(), headers.offsets.to_pylist()
        for (start, end), exact in zip(pairwise(ends), header_keys.to_pylist(), strict=True):
            if exact is not None:
                names[start:end] = exact
        keys = pa.array(names, pa.binary())
    header = pa.StructArray.from_arrays([keys, headers.values.field("value")], fields=list(_RECORD_HEADERS.value_type))
    return pa.ListArray.from_arrays(headers.offsets, header, type=_RECORD_HEADERS)


def iceberg_schema() -> Schema:
    """ARROW_SCHEMA as Iceberg has it."""
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    return pyarrow_to_schema(ARROW_SCHEMA)


def partition_spec() -> PartitionSpec:
    """By the topic's partition and the day of append: whole files then expire, and no file mixes partitions."""
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import DayTransform, IdentityTransform

    return PartitionSpec(
        PartitionField(source_id=1, field_id=1000, transform=IdentityTransform(), name="partition"),
        PartitionField(source_id=APPEND_TIME, field_id=1001, transform=DayTransform(), name="append_time_day"),
    )


def sort_order() -> SortOrder:
    """By offset, within a file."""
    from pyiceberg.table.sorting import SortField, SortOrder
    from pyiceberg.transforms import IdentityTransform

    return SortOrder(SortField(source_id=2, transform=IdentityTransform()))
