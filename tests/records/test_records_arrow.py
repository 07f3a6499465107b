"""Records of batches become Arrow rows and rows become records of batches."""

from __future__ import annotations

from array import array as numbers
from contextlib import suppress
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.errors import InvalidRecord
from ketch.records import DecodedBatch
from tests.records.model import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    Row,
    batches,
    batches_needed,
    decoded_rows,
    entry_id,
    fields,
    int64s,
    record,
    records,
    xrange_reply,
)

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from ketch.records import arrow  # noqa: E402

ALL = 2**31 - 1


@pytest.fixture(autouse=True)
def _both_kernels(kernel: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("records_to_columns", "columns_to_records"):
        monkeypatch.setattr(arrow, name, getattr(kernel, name))


def as_rows(table: pa.RecordBatch) -> list[tuple[int, Row]]:
    """The rows in plain Python, after Arrow itself found nothing wrong."""
    table.validate(full=True)
    assert table.schema == arrow.SCHEMA
    return [
        (
            row["offset"],
            Row(
                row["timestamp"],
                row["key"],
                row["value"],
                tuple((header["key"], header["value"]) for header in row["headers"]),
            ),
        )
        for row in table.to_pylist()
    ]


def as_table(numbered: list[tuple[int, Row]], schema: pa.Schema = arrow.SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "offset": offset,
                "timestamp": row.timestamp,
                "key": row.key,
                "value": row.value,
                "headers": [{"key": name, "value": value} for name, value in row.headers],
            }
            for offset, row in numbered
        ],
        schema=schema,
    )


def numbered(rows: list[Row], gaps: list[int]) -> list[tuple[int, Row]]:
    return [(sum(gaps[: i + 1]), row) for i, row in enumerate(rows)]


gap_lists = st.lists(st.integers(1, 3) | st.integers(1, 2**33), min_size=12, max_size=12)


class TestRoundTrip:
    @given(rows=batches, gaps=gap_lists, split=st.booleans())
    def test_from_entries_and_back(self, kernel: ModuleType, rows: list[Row], gaps: list[int], split: bool) -> None:
        expected = numbered(rows, gaps)
        reply = xrange_reply([(entry_id(offset, 10), fields(row)) for offset, row in expected])
        decoded = kernel.decode_entries(reply, 10, False, ALL, split)
        table = arrow.to_arrow(decoded)
        assert as_rows(table) == expected
        assert arrow.from_arrow(table, ALL, split) == decoded

    @given(parts=st.lists(batches, max_size=4), base=int64s)
    def test_batches_of_a_producer(self, parts: list[list[Row]], base: int) -> None:
        start, decoded, expected = 7, [], []
        for rows in parts:
            decoded.append(DecodedBatch(start, len(rows) - 1, base, 0, len(rows), records(rows, base)))
            expected += [(start + i, row) for i, row in enumerate(rows)]
            start += len(rows) + 5
        assert as_rows(arrow.to_arrow(decoded)) == expected

    @given(rows=batches, gaps=gap_lists, split=st.booleans())
    def test_from_rows(self, rows: list[Row], gaps: list[int], split: bool) -> None:
        expected = numbered(rows, gaps)
        out = arrow.from_arrow(as_table(expected), ALL, split)
        assert decoded_rows(out) == expected
        assert len(out) == batches_needed([offset for offset, _ in expected], rows, split)

    @given(rows=batches, start=st.integers(0, 12), size=st.integers(0, 12))
    def test_a_slice(self, rows: list[Row], start: int, size: int) -> None:
        expected = numbered(rows, [1] * len(rows))
        part = as_table(expected).slice(start, size)
        assert decoded_rows(arrow.from_arrow(part, ALL)) == expected[start : start + size]

    @given(rows=batches, limit=st.integers(0, 900), split=st.booleans())
    def test_the_rows_taken_are_the_sum_of_the_counts(self, rows: list[Row], limit: int, split: bool) -> None:
        expected = rest = numbered(rows, [2] * len(rows))
        table, out = as_table(expected), []
        while rest:
            part = arrow.from_arrow(table, limit, split)
            taken = sum(batch.record_count for batch in part)
            assert taken == 1 or sum(len(batch.records) for batch in part) <= limit
            out += decoded_rows(part)
            table, rest = table.slice(taken), rest[taken:]
        assert out == expected

    def test_none(self) -> None:
        assert as_rows(arrow.to_arrow([])) == []
        assert arrow.from_arrow(arrow.to_arrow([]), ALL) == []

    def test_many(self) -> None:
        rows = [
            Row(100 + i, b"k" * (i % 5), None if i % 7 == 0 else b"v" * i, ((b"h", b"x"),) * (i % 3))
            for i in range(500)
        ]
        batch = DecodedBatch(9, 499, 100, 599, 500, records(rows, 100))
        table = arrow.to_arrow([batch])
        assert as_rows(table) == [(9 + i, row) for i, row in enumerate(rows)]
        assert arrow.from_arrow(table, ALL) == [batch]


class TestDamagedRecords:
    @given(rows=batches, at=st.integers(0, 10_000), byte=st.integers(0, 255))
    def test_a_wrong_byte_is_refused_or_read(self, rows: list[Row], at: int, byte: int) -> None:
        data = bytearray(records(rows))
        data[at % len(data)] = byte
        with suppress(InvalidRecord):
            arrow.to_arrow([DecodedBatch(0, len(rows) - 1, 0, 0, len(rows), bytes(data))]).validate(full=True)

    @given(rows=batches, cut=st.integers(1, 10_000))
    def test_cut_short(self, rows: list[Row], cut: int) -> None:
        data = records(rows)
        with pytest.raises(InvalidRecord):
            arrow.to_arrow([DecodedBatch(0, len(rows) - 1, 0, 0, len(rows), data[: -1 - cut % len(data)])])

    @pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**40])
    def test_another_count(self, count: int) -> None:
        with pytest.raises(InvalidRecord):
            arrow.to_arrow([DecodedBatch(0, 1, 0, 0, count, records([Row(), Row()]))])

    @pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (-1, 0)])
    def test_offset_deltas_rise(self, deltas: tuple[int, int]) -> None:
        data = b"".join(record(Row(), delta, 0) for delta in deltas)
        with pytest.raises(InvalidRecord):
            arrow.to_arrow([DecodedBatch(5, 1, 0, 0, 2, data)])

    def test_an_offset_beyond_int64(self) -> None:
        with pytest.raises(InvalidRecord):
            arrow.to_arrow([DecodedBatch(INT64_MAX, 1, 0, 0, 2, records([Row(), Row()]))])

    def test_sparse_offset_deltas(self) -> None:
        data = b"".join(record(Row(), delta, 0) for delta in (0, 7, INT32_MAX))
        assert [offset for offset, _ in as_rows(arrow.to_arrow([DecodedBatch(5, 0, 0, 0, 3, data)]))] == [
            5,
            12,
            5 + INT32_MAX,
        ]


class TestForeignArrays:
    def loose(self, binary: pa.DataType, lists: object = None) -> pa.Schema:
        struct = pa.struct([pa.field("key", binary), pa.field("value", binary)])
        headers = (lists or pa.list_)(struct)
        types = {"offset": pa.int64(), "timestamp": pa.int64(), "key": binary, "value": binary, "headers": headers}
        return pa.schema(list(types.items()))

    @pytest.mark.parametrize("binary", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()], ids=str)
    @pytest.mark.parametrize("lists", [pa.list_, pa.large_list], ids=["list", "large_list"])
    def test_other_types(self, binary: pa.DataType, lists: object) -> None:
        text = pa.types.is_string(binary) or pa.types.is_large_string(binary)
        rows = [Row(1, None, b"a"), Row(2, b"", None, ((b"h", None), (b"", b"x"))), Row(3, b"k", b"")]
        table = pa.RecordBatch.from_pylist(
            [
                {
                    "offset": i,
                    "timestamp": row.timestamp,
                    "key": row.key.decode() if text and row.key is not None else row.key,
                    "value": row.value.decode() if text and row.value is not None else row.value,
                    "headers": [
                        {
                            "key": name.decode() if text else name,
                            "value": value.decode() if text and value is not None else value,
                        }
                        for name, value in row.headers
                    ],
                }
                for i, row in enumerate(rows)
            ],
            schema=self.loose(binary, lists),
        )
        assert decoded_rows(arrow.from_arrow(table, ALL)) == list(enumerate(rows))
        assert decoded_rows(arrow.from_arrow(table.slice(1, 1), ALL)) == [(1, rows[1])]

    def test_null_headers_are_none(self) -> None:
        table = pa.RecordBatch.from_pylist(
            [
                {"offset": 1, "timestamp": 1, "headers": None},
                {"offset": 2, "timestamp": 1, "headers": [{"key": b"a", "value": b"b"}]},
                {"offset": 3, "timestamp": 1, "headers": None},
            ],
            schema=self.loose(pa.binary()),
        )
        expected = [Row(1, None, None), Row(1, None, None, ((b"a", b"b"),)), Row(1, None, None)]
        assert decoded_rows(arrow.from_arrow(table, ALL)) == list(zip([1, 2, 3], expected, strict=True))

    def test_all_null_columns_have_no_buffers(self) -> None:
        nulls = pa.array([None, None], pa.binary())
        table = pa.RecordBatch.from_arrays(
            [pa.array([3, 4]), pa.array([1, 1]), nulls, nulls, pa.array([None, None], arrow._ANY_HEADERS)],
            names=arrow.SCHEMA.names,
        )
        assert decoded_rows(arrow.from_arrow(table, ALL)) == [(3, Row(1, None, None)), (4, Row(1, None, None))]

    @pytest.mark.parametrize("headers", [[None], [{"key": None, "value": b"x"}]], ids=["header", "name"])
    def test_nulls_that_cannot_be(self, headers: list[object]) -> None:
        rows = [{"offset": 1, "timestamp": 1, "headers": headers}, {"offset": 2, "timestamp": 1, "headers": []}]
        table = pa.RecordBatch.from_pylist(rows, schema=self.loose(pa.binary()))
        with pytest.raises(ValueError, match="header"):
            arrow.from_arrow(table, ALL)
        assert decoded_rows(arrow.from_arrow(table.slice(1), ALL)) == [(2, Row(1, None, None))]

    @pytest.mark.parametrize("offsets", [[1, 1], [2, 1], [-1, 0]])
    def test_offsets_rise(self, offsets: list[int]) -> None:
        with pytest.raises(ValueError, match="rise"):
            arrow.from_arrow(as_table([(offset, Row()) for offset in offsets]), ALL)

    @pytest.mark.parametrize("kind", [pa.int32(), pa.timestamp("us")], ids=str)
    def test_numbers_are_int64(self, kind: pa.DataType) -> None:
        table = as_table([(1, Row())])
        table = table.set_column(1, "timestamp", pa.array([1], kind))
        with pytest.raises(ValueError, match="timestamp is"):
            arrow.from_arrow(table, ALL)

    def test_timestamps_too_far_apart_for_one_batch(self) -> None:
        expected = [(1, Row(INT64_MIN)), (2, Row(INT64_MAX)), (3, Row(0))]
        assert decoded_rows(arrow.from_arrow(as_table(expected), ALL)) == expected


class TestBuffers:
    """The kernels believe no length."""

    def records(self, kernel: ModuleType, **change: object) -> list[DecodedBatch]:
        def int32s(*n: int) -> bytes:
            return numbers("i", n).tobytes()

        buffers: dict[str, object] = {
            "count": 2,
            "offsets": numbers("q", [1, 2]),
            "timestamps": numbers("q", [5, 6]),
            "keys": (None, 0, int32s(0, 1, 2), b"ab"),
            "values": (b"\2", 0, int32s(0, 0, 2), b"cd"),
            "headers": (None, 0, int32s(0, 0, 1)),
            "names": (None, 0, int32s(0, 1), b"h"),
            "contents": (None, 0, int32s(0, 1), b"x"),
        } | change
        out: list[DecodedBatch] = kernel.columns_to_records(*buffers.values(), ALL, False)
        return out

    def test_they_fit(self, kernel: ModuleType) -> None:
        rows = [(1, Row(5, b"a", None)), (2, Row(6, b"b", b"cd", ((b"h", b"x"),)))]
        assert decoded_rows(self.records(kernel)) == rows

    @pytest.mark.parametrize(
        "change",
        [
            {"count": 3},
            {"count": -1},
            {"offsets": b"\1" * 15},
            {"timestamps": b""},
            {"keys": (None, 0, b"", b"ab")},
            {"keys": (None, 0, numbers("i", [0, 1]), b"ab")},
            {"keys": (None, 0, numbers("i", [0, 1, 3]), b"ab")},
            {"keys": (None, 0, numbers("i", [0, -1, 1]), b"ab")},
            {"keys": (None, 0, numbers("i", [1, 0, 1]), b"ab")},
            {"keys": (None, -1, numbers("i", [0, 1, 2]), b"ab")},
            {"keys": (b"\xff", 7, numbers("i", [0, 1, 2]), b"ab")},
            {"keys": (b"", 0, numbers("i", [0, 1, 2]), b"ab")},
            {"headers": (None, 0, numbers("i", [0, 0, 2]))},
            {"headers": (None, 0, numbers("i", [0, -2, 0]))},
            {"names": (None, 0, b"", b"h")},
            {"contents": (None, 0, numbers("i", [0, 9]), b"x")},
        ],
        ids=str,
    )
    def test_they_do_not(self, kernel: ModuleType, change: dict[str, object]) -> None:
        with pytest.raises(ValueError, match="Arrow array"):
            self.records(kernel, **change)
