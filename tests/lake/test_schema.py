"""Records to rows of an archive table and back: nothing is lost, and what other engines see is what was meant."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="the spark extra is not installed")

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import assign_fresh_schema_ids

from ketch.lake import schema
from ketch.records.arrow import SCHEMA

_bytes = st.one_of(st.none(), st.binary(max_size=8))
_names = st.one_of(st.binary(max_size=4), st.text(max_size=4).map(str.encode))
_headers = st.lists(st.fixed_dictionaries({"key": _names, "value": _bytes}), max_size=3)
_times = st.one_of(
    st.sampled_from([-1, schema.EARLIEST_MS, schema.EARLIEST_MS - 1, schema.LATEST_MS, schema.LATEST_MS + 1]),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2_000_000_000_000),
)
_record = st.fixed_dictionaries(
    {
        "offset": st.integers(0, 2**63 - 1),
        "timestamp": _times,
        "key": _bytes,
        "value": _bytes,
        "headers": _headers,
    }
)


def batch(records: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(records, schema=SCHEMA)


def row(**given: object) -> dict[str, Any]:
    """The one row of the table that a record becomes."""
    record = {"offset": 7 << 10, "timestamp": 5, "key": None, "value": None, "headers": [], **given}
    (made,) = schema.to_lake(batch([record]), 3, 1000).to_pylist()
    return dict(made)


@given(st.lists(_record, max_size=6), st.integers(0, 3), st.integers(0, 6))
@settings(max_examples=300)
def test_what_goes_in_comes_out(records: list[dict[str, Any]], start: int, size: int) -> None:
    rows = batch(records)
    times = schema.append_times(rows.column("offset"), 10)
    stored = schema.to_lake(rows, 1, times)
    stored.validate(full=True)
    assert stored.schema.equals(schema.ARROW_SCHEMA, check_metadata=True)
    back = schema.from_lake(stored)
    back.validate(full=True)
    assert back.schema.equals(SCHEMA)
    assert back.to_pylist() == records
    # Arrow's slices keep their parents' buffers: offsets then begin elsewhere.
    part, cut = rows.slice(start, size), stored.slice(start, size)
    assert schema.from_lake(cut).to_pylist() == records[start : start + size]
    assert schema.to_lake(part, 1, times.slice(start, size)).to_pylist() == cut.to_pylist()


def test_what_other_engines_see() -> None:
    headers = [{"key": "naïve".encode(), "value": None}, {"key": b"", "value": b""}]
    seen = row(timestamp=1_500, key=b"", headers=headers)
    assert seen == {
        "partition": 3,
        "offset": 7 << 10,
        "timestamp": datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC),
        "key": b"",
        "value": None,
        "headers": [{"key": "naïve", "value": None}, {"key": "", "value": b""}],
        "append_time": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "exact": None,
    }


def test_no_timestamp_is_null() -> None:
    seen = row(timestamp=-1)
    assert seen["timestamp"] is None
    assert seen["exact"] is None


@pytest.mark.parametrize("timestamp", [2**63 - 1, -(2**63), schema.LATEST_MS + 1, schema.EARLIEST_MS - 1])
def test_a_timestamp_that_no_column_holds(timestamp: int) -> None:
    seen = row(timestamp=timestamp)
    assert seen["timestamp"] is None
    assert seen["exact"] == {"timestamp_ms": timestamp, "header_keys": None}


def test_a_header_name_that_is_no_text() -> None:
    seen = row(headers=[{"key": b"a", "value": b"1"}, {"key": b"b\xff", "value": b"2"}])
    assert [header["key"] for header in seen["headers"]] == ["a", "b\ufffd"]
    assert seen["exact"] == {"timestamp_ms": 5, "header_keys": [b"a", b"b\xff"]}


def test_append_times_are_those_of_the_entry_ids() -> None:
    offsets = pa.array([0, (7 << 16) + 5, 2**63 - 1])
    assert schema.append_times(offsets, 16).to_pylist() == [0, 7, (2**63 - 1) >> 16]
    assert schema.append_times(pa.array([2**63 - 1]), 10).to_pylist() == [schema.LATEST_MS]


def test_rows_of_a_file_that_another_engine_rewrote() -> None:
    record = {"offset": 9, "timestamp": 5, "key": b"k", "value": b"v", "headers": [{"key": b"\xfe", "value": b"x"}]}
    stored = schema.to_lake(batch([record]), 0, 1)
    wide = pa.Table.from_batches([stored]).cast(schema_to_pyarrow(schema.iceberg_schema()))
    assert schema.from_lake(wide.to_batches()[0]).to_pylist() == [record]


def test_field_ids_are_those_of_a_new_table() -> None:
    made = schema.iceberg_schema()
    assert assign_fresh_schema_ids(made) == made
    assert [field.field_id for field in made.fields] == list(range(1, 9))
