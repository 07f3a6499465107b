"""A batch's records become entries."""

from __future__ import annotations

from types import ModuleType

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.errors import InvalidRecord
from tests.records.model import INT64_MAX, INT64_MIN, Row, batches, fields, int64s, record, records
from tests.support.batches import varint

KEY = b"korvet:stream:orders:0"


def replies(data: bytes) -> list[object]:
    """RESP commands are RESP values: hiredis reads them as a server would."""
    reader = hiredis.Reader()
    reader.feed(data)
    values = []
    while (value := reader.gets()) is not False:
        values.append(value)
    assert not reader.has_data()
    return values


def bulk_strings(data: bytes, count: int) -> list[bytes]:
    [value] = replies(b"*%d\r\n" % count + data)
    assert isinstance(value, list)
    return value


class TestAppends:
    @given(rows=batches, base=int64s, bits=st.integers(10, 16), start=st.integers(0, 2**50))
    def test_one_command_per_record(
        self, kernel: ModuleType, rows: list[Row], base: int, bits: int, start: int
    ) -> None:
        ms, seq = divmod(start, 1 << bits)
        out = kernel.encode_appends(records(rows, base), len(rows), KEY, ms, seq, bits, base, None)
        ids = [b"%d-%d" % divmod(start + i, 1 << bits) for i in range(len(rows))]
        assert replies(out) == [[b"XADD", KEY, *each] for each in map(lambda i, row: [i, *fields(row)], ids, rows)]

    def test_ids_roll_into_the_next_millisecond(self, kernel: ModuleType) -> None:
        out = kernel.encode_appends(records([Row()] * 3), 3, KEY, 999, 1022, 10, 0, None)
        assert [command[2] for command in replies(out)] == [b"999-1022", b"999-1023", b"1000-0"]

    def test_log_append_time_overrides(self, kernel: ModuleType) -> None:
        rows = [Row(5), Row(6)]
        out = kernel.encode_appends(records(rows), 2, KEY, 1, 0, 10, 0, -7)
        assert [command[-1] for command in replies(out)] == [b"-7", b"-7"]

    def test_a_timestamp_of_zero_overrides_too(self, kernel: ModuleType) -> None:
        out = kernel.encode_appends(records([Row(5)]), 1, KEY, 1, 0, 10, 0, 0)
        assert replies(out)[0][-1] == b"0"

    def test_a_timestamp_that_leaves_int64_wraps(self, kernel: ModuleType) -> None:
        out = kernel.encode_appends(records([Row(1)]), 1, KEY, 1, 0, 10, INT64_MAX, None)
        assert replies(out)[0][-1] == str(INT64_MIN).encode()

    def test_fields_in_their_order(self, kernel: ModuleType) -> None:
        row = Row(-1, b"", None, ((b"b", b"1"), (b"", None), (b"b", b""), (b"\xff\r\n", b"2")))
        [command] = replies(kernel.encode_appends(records([row]), 1, KEY, 1, 0, 10, 0, None))
        assert command[3:] == [
            *(b"key", b""),
            *(b"timestamp", b"-1"),
            *(b"header.b", b"1"),
            *(b"nullheader.", b""),
            *(b"header.b", b""),
            *(b"header.\xff\r\n", b"2"),
        ]

    def test_a_record_of_nothing_has_a_timestamp(self, kernel: ModuleType) -> None:
        [command] = replies(kernel.encode_appends(records([Row(3, None, None)]), 1, KEY, 1, 0, 10, 0, None))
        assert command[3:] == [b"timestamp", b"3"]

    def test_many_headers_and_a_large_value(self, kernel: ModuleType) -> None:
        row = Row(0, None, b"x" * 300_000, ((b"", None), (b"", b"")) * 5_000)
        [command] = replies(kernel.encode_appends(records([row]), 1, KEY, 1, 0, 10, 0, None))
        assert command[3:] == fields(row)

    def test_every_kind_of_buffer(self, kernel: ModuleType) -> None:
        data = records([Row()])
        out = {
            bytes(kernel.encode_appends(each, 1, KEY, 1, 0, 10, 0, None))
            for each in (data, bytearray(data), memoryview(b"x" + data)[1:])
        }
        assert len(out) == 1

    def test_no_records(self, kernel: ModuleType) -> None:
        assert kernel.encode_appends(b"", 0, KEY, 1, 0, 10, 0, None) == b""
        assert kernel.encode_arguments(b"", 0, 0, None) == (b"", 0)

    @pytest.mark.parametrize(("ms", "seq", "bits"), [(-1, 0, 10), (0, -1, 10), (0, 1024, 10), (0, 0, 0), (0, 0, 63)])
    def test_an_id_that_cannot_be(self, kernel: ModuleType, ms: int, seq: int, bits: int) -> None:
        with pytest.raises(ValueError, match="no entry id"):
            kernel.encode_appends(records([Row()]), 1, KEY, ms, seq, bits, 0, None)


class TestArguments:
    @given(rows=batches, base=int64s, timestamp=st.none() | int64s)
    def test_counts_and_arguments(self, kernel: ModuleType, rows: list[Row], base: int, timestamp: int | None) -> None:
        out, count = kernel.encode_arguments(records(rows, base), len(rows), base, timestamp)
        expected = []
        for row in rows:
            flat = fields(row if timestamp is None else Row(timestamp, row.key, row.value, row.headers))
            expected += [str(len(flat)).encode(), *flat]
        assert bulk_strings(out, count) == expected


def changed(body: bytes) -> bytes:
    return varint(len(body)) + body


BROKEN = {
    "empty": (b"", 1),
    "more records than counted": (records([Row(), Row()]), 1),
    "fewer records than counted": (records([Row()]), 2),
    "none counted": (records([Row()]), 0),
    "a negative count": (records([Row()]), -1),
    "a count beyond memory": (records([Row()]), 2**31 - 1),
    "a trailing byte": (records([Row()]) + b"\0", 1),
    "another offset delta": (record(Row(), 1, 0), 1),
    "a negative length": (varint(-1) + record(Row(), 0, 0), 1),
    "a length beyond the batch": (varint(100) + record(Row(), 0, 0)[1:], 1),
    "a length too short": (varint(5) + record(Row(), 0, 0)[1:], 1),
    "a length too long": (varint(9) + record(Row(), 0, 0)[1:] + b"\0", 1),
    "a length of six bytes": (b"\x90\x80\x80\x80\x80\0" + record(Row(), 0, 0)[1:], 1),
    "a length beyond int32": (b"\xff\xff\xff\xff\x1f" + bytes(50), 1),
    "a timestamp of eleven bytes": (changed(b"\0" + b"\x80" * 10 + b"\0\0\x01\x01\0"), 1),
    "a timestamp beyond int64": (changed(b"\0" + b"\x80" * 9 + b"\x02\0\x01\x01\0"), 1),
    "a key length below null": (changed(b"\0\0\0" + varint(-2) + b"\x01\0\0"), 1),
    "a key beyond the record": (changed(b"\0\0\0" + varint(9) + b"abc\x01\0"), 1),
    "a value length below null": (changed(b"\0\0\0\x01" + varint(-2) + b"\0\0"), 1),
    "a value beyond the record": (changed(b"\0\0\0\x01" + varint(9) + b"abc\0"), 1),
    "a value beyond its record but inside the batch": (changed(b"\0\0\0\x01" + varint(9) + b"a\0") + bytes(20), 1),
    "a negative header count": (changed(b"\0\0\0\x01\x01" + varint(-1)), 1),
    "a header count beyond the record": (changed(b"\0\0\0\x01\x01" + varint(2**30)), 1),
    "a null header name": (changed(b"\0\0\0\x01\x01\x02\x01\x01"), 1),
    "a header name beyond the record": (changed(b"\0\0\0\x01\x01\x02" + varint(5) + b"ab"), 1),
    "a header value beyond the record": (changed(b"\0\0\0\x01\x01\x02\0" + varint(5) + b"ab"), 1),
    "a header value below null": (changed(b"\0\0\0\x01\x01\x02\0" + varint(-2)), 1),
    "bytes behind the headers": (changed(b"\0\0\0\x01\x01\x02\0\0\0"), 1),
    "bytes where no header is": (changed(b"\0\0\0\x01\x01\0\0"), 1),
}


def encode_both(kernel: ModuleType, data: bytes, count: int) -> None:
    kernel.encode_arguments(data, count, 0, None)
    kernel.encode_appends(data, count, KEY, 1, 0, 10, 0, None)


class TestBroken:
    @pytest.mark.parametrize("name", BROKEN)
    def test_is_refused(self, kernel: ModuleType, name: str) -> None:
        data, count = BROKEN[name]
        with pytest.raises(InvalidRecord):
            kernel.encode_appends(data, count, KEY, 1, 0, 10, 0, None)
        with pytest.raises(InvalidRecord):
            kernel.encode_arguments(data, count, 0, None)

    def test_longer_varints_than_needed_are_read(self, kernel: ModuleType) -> None:
        body = b"\0" + b"\x80" * 9 + b"\0" + b"\x80\x80\x80\x80\0" + b"\x81\0" + b"\x81\0" + b"\x80\0"
        [command] = replies(kernel.encode_appends(changed(body), 1, KEY, 1, 0, 10, 0, None))
        assert command[3:] == [b"timestamp", b"0"]

    @given(rows=batches)
    def test_every_prefix(self, kernel: ModuleType, rows: list[Row]) -> None:
        data = records(rows)
        for size in range(0, len(data), 1 + len(data) // 150):
            with pytest.raises(InvalidRecord):
                kernel.encode_appends(data[:size], len(rows), KEY, 1, 0, 10, 0, None)

    @given(rows=batches, flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 7)), min_size=1, max_size=3))
    def test_flipped_bits(self, kernel: ModuleType, rows: list[Row], flips: list[tuple[int, int]]) -> None:
        data = bytearray(records(rows))
        for at, bit in flips:
            data[at % len(data)] ^= 1 << bit
        try:
            out, count = kernel.encode_arguments(data, len(rows), 0, None)
        except InvalidRecord:
            return
        bulk_strings(out, count)

    @given(data=st.binary(max_size=80), count=st.integers(0, 5))
    def test_random_bytes(self, kernel: ModuleType, data: bytes, count: int) -> None:
        try:
            encode_both(kernel, data, count)
        except InvalidRecord:
            return
        assert data == b"" or count > 0


def test_largest_record(kernel: ModuleType) -> None:
    small, large = record(Row(0, None, b"x", ()), 0, 0), record(Row(0, None, b"y" * 5000, ()), 1, 0)
    both = small + large
    assert kernel.largest_record(both, 2) == len(large) - 2
    assert kernel.largest_record(b"", 0) == 0
    for end in range(len(both)):
        assert kernel.largest_record(both[:end], 2) <= len(small)
