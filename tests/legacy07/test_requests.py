"""Requests and responses of Kafka 0.7, from frames written out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.errors import KetchError, OffsetOutOfRange, StorageUnavailable
from ketch.legacy07 import responses
from ketch.legacy07.errors import BadRequest, ErrorCode, InvalidFetchSize, InvalidMessage, WrongPartition, code_of
from ketch.legacy07.requests import Fetch, Kind, Offsets, Produce, decode

T = "0001 74"  # topic "t", its length in front


def request(text: str) -> tuple[Kind, list[Produce | Fetch | Offsets]]:
    return decode(bytes.fromhex(text))


class TestRequests:
    def test_produce(self) -> None:
        kind, parts = request(f"0000 {T} 00000003 00000002 abcd")
        assert (kind, parts) == (Kind.PRODUCE, [Produce("t", 3, memoryview(b"\xab\xcd"))])

    def test_produce_to_any_partition(self) -> None:
        assert request(f"0000 {T} ffffffff 00000000")[1] == [Produce("t", -1, memoryview(b""))]

    def test_fetch(self) -> None:
        kind, parts = request(f"0001 {T} 00000000 0000000100000002 00004000")
        assert (kind, parts) == (Kind.FETCH, [Fetch("t", 0, (1 << 32) + 2, 16384)])

    def test_multifetch(self) -> None:
        kind, parts = request(
            f"0002 0002 {T} 00000000 0000000000000005 00000006 0002 7575 00000001 0000000000000007 00000008"
        )
        assert (kind, parts) == (Kind.MULTIFETCH, [Fetch("t", 0, 5, 6), Fetch("uu", 1, 7, 8)])

    def test_multiproduce(self) -> None:
        kind, parts = request(f"0003 0002 {T} 00000000 00000001 aa 0002 7575 00000001 00000002 bbcc")
        assert kind == Kind.MULTIPRODUCE
        assert parts == [Produce("t", 0, memoryview(b"\xaa")), Produce("uu", 1, memoryview(b"\xbb\xcc"))]

    @pytest.mark.parametrize("kind", ["0002", "0003"])
    def test_no_parts_at_all(self, kind: str) -> None:
        assert request(f"{kind} 0000")[1] == []

    def test_offsets(self) -> None:
        kind, parts = request(f"0004 {T} 00000002 fffffffffffffffe 00000001")
        assert (kind, parts) == (Kind.OFFSETS, [Offsets("t", 2, -2, 1)])

    def test_bytes_behind_a_request_are_ignored(self) -> None:
        assert request(f"0001 {T} 00000000 0000000000000000 00000001 99")[1] == [Fetch("t", 0, 0, 1)]

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("", "0 bytes"),
            ("00", "1 bytes"),
            ("0005", "request type 5"),
            ("ffff", "request type -1"),
            ("0001", "2 bytes are announced at byte 2 of a request of 2"),
            ("0001 0005 74", "5 bytes"),
            ("0001 ffff", "-1 bytes"),
            (f"0001 {T} 00000000 00", "12 bytes"),
            (f"0000 {T} 00000000 00000003 abcd", "3 bytes"),
            (f"0000 {T} 00000000 ffffffff", "-1 bytes"),
            (f"0002 0002 {T} 00000000 0000000000000005 00000006", "2 bytes"),
            ("0002 ffff", "MULTIFETCH of -1 parts"),
        ],
    )
    def test_what_is_no_request(self, text: str, why: str) -> None:
        with pytest.raises(BadRequest, match=why):
            request(text)

    @given(st.binary(max_size=64))
    def test_anything_is_a_request_or_a_bad_one(self, frame: bytes) -> None:
        try:
            kind, parts = decode(frame)
        except BadRequest:
            return
        assert kind in Kind
        assert kind in (Kind.MULTIFETCH, Kind.MULTIPRODUCE) or len(parts) == 1


class TestResponses:
    def test_a_chunk(self) -> None:
        assert b"".join(responses.fetched(b"abc")) == bytes.fromhex("00000005 0000 616263")

    def test_nothing(self) -> None:
        assert b"".join(responses.fetched(b"")) == bytes.fromhex("00000002 0000")

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (StorageUnavailable("x"), "ffff"),
            (OffsetOutOfRange("x"), "0001"),
            (InvalidMessage("magic", "x"), "0002"),
            (WrongPartition("x"), "0003"),
            (InvalidFetchSize("x"), "0004"),
        ],
    )
    def test_every_error_code(self, error: KetchError, code: str) -> None:
        assert b"".join(responses.fetched(b"", code_of(error))) == bytes.fromhex(f"00000002 {code}")

    def test_multifetch_holds_a_response_for_each_part(self) -> None:
        parts = [responses.fetched(b"abc"), responses.fetched(b"", ErrorCode.WRONG_PARTITION), responses.fetched(b"d")]
        expected = "00000018 0000 00000005 0000 616263 00000002 0003 00000003 0000 64"
        assert b"".join(responses.multifetched(parts)) == bytes.fromhex(expected)

    def test_offsets(self) -> None:
        expected = "00000016 0000 00000002 0000000000000100 0000000000000000"
        assert b"".join(responses.offsets([256, 0])) == bytes.fromhex(expected)

    def test_offsets_with_an_error(self) -> None:
        expected = "00000006 0003 00000000"
        assert b"".join(responses.offsets([], ErrorCode.WRONG_PARTITION)) == bytes.fromhex(expected)
