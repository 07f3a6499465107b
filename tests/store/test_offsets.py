"""Offsets and entry ids, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.store.offsets import MAX_OFFSET, OffsetNumbering, decode, encode

BITS = st.integers(10, 16)
OFFSETS = st.integers(0, MAX_OFFSET)
NUMBERINGS = st.builds(OffsetNumbering, BITS, st.booleans())


@given(OFFSETS, BITS)
def test_decode_and_encode_are_inverse(offset, bits):
    ms, seq = decode(offset, bits)
    assert 0 <= seq < 2**bits
    assert encode(ms, seq, bits) == offset


@given(st.integers(0, 2**47 - 1), st.integers(0, 1023))
def test_encode_is_shift_and_or_where_the_sequence_fits(ms, seq):
    assert encode(ms, seq, 10) == (ms << 10) | seq
    assert decode(encode(ms, seq, 10), 10) == (ms, seq)


@given(st.integers(0, 2**40), st.integers(0, 2**20), BITS)
def test_a_longer_sequence_carries_into_the_time(ms, seq, bits):
    assert encode(ms, seq, bits) == encode(ms + (seq >> bits), seq & (2**bits - 1), bits)


@given(OFFSETS, NUMBERINGS)
def test_round_trip(offset, numbering):
    assert numbering.to_offset(*numbering.to_id(offset)) == offset


@given(st.integers(0, MAX_OFFSET - 1), NUMBERINGS)
def test_next_offset_is_the_next_id(offset, numbering):
    assert numbering.to_id(offset) < numbering.to_id(offset + 1)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_ids_survive_their_text(ms, seq):
    assert OffsetNumbering.parse_id(OffsetNumbering.format_id(ms, seq)) == (ms, seq)


@pytest.mark.parametrize(
    ("numbering", "offset", "entry"),
    [
        (OffsetNumbering(10), 0, (0, 0)),
        (OffsetNumbering(10), 1023, (0, 1023)),
        (OffsetNumbering(10), 1024, (1, 0)),
        (OffsetNumbering(10), 1740800000000005, (1700000000000, 5)),
        (OffsetNumbering(16), 65536, (1, 0)),
        (OffsetNumbering(10, dense=True), 0, (0, 1)),
        (OffsetNumbering(10, dense=True), 1022, (0, 1023)),
        (OffsetNumbering(10, dense=True), 1023, (1, 0)),
    ],
)
def test_known_values(numbering, offset, entry):
    assert numbering.to_id(offset) == entry
    assert numbering.to_offset(*entry) == offset


def test_an_empty_stream_ends_at_dense_offset_0():
    # last-generated-id 0-0, plus one
    assert OffsetNumbering(dense=True).to_offset(0, 0) + 1 == 0


@pytest.mark.parametrize("dense", [False, True])
def test_no_entry_below_offset_0(dense):
    with pytest.raises(ValueError, match="offset -1 is below 0"):
        OffsetNumbering(dense=dense).to_id(-1)


@pytest.mark.parametrize("text", [b"", b"-", b"5", b"5-", b"-5", b"5-*", b"+5-1", b" 5-1", b"5-1 ", b"5-1-2", b"5_0-1"])
def test_what_is_no_entry_id(text):
    with pytest.raises(ValueError, match="is not an entry id"):
        OffsetNumbering.parse_id(text)
