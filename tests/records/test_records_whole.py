"""Batches that lie whole in entries: finding them in a reply, a look into them, and a new header around them."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.errors import InvalidRecord
from ketch.records import (
    HEADER_SIZE,
    DecodedBatch,
    _pure,
    decompress,
    patch,
    peek_header,
    read_header,
    rewrite,
    split_batches,
)
from ketch.records.columns import restamped, row_timestamps
from tests.records.model import Row, batches, blobs, decoded_rows, entry_id, int64s, records, xrange_reply
from tests.support import batches as wire

entries = st.lists(st.lists(st.tuples(blobs | st.just(b"batch"), blobs), max_size=3), max_size=6)


class TestFindBatches:
    @given(entries=entries, bits=st.integers(10, 16), dense=st.booleans())
    def test_each_entry_and_its_first_batch(
        self, kernel: ModuleType, entries: list[list[tuple[bytes, bytes]]], bits: int, dense: bool
    ) -> None:
        listed = [(entry_id(7 * n + 3, bits, dense), [b for pair in fields for b in pair])
                  for n, fields in enumerate(entries)]  # fmt: skip
        reply = xrange_reply(listed)
        found = kernel.find_batches(reply, bits, dense)
        assert [offset for offset, *_ in found] == [7 * n + 3 for n in range(len(entries))]
        for (_, start, end, value, value_end), fields, one in zip(found, entries, listed, strict=True):
            assert b"*1\r\n" + reply[start:end] == xrange_reply([one])
            assert reply[value:value_end] == next((content for name, content in fields if name == b"batch"), b"")

    def test_entries_that_are_gone(self, kernel: ModuleType) -> None:
        reply = xrange_reply([("5-0", None), ("5-1", [b"batch", b"x"])])
        assert [offset for offset, *_ in kernel.find_batches(reply, 10, False)] == [5121]

    @given(cut=st.integers(0, 60))
    def test_malformed(self, kernel: ModuleType, cut: int) -> None:
        reply = xrange_reply([("5-1", [b"batch", b"0123456789"])])
        with pytest.raises(ValueError, match="malformed"):
            kernel.find_batches(reply[: cut % len(reply)], 10, False)
        with pytest.raises(ValueError, match="malformed"):
            kernel.find_batches(reply + b"x", 10, False)

    @pytest.mark.parametrize("bad", [b"-ERR no\r\n", b"*-1\r\n", b"*1\r\n$1\r\nx\r\n", b"*1\r\n*1\r\n$3\r\n1-1\r\n"])
    def test_no_reply_of_xrange(self, kernel: ModuleType, bad: bytes) -> None:
        with pytest.raises(ValueError, match="malformed"):
            kernel.find_batches(bad, 10, False)

    @pytest.mark.parametrize(("found", "dense"), [(f"{2**60}-0", False), ("0-0", True)])
    def test_no_offset(self, kernel: ModuleType, found: str, dense: bool) -> None:
        with pytest.raises(ValueError, match="offsets"):
            kernel.find_batches(xrange_reply([(found, [b"batch", b""])]), 10, dense)


@st.composite
def whole(draw: st.DrawFn) -> tuple[list[tuple[int, bytes]], bytes]:
    """Batches by their base offsets, and the reply that has them."""
    found, offset = [], draw(st.integers(0, 5))
    for count in draw(st.lists(st.integers(1, 4), max_size=5)):
        gone = draw(st.integers(0, 2))  # by compaction
        data = wire.batch(
            wire.records([b"v" * draw(st.integers(0, 40))] * count),
            last_offset_delta=count - 1 + gone,
            codec=draw(st.sampled_from([0, 0, 1, 4])),
            max_timestamp=draw(st.integers(-1, 2**40)),
        )
        found.append((offset, data))
        offset += count + gone + draw(st.integers(0, 2))
    ends = [(base + peek_header(data).last_offset_delta, data) for base, data in found]
    return found, xrange_reply([(entry_id(end, 10), [b"batch", data]) for end, data in ends])


class TestJoinBatches:
    @given(lot=whole(), max_bytes=st.integers(-1, 600))
    def test_as_a_response_has_them(
        self, kernel: ModuleType, lot: tuple[list[tuple[int, bytes]], bytes], max_bytes: int
    ) -> None:
        found, reply = lot
        kept: list[tuple[int, bytes]] = []
        for base, data in found:
            if kept and sum(len(each) for _, each in kept) + len(data) > max_bytes:
                break
            kept.append((base, data))
        joined = kernel.join_batches(reply, 10, False, max_bytes, 1 << 14)
        if not kept:
            assert joined is None
            return
        headers = [peek_header(data) for _, data in kept]
        last = kept[-1][0] + headers[-1].last_offset_delta
        data = b"".join(patch(base, len(each)) + each[16:] for base, each in kept)
        facts = kept[0][0], last + 1, sum(each.count for each in headers), len(kept)
        latest = max(each.max_timestamp for each in headers)
        assert joined == (data, *facts, latest, any(each.codec == 4 for each in headers))
        assert [peek_header(each).base_offset for each in split_batches(data)] == [base for base, _ in kept]

    @given(lot=whole(), where=st.integers(0, 1 << 16), what=st.integers(1, 255), cut=st.booleans())
    def test_spoilt(self, lot: tuple[list[tuple[int, bytes]], bytes], where: int, what: int, cut: bool) -> None:
        """Both twins say the same of it, and none of it is a reason to fail."""
        _, reply = lot
        at = where % len(reply)
        reply = reply[:at] if cut else reply[:at] + bytes([reply[at] ^ what]) + reply[at + 1 :]
        kernel = pytest.importorskip("ketch.records._kernel", reason="the Cython kernel was not built")
        assert kernel.join_batches(reply, 10, False, 300, 1 << 14) == _pure.join_batches(reply, 10, False, 300, 1 << 14)

    def test_what_is_left_to_others(self, kernel: ModuleType) -> None:
        def joined(*entries: tuple[str, list[bytes] | None], large_mean: int = 1 << 14) -> object:
            return kernel.join_batches(xrange_reply(list(entries)), 10, False, 1 << 20, large_mean)

        data = wire.batch(wire.records([b"a"]))
        assert joined(("5-0", None), ("5-1", [b"batch", data]))[3:5] == (1, 1)  # one that is gone
        assert joined(("5-1", [b"batch", data]), ("5-2", [b"value", b"of another client"])) is None
        assert joined(("5-1", [b"batch", data]), ("5-2", [b"batch", data[:-1]])) is None
        assert joined(("5-1", [b"batch", wire.batch(wire.records([b"a"]), attributes=0x10)])) is None
        assert joined(("0-0", [b"batch", wire.batch(wire.records([b"a", b"b"]))])) is None  # it would begin below 0
        assert joined(("5-1", [b"batch", data]), large_mean=len(data)) is None
        assert joined(("5-1", [b"batch", data]), large_mean=len(data) + 1) is not None
        assert kernel.join_batches(b"-ERR no\r\n", 10, False, 1 << 20, 1 << 14) is None


class TestCheckRecords:
    @given(rows=batches)
    def test_sound(self, kernel: ModuleType, rows: list[Row]) -> None:
        kernel.check_records(records(rows), len(rows), len(rows) - 1)

    @given(rows=batches, at=st.integers(0, 10_000), byte=st.integers(0, 255))
    def test_it_knows_what_becomes_entries(self, kernel: ModuleType, rows: list[Row], at: int, byte: int) -> None:
        data = bytearray(records(rows))
        data[at % len(data)] = byte
        outcomes = []
        checks = lambda data, count: kernel.check_records(data, count, count - 1)  # noqa: E731
        for look in (checks, lambda data, count: kernel.encode_arguments(data, count, 0, None)):
            try:
                look(bytes(data), len(rows))
                outcomes.append(True)
            except InvalidRecord:
                outcomes.append(False)
        assert outcomes[0] == outcomes[1]

    @pytest.mark.parametrize("count", [-1, 0, 1, 3])
    def test_another_count(self, kernel: ModuleType, count: int) -> None:
        with pytest.raises(InvalidRecord):
            kernel.check_records(records([Row(), Row()]), count, count - 1)


THREE = wire.records([b"a", b"b", b"c"])


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("append_time", [None, 1_800_000_000_000])
def test_rewrite(codec: int, append_time: int | None) -> None:
    data = wire.batch(THREE, codec=4, attributes=0x48, producer_id=9, producer_epoch=2, base_sequence=5)
    header = read_header(data)
    payload = wire.compress(codec, b"".join(THREE))
    again = rewrite(data, header, codec, payload, append_time)
    new = read_header(again)
    assert (new.codec, new.timestamp_type, new.attributes & 0x40) == (codec, int(append_time is not None), 0)
    assert new.max_timestamp == (append_time or header.max_timestamp)
    for name in ("base_offset", "base_timestamp", "producer_id", "producer_epoch", "base_sequence", "count"):
        assert getattr(new, name) == getattr(header, name)
    assert bytes(decompress(codec, again[HEADER_SIZE:], 1000)) == b"".join(THREE)


def test_patch_is_outside_the_checksum() -> None:
    data = wire.batch(THREE)
    patched = patch(77, len(data)) + data[16:]
    assert read_header(patched).base_offset == 77
    assert peek_header(patched).leader_epoch == 0


@given(rows=batches, base=int64s, timestamp=int64s)
def test_columns(rows: list[Row], base: int, timestamp: int) -> None:
    batch = DecodedBatch(5, len(rows) - 1, base, 0, len(rows), records(rows, base))
    assert list(row_timestamps(batch)) == [(5 + n, row.timestamp) for n, row in enumerate(rows)]
    again = decoded_rows([restamped(batch, timestamp)])
    assert again == [(5 + n, Row(timestamp, row.key, row.value, row.headers)) for n, row in enumerate(rows)]
