"""The header of a batch."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ketch.errors import CorruptRecord, UnsupportedCompression
from ketch.records import HEADER_SIZE, assemble, empty_batch, read_header, split_batches
from tests.records.model import Row, records

DATA = records([Row(5), Row(9), Row(7)], 5)


def batch(base_offset: int = 40, codec: int = 0, **options: int) -> bytes:
    return assemble(base_offset, 2, 5, 9, 3, DATA, codec, **options)


def patched(data: bytes, at: int, layout: str, value: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(layout, out, at, value)
    return bytes(out)


def resealed(data: bytes, at: int, layout: str, value: int) -> bytes:
    """Changes a field behind the checksum and makes the checksum right."""
    out = patched(data, at, layout, value)
    return patched(out, 17, ">I", crc32c(out[21:]))


class TestRead:
    def test_every_field(self) -> None:
        header = read_header(batch(timestamp_type=1, leader_epoch=6))
        assert header.length == HEADER_SIZE + len(DATA)
        assert (header.base_offset, header.last_offset_delta, header.count) == (40, 2, 3)
        assert (header.base_timestamp, header.max_timestamp, header.timestamp_type) == (5, 9, 1)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
        assert (header.leader_epoch, header.codec, header.transactional, header.control) == (6, 0, False, False)

    @pytest.mark.parametrize("codec", range(8))
    def test_attributes(self, codec: int) -> None:
        header = replace(read_header(batch()), attributes=codec)
        assert (header.codec, header.timestamp_type, header.transactional, header.control) == (codec, 0, False, False)
        header = replace(header, attributes=codec | 0x38)
        assert (header.codec, header.timestamp_type, header.transactional, header.control) == (codec, 1, True, True)

    @pytest.mark.parametrize("codec", range(5))
    def test_codecs_are_not_looked_into(self, codec: int) -> None:
        assert read_header(batch(codec=codec)).codec == codec

    def test_base_offset_and_epoch_lie_outside_the_checksum(self) -> None:
        data = patched(patched(batch(), 0, ">q", 2**60), 12, ">i", 9)
        assert (read_header(data).base_offset, read_header(data).leader_epoch) == (2**60, 9)

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_every_kind_of_buffer(self, kind: type) -> None:
        assert read_header(kind(batch())).count == 3


class TestRefuse:
    def test_every_prefix(self) -> None:
        for size in range(len(batch())):
            with pytest.raises(CorruptRecord):
                read_header(batch()[:size])

    def test_bytes_behind_the_batch(self) -> None:
        with pytest.raises(CorruptRecord, match="followed by 1 more"):
            read_header(batch() + b"\0")

    def test_every_flipped_bit(self) -> None:
        covered = [*range(8, 12), *range(16, len(batch()))]
        for at in covered:
            for bit in range(8):
                with pytest.raises(CorruptRecord):
                    read_header(patched(batch(), at, "B", batch()[at] ^ 1 << bit))

    @pytest.mark.parametrize("magic", [0, 1, 3, 255])
    def test_magic(self, magic: int) -> None:
        for data in (batch(), batch()[:30]):
            with pytest.raises(CorruptRecord, match=f"magic {magic}"):
                read_header(patched(data, 16, "B", magic))
            with pytest.raises(CorruptRecord, match=f"magic {magic}"):
                split_batches(patched(data, 16, "B", magic))

    @pytest.mark.parametrize("length", [-(2**31), -12, -1, 0, 48, 2**31 - 1])
    def test_length(self, length: int) -> None:
        data = patched(batch(), 8, ">i", length)
        with pytest.raises(CorruptRecord, match="bytes"):
            read_header(data)
        with pytest.raises(CorruptRecord, match="bytes"):
            split_batches(data)

    @pytest.mark.parametrize(("count", "last"), [(0, -1), (-1, -2), (0, 2), (2, 2), (4, 2), (3, 1), (3, -1)])
    def test_count(self, count: int, last: int) -> None:
        data = resealed(resealed(batch(), 57, ">i", count), 23, ">i", last)
        with pytest.raises(CorruptRecord, match="records"):
            read_header(data)

    def test_an_empty_batch(self) -> None:
        with pytest.raises(CorruptRecord, match="0 records"):
            read_header(empty_batch(0, 5, 1))

    @given(data=st.binary(max_size=120))
    def test_random_bytes(self, data: bytes) -> None:
        with pytest.raises(CorruptRecord):
            read_header(data)


class TestSplit:
    def test_nothing(self) -> None:
        assert split_batches(b"") == []

    def test_several(self) -> None:
        parts = [batch(0), batch(3, 4), empty_batch(6, 1, 0), batch(8)]
        assert split_batches(b"".join(parts)) == parts

    def test_looks_at_nothing_but_the_structure(self) -> None:
        damaged = batch()[:-1] + b"\xff"
        assert split_batches(damaged) == [damaged]

    def test_a_batch_cut_short(self) -> None:
        for cut in range(1, len(batch())):
            with pytest.raises(CorruptRecord):
                split_batches(batch() + batch()[:cut])


class TestAssemble:
    @pytest.mark.parametrize("codec", [-1, 5, 7])
    def test_unknown_codec(self, codec: int) -> None:
        with pytest.raises(UnsupportedCompression):
            batch(codec=codec)

    def test_an_empty_batch_moves_past_a_gap(self) -> None:
        data = empty_batch(100, 2**31 - 1, 77)
        assert len(data) == HEADER_SIZE
        assert struct.unpack_from(">q", data, 0) == (100,)
        assert struct.unpack_from(">iqq", data, 23) == (2**31 - 1, -1, 77)
        assert struct.unpack_from(">i", data, 57) == (0,)
