"""Records as the rows of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from ketch.redis.blocking import Server
from ketch.spark.plan import ReadRange
from ketch.spark.tier import read_records

_MICROS_MAX = 2**63 // 1000 - 1  # ms that fit into a timestamp of Spark
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIMESTAMP),
        ("timestampType", pa.int32()),
    ]
)
_SCHEMA_HEADERS = _SCHEMA.append(pa.field("headers", pa.list_(_HEADER)))


def read(server: Server, what: ReadRange, fail_on_loss: bool, headers: bool) -> Iterator[pa.RecordBatch]:
    """The rows of a range; raises as `tier.read_records`."""
    for rows in read_records(server, what.span, what.archive, what.hot, fail_on_loss):
        if rows.num_rows:
            yield _columns(rows, what, headers)


def _columns(rows: pa.RecordBatch, what: ReadRange, headers: bool) -> pa.RecordBatch:
    topic, partition, kind = _constants(what.topic, what.index, int(what.log_append_time), rows.num_rows)
    columns = [
        rows.column("key"),
        rows.column("value"),
        topic,
        partition,
        rows.column("offset"),
        _micros(rows.column("timestamp")),
        kind,
    ]
    if headers:
        columns.append(_text_headers(rows.column("headers")))
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA_HEADERS if headers else _SCHEMA)


@lru_cache(maxsize=16)
def _constants(topic: str, partition: int, kind: int, count: int) -> tuple[pa.Array, pa.Array, pa.Array]:
    return (
        pa.repeat(pa.scalar(topic), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.repeat(pa.scalar(kind, pa.int32()), count),
    )


def _micros(millis: pa.Array) -> pa.Array:
    """Null where a timestamp is beyond what Spark's can hold: one odd record must not end the query."""
    try:
        return pc.multiply_checked(millis, 1000).cast(_TIMESTAMP)
    except pa.ArrowInvalid:
        fits = pc.and_(pc.less_equal(millis, _MICROS_MAX), pc.greater_equal(millis, -_MICROS_MAX))
        return pc.multiply(pc.if_else(fits, millis, pa.scalar(None, pa.int64())), 1000).cast(_TIMESTAMP)


def _text_headers(headers: pa.Array) -> pa.Array:
    """Header names as text; bytes that are none become U+FFFD, as a Kafka client has them."""
    names, values = headers.values.flatten()
    try:
        text = names.cast(pa.string())
    except pa.ArrowInvalid:
        text = pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
    items = pa.StructArray.from_arrays([text, values], fields=list(_HEADER))
    return pa.ListArray.from_arrays(headers.offsets, items)
