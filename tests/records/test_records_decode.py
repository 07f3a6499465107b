"""Entries become the records of batches."""

from __future__ import annotations

from types import ModuleType

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.records import CONTROL, TRANSACTIONAL, DecodedBatch, read_header
from tests.records.model import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    Row,
    array,
    batches,
    batches_needed,
    blobs,
    bulk,
    decoded_rows,
    entry,
    entry_id,
    fields,
    int64s,
    record,
    records,
    xrange_reply,
)

ALL = 2**31 - 1


def decode(kernel: ModuleType, reply: bytes, **options: object) -> list[DecodedBatch]:
    settings = {"bits": 10, "dense": False, "max_bytes": ALL, "split_timestamps": False} | options
    batches: list[DecodedBatch] = kernel.decode_entries(
        reply, settings["bits"], settings["dense"], settings["max_bytes"], settings["split_timestamps"]
    )
    return batches


def rows_at(kernel: ModuleType, *entries: tuple[str, list[bytes] | None], **options: object) -> list[tuple[int, Row]]:
    return decoded_rows(decode(kernel, xrange_reply(list(entries)), **options))


class TestRoundTrip:
    @given(
        rows=batches,
        gaps=st.lists(st.integers(1, 3) | st.integers(1, 2**33), min_size=12, max_size=12),
        bits=st.integers(10, 16),
        dense=st.booleans(),
        split=st.booleans(),
    )
    def test_any_rows_at_any_offsets(
        self, kernel: ModuleType, rows: list[Row], gaps: list[int], bits: int, dense: bool, split: bool
    ) -> None:
        offsets = [sum(gaps[: i + 1]) for i in range(len(rows))]
        reply = xrange_reply([(entry_id(o, bits, dense), fields(row)) for o, row in zip(offsets, rows, strict=True)])
        out = decode(kernel, reply, bits=bits, dense=dense, split_timestamps=split)
        assert decoded_rows(out) == list(zip(offsets, rows, strict=True))
        assert len(out) == batches_needed(offsets, rows, split)

    @given(rows=batches, base=int64s, start=st.integers(1, 2**50))
    def test_from_commands(self, kernel: ModuleType, rows: list[Row], base: int, start: int) -> None:
        ms, seq = divmod(start, 1024)
        reader = hiredis.Reader()
        reader.feed(kernel.encode_appends(records(rows, base), len(rows), b"k", ms, seq, 10, base, None))
        commands = [reader.gets() for _ in rows]
        reply = xrange_reply([(command[2], command[3:]) for command in commands])
        assert decoded_rows(decode(kernel, reply)) == [(start + i, row) for i, row in enumerate(rows)]

    def test_the_records_are_those_of_the_producer(self, kernel: ModuleType) -> None:
        rows = [Row(100 + i, b"k", b"v" * i, ((b"h", b"x"),) * (i % 3)) for i in range(200)]
        reply = xrange_reply([(entry_id(2000 + i, 10), fields(row)) for i, row in enumerate(rows)])
        assert decode(kernel, reply) == [DecodedBatch(2000, 199, 100, 299, 200, records(rows, 100))]


class TestOffsets:
    def test_time(self, kernel: ModuleType) -> None:
        assert rows_at(kernel, ("5-7", []))[0] == (5 * 1024 + 7, Row(5, None, None))

    def test_dense(self, kernel: ModuleType) -> None:
        assert rows_at(kernel, ("0-1", []), ("0-2", []), dense=True) == [
            (0, Row(-1, None, None)),
            (1, Row(-1, None, None)),
        ]
        assert rows_at(kernel, ("1-0", []), dense=True)[0][0] == 1023

    def test_a_sequence_past_its_bits_carries(self, kernel: ModuleType) -> None:
        entries = [("1-1023", []), ("1-1024", []), ("1-1026", []), ("2-0", []), ("2-1", []), ("2-9", [])]
        offsets = [offset for offset, _ in rows_at(kernel, *entries)]
        assert offsets == [2047, 2048, 2050, 2051, 2052, 2057]

    def test_the_largest(self, kernel: ModuleType) -> None:
        last = f"{INT64_MAX >> 10}-1023"
        assert rows_at(kernel, (last, []))[0][0] == INT64_MAX

    @pytest.mark.parametrize(
        "entry_id", [f"{(INT64_MAX >> 10) + 1}-0", f"{INT64_MAX >> 10}-1024", f"0-{2**63}", f"{2**64 - 1}-{2**64 - 1}"]
    )
    def test_beyond_int64(self, kernel: ModuleType, entry_id: str) -> None:
        with pytest.raises(ValueError, match="offsets"):
            rows_at(kernel, (entry_id, []))

    def test_none_is_left_behind_the_largest(self, kernel: ModuleType) -> None:
        last = f"{INT64_MAX >> 10}-1023"
        with pytest.raises(ValueError, match="offsets"):
            rows_at(kernel, (last, []), (last, []))

    def test_entry_zero_is_none_of_a_dense_stream(self, kernel: ModuleType) -> None:
        with pytest.raises(ValueError, match="offsets"):
            rows_at(kernel, ("0-0", []), dense=True)
        with pytest.raises(ValueError, match="offsets"):
            rows_at(kernel, ("0-1", []), ("0-0", []), dense=True)


class TestForeignEntries:
    """What other Redis clients write."""

    def test_plain_xadd(self, kernel: ModuleType) -> None:
        assert rows_at(kernel, ("1700000000000-0", [b"value", b"hello"]))[0][1] == Row(
            1_700_000_000_000, None, b"hello"
        )

    def test_any_order_and_unknown_fields(self, kernel: ModuleType) -> None:
        flat = [b"header.a", b"1", b"timestamp", b"9", b"colour", b"red", b"value", b"v", b"headers", b"", b"key", b"k"]
        flat += [b"header", b"", b"nullheader", b"", b"", b"", b"Key", b"", b"header.a", b"2"]
        assert rows_at(kernel, ("1-0", flat))[0][1] == Row(9, b"k", b"v", ((b"a", b"1"), (b"a", b"2")))

    def test_the_first_of_a_repeated_field(self, kernel: ModuleType) -> None:
        flat = [b"key", b"", b"key", b"2", b"value", b"1", b"value", b"2", b"timestamp", b"1", b"timestamp", b"2"]
        assert rows_at(kernel, ("7-0", flat))[0][1] == Row(1, b"", b"1")

    def test_the_first_timestamp_counts_even_when_it_is_none(self, kernel: ModuleType) -> None:
        flat = [b"timestamp", b"soon", b"timestamp", b"2"]
        assert rows_at(kernel, ("7-0", flat))[0][1].timestamp == 7

    def test_a_null_header_has_no_value_whatever_the_field_holds(self, kernel: ModuleType) -> None:
        assert rows_at(kernel, ("1-0", [b"nullheader.x", b"ignored"]))[0][1].headers == ((b"x", None),)

    @pytest.mark.parametrize("text", ["", "-", "+1", " 1", "1 ", "1.0", "1_0", "0x1", "1e3", "--1", "1-", "\u0661"])
    def test_no_decimal_timestamp(self, kernel: ModuleType, text: str) -> None:
        entry = ("7-0", [b"timestamp", text.encode()])
        assert rows_at(kernel, entry)[0][1].timestamp == 7
        assert rows_at(kernel, entry, dense=True)[0][1].timestamp == -1

    @pytest.mark.parametrize("number", [INT64_MAX + 1, INT64_MIN - 1, 2**64, 10**30, -(2**64)])
    def test_no_int64_timestamp(self, kernel: ModuleType, number: int) -> None:
        assert rows_at(kernel, ("7-0", [b"timestamp", str(number).encode()]))[0][1].timestamp == 7

    @pytest.mark.parametrize(
        ("text", "number"),
        [(str(INT64_MAX), INT64_MAX), (str(INT64_MIN), INT64_MIN), ("-0", 0), ("0007", 7), ("0" * 40 + "7", 7)],
    )
    def test_int64_timestamps(self, kernel: ModuleType, text: str, number: int) -> None:
        assert rows_at(kernel, ("7-0", [b"timestamp", text.encode()]))[0][1].timestamp == number

    @pytest.mark.parametrize("nothing", [b"*-1\r\n", b"$-1\r\n", b"_\r\n"])
    def test_a_deleted_entry_is_passed_over(self, kernel: ModuleType, nothing: bytes) -> None:
        reply = array([entry("1-0", [b"key", b"a"]), array([bulk(b"1-1"), nothing]), entry("1-2", [b"key", b"b"])])
        assert [(o, row.key) for o, row in decoded_rows(decode(kernel, reply))] == [(1024, b"a"), (1026, b"b")]

    def test_nothing_but_deleted_entries(self, kernel: ModuleType) -> None:
        assert rows_at(kernel, ("1-0", None)) == []


class TestTransactions:
    """Entries of transactions, and the markers that end them (KIP-98)."""

    def test_a_batch_is_of_one_transaction(self, kernel: ModuleType) -> None:
        owners = [None, None, "7:0", "7:0", "8:0", "7:0", "7:1", None]
        entries = [(f"1-{n}", [b"value", b"v", *_transaction(owner)]) for n, owner in enumerate(owners)]
        out = decode(kernel, xrange_reply(entries))
        assert [(batch.base_offset - 1024, batch.record_count, *batch[6:]) for batch in out] == [
            (0, 2, -1, -1, 0),
            (2, 2, 7, 0, TRANSACTIONAL),
            (4, 1, 8, 0, TRANSACTIONAL),
            (5, 1, 7, 0, TRANSACTIONAL),
            (6, 1, 7, 1, TRANSACTIONAL),
            (7, 1, -1, -1, 0),
        ]
        decoded_rows(out)

    @pytest.mark.parametrize(("kind", "type_"), [("commit", 1), ("abort", 0)])
    def test_a_marker_is_a_control_batch(self, kernel: ModuleType, kind: str, type_: int) -> None:
        own = [b"control", kind.encode(), b"coordinator.epoch", b"%d" % INT32_MAX, b"timestamp", b"5", b"header.a", b""]
        (batch,) = decode(kernel, xrange_reply([("1-0", [*own, b"value", b"v", *_transaction("7:3")])]))
        marker = Row(5, b"\0\0\0" + bytes([type_]), b"\0\0\x7f\xff\xff\xff")
        assert decoded_rows([batch]) == [(1024, marker)]
        assert batch[6:] == (7, 3, TRANSACTIONAL | CONTROL)
        header = read_header(batch.assembled(3))
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
        assert header.attributes == TRANSACTIONAL | CONTROL  # and not compressed

    def test_each_marker_is_a_batch(self, kernel: ModuleType) -> None:
        entries = [(f"1-{n}", [b"control", b"commit", *_transaction("7:0")]) for n in range(3)]
        assert [batch.base_offset for batch in decode(kernel, xrange_reply(entries))] == [1024, 1025, 1026]

    @pytest.mark.parametrize("epoch", ["", "-1", "x", str(2**31), "1 "])
    def test_a_marker_without_the_coordinators_epoch(self, kernel: ModuleType, epoch: str) -> None:
        fields = [b"control", b"abort", b"coordinator.epoch", epoch.encode(), *_transaction("7:0")]
        ((_, row),) = decoded_rows(decode(kernel, xrange_reply([("1-0", fields)])))
        assert row.value == bytes(6)

    @pytest.mark.parametrize(
        "text", ["", ":", "7", "7:", ":0", "7:0:0", "-7:0", "7:-1", "7:32768", f"{2**63}:0", "7 :0", "x:0", "7:0 "]
    )
    def test_other_text_is_no_transaction(self, kernel: ModuleType, text: str) -> None:
        (batch,) = decode(kernel, xrange_reply([("1-0", [b"value", b"v", b"control", b"abort", *_transaction(text)])]))
        assert batch[6:] == (-1, -1, 0)
        assert decoded_rows([batch])[0][1] == Row(1, None, b"v")

    def test_other_text_is_no_marker(self, kernel: ModuleType) -> None:
        (batch,) = decode(kernel, xrange_reply([("1-0", [b"value", b"v", b"control", b"off", *_transaction("7:0")])]))
        assert batch[6:] == (7, 0, TRANSACTIONAL)
        assert decoded_rows([batch])[0][1] == Row(1, None, b"v")

    def test_the_first_of_a_repeated_field(self, kernel: ModuleType) -> None:
        fields = [*_transaction("7:0"), *_transaction("8:0"), b"control", b"abort", b"control", b"commit"]
        (batch,) = decode(kernel, xrange_reply([("1-0", fields)]))
        assert (batch.producer_id, decoded_rows([batch])[0][1].key) == (7, bytes(4))

    def test_headers_of_these_names(self, kernel: ModuleType) -> None:
        fields = [b"header.transaction", b"7:0", b"header.control", b"abort"]
        (batch,) = decode(kernel, xrange_reply([("1-0", fields)]))
        assert batch[6:] == (-1, -1, 0)


def _transaction(text: str | None) -> list[bytes]:
    return [] if text is None else [b"transaction", text.encode()]


class TestBatches:
    def test_an_empty_reply(self, kernel: ModuleType) -> None:
        assert decode(kernel, b"*0\r\n") == []

    def test_offset_deltas_stay_int32(self, kernel: ModuleType) -> None:
        offsets = [1024, 1024 + INT32_MAX, 1025 + INT32_MAX, 1026 + INT32_MAX]
        reply = xrange_reply([(entry_id(offset, 10), [b"timestamp", b"0"]) for offset in offsets])
        assert [batch[:5] for batch in decode(kernel, reply)] == [
            (1024, INT32_MAX, 0, 0, 2),
            (1025 + INT32_MAX, 1, 0, 0, 2),
        ]

    def test_timestamp_deltas_stay_int64(self, kernel: ModuleType) -> None:
        timestamps = [-1, INT64_MAX, 0, INT64_MAX - 1, INT64_MIN]
        reply = xrange_reply([(f"1-{i}", [b"timestamp", b"%d" % each]) for i, each in enumerate(timestamps)])
        assert [(batch.base_timestamp, batch.max_timestamp, batch.record_count) for batch in decode(kernel, reply)] == [
            (-1, -1, 1),
            (INT64_MAX, INT64_MAX, 3),
            (INT64_MIN, INT64_MIN, 1),
        ]

    def test_split_timestamps(self, kernel: ModuleType) -> None:
        reply = xrange_reply([(f"1-{i}", [b"timestamp", b"%d" % each]) for i, each in enumerate([5, 5, 6, 5])])
        out = decode(kernel, reply, split_timestamps=True)
        assert [(batch.base_offset, batch.base_timestamp, batch.record_count) for batch in out] == [
            (1024, 5, 2),
            (1026, 6, 1),
            (1027, 5, 1),
        ]

    def test_fields_have_names(self, kernel: ModuleType) -> None:
        reply = xrange_reply([(f"1-{n}", [b"timestamp", b"%d" % time]) for n, time in ((0, 5), (3, 9))])
        (batch,) = decode(kernel, reply)
        assert isinstance(batch, DecodedBatch)
        assert (batch.base_offset, batch.last_offset_delta, batch.last_offset) == (1024, 3, 1027)
        assert (batch.base_timestamp, batch.max_timestamp, batch.record_count) == (5, 9, 2)
        assert batch.records == record(Row(5, None, None), 0, 5) + record(Row(9, None, None), 3, 5)

    @given(rows=batches, limit=st.integers(-5, 300), split=st.booleans())
    def test_max_bytes(self, kernel: ModuleType, rows: list[Row], limit: int, split: bool) -> None:
        reply = xrange_reply([(entry_id(1024 + i, 10), fields(row)) for i, row in enumerate(rows)])
        whole = decode(kernel, reply, split_timestamps=split)
        out = decode(kernel, reply, max_bytes=limit, split_timestamps=split)
        got = decoded_rows(out)
        assert got == decoded_rows(whole)[: len(got)]
        assert len(got) >= 1
        size = sum(len(batch.records) for batch in out)
        assert size <= limit or len(got) == 1

    def test_exactly_max_bytes(self, kernel: ModuleType) -> None:
        reply = xrange_reply([(f"1-{i}", [b"value", b"x" * 50, b"timestamp", b"1"]) for i in range(4)])
        size = len(decode(kernel, reply)[0][5])
        assert decode(kernel, reply, max_bytes=size)[0][4] == 4
        assert decode(kernel, reply, max_bytes=size - 1)[0][4] == 3

    def test_the_last_batch_need_not_be_looked_at(self, kernel: ModuleType) -> None:
        reply = xrange_reply([("1-0", [b"value", b"x" * 50])] * 2)
        assert decode(kernel, reply + b"rubbish", max_bytes=10)[0][4] == 1


MALFORMED = {
    "nothing": b"",
    "no array": b"$1\r\nx\r\n",
    "an error": b"-ERR no\r\n",
    "a null array": b"*-1\r\n",
    "a null": b"_\r\n",
    "a null bulk string": b"$-1\r\n",
    "no number": b"*\r\n",
    "a letter": b"*x\r\n",
    "a bare minus": b"*-\r\n",
    "another negative": b"*-2\r\n",
    "a huge array": b"*2147483648\r\n",
    "a number beyond int64": b"*99999999999999999999\r\n",
    "many zeros": b"*00000000000000000000\r\n",
    "no line feed": b"*0\rx",
    "a trailing byte": b"*0\r\nx",
    "an entry of one": array([array([bulk(b"1-0")])]),
    "an entry of three": array([array([bulk(b"1-0"), array([]), array([])])]),
    "an entry that is none": array([bulk(b"1-0")]),
    "a null entry": array([b"*-1\r\n"]),
    "an id that is null": array([array([b"$-1\r\n", array([])])]),
    "fields that are a string": array([array([bulk(b"1-0"), bulk(b"")])]),
    "an odd number of fields": xrange_reply([("1-0", [b"key"])]),
    "a null field": array([array([bulk(b"1-0"), array([b"$-1\r\n", bulk(b"")])])]),
    "a null value": array([array([bulk(b"1-0"), array([bulk(b"key"), b"$-1\r\n"])])]),
    "a length one short": array([array([bulk(b"1-0"), array([bulk(b"key"), b"$1\r\nab\r\n"])])]),
    "a length one long": array([array([bulk(b"1-0"), array([bulk(b"key"), b"$3\r\nab\r\n"])])]),
    "a length beyond the reply": array([array([bulk(b"1-0"), array([bulk(b"key"), b"$2147483647\r\nab\r\n"])])]),
} | {
    f"the id {text!r}": xrange_reply([(text, [])])
    for text in ("", "-", "1", "1-", "-1", "1-1-1", "1--1", "a-1", "1-a", " 1-1", "1-1 ", "1_0-0", "+1-0")
}


class TestMalformed:
    @pytest.mark.parametrize("name", MALFORMED)
    def test_is_refused(self, kernel: ModuleType, name: str) -> None:
        with pytest.raises(ValueError, match="malformed"):
            decode(kernel, MALFORMED[name])

    @given(rows=batches)
    def test_every_prefix(self, kernel: ModuleType, rows: list[Row]) -> None:
        reply = xrange_reply([(f"1-{i}", fields(row)) for i, row in enumerate(rows)])
        for size in range(0, len(reply), 1 + len(reply) // 150):
            with pytest.raises(ValueError, match="malformed"):
                decode(kernel, reply[:size])

    @pytest.mark.parametrize("bits", [-1, 0, 63, 64])
    def test_bits(self, kernel: ModuleType, bits: int) -> None:
        with pytest.raises(ValueError, match="bits"):
            decode(kernel, b"*0\r\n", bits=bits)

    @given(
        rows=batches,
        edits=st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(list(b"\r\n*$-_0129x\xff"))), max_size=3),
        insert=blobs,
    )
    def test_damage(self, kernel: ModuleType, rows: list[Row], edits: list[tuple[int, int]], insert: bytes) -> None:
        reply = bytearray(xrange_reply([(f"1-{i}", fields(row)) for i, row in enumerate(rows)]))
        for at, byte in edits:
            reply[at % len(reply)] = byte
        if edits:
            reply[edits[0][0] % 97 : 0] = insert
        try:
            out = decode(kernel, bytes(reply))
        except ValueError:
            return
        decoded_rows(out)
