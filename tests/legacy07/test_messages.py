"""Messages and sets of them, from bytes written out by hand."""

from __future__ import annotations

import gzip
import struct
from zlib import crc32

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.errors import RecordTooLarge
from ketch.legacy07.errors import InvalidMessage
from ketch.legacy07.messages import GZIP, NONE, SNAPPY, Message, inner, split

LIMIT = 1 << 20

# "hello" has the CRC32 3610a686.
HELLO_0 = bytes.fromhex("0000000a 00 3610a686 68656c6c6f")
HELLO_1 = bytes.fromhex("0000000b 01 00 3610a686 68656c6c6f")


def compressed(codec: int, payload: bytes) -> Message:
    return Message(1, codec, payload)


def xerial(data: bytes) -> bytes:
    """Framed as old Java clients write it: magic, version 1, compatible with 1, one block after its length."""
    block = bytes(cramjam.snappy.compress_raw(data))
    return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block


def raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


class TestSplit:
    def test_a_message_of_0_6(self) -> None:
        assert split(HELLO_0) == [Message(0, NONE, b"hello")]

    def test_a_message_of_0_7(self) -> None:
        assert split(HELLO_1) == [Message(1, NONE, b"hello")]

    def test_both_kinds_in_a_set(self) -> None:
        assert [message.magic for message in split(HELLO_1 + HELLO_0 + HELLO_1)] == [1, 0, 1]

    def test_an_empty_payload(self) -> None:
        assert split(bytes.fromhex("00000006 01 00 00000000")) == [Message(1, NONE, b"")]
        assert split(bytes.fromhex("00000005 00 00000000")) == [Message(0, NONE, b"")]

    def test_an_empty_set(self) -> None:
        assert split(b"") == []

    @pytest.mark.parametrize("cut", range(len(HELLO_1)))
    def test_what_is_cut_short_at_the_end_is_left_out(self, cut: int) -> None:
        assert split(HELLO_0 + HELLO_1[:cut]) == [Message(0, NONE, b"hello")]

    @pytest.mark.parametrize(
        ("data", "flaw"),
        [
            ("0000000a 00 3610a687 68656c6c6f", "checksum"),
            ("0000000b 01 00 3610a687 68656c6c6f", "checksum"),
            ("0000000b 02 00 3610a686 68656c6c6f", "magic"),
            ("0000000b ff 00 3610a686 68656c6c6f", "magic"),
            ("0000000b 01 03 3610a686 68656c6c6f", "compression"),
            ("0000000b 01 80 3610a686 68656c6c6f", "compression"),
            ("00000004 00 000000", "length"),
            ("00000005 01 00 000000", "length"),
            ("ffffffff 00 00000000", "length"),
            ("00000000", "length"),
            ("0000000b 01 00 3610a686 68656c6c", "length"),  # the only one of the set, and cut short
        ],
    )
    def test_what_is_wrong_is_named(self, data: str, flaw: str) -> None:
        with pytest.raises(InvalidMessage) as caught:
            split(bytes.fromhex(data))
        assert caught.value.flaw == flaw

    def test_a_damaged_message_spoils_the_set(self) -> None:
        with pytest.raises(InvalidMessage, match="message 1 of a set"):
            split(HELLO_0 + HELLO_1.replace(b"hello", b"hallo") + HELLO_0)

    @given(st.lists(st.builds(Message, st.just(1), st.integers(0, 2), st.binary(max_size=50))), st.binary(max_size=3))
    def test_a_set_comes_back_byte_for_byte(self, messages: list[Message], tail: bytes) -> None:
        data = b"".join(message.encode() for message in messages)
        assert split(data + tail) == messages
        assert sum(message.size for message in messages) == len(data)

    @given(st.binary(max_size=200))
    def test_anything_is_a_set_or_invalid(self, data: bytes) -> None:
        try:
            messages = split(data)
        except InvalidMessage:
            return
        assert data.startswith(b"".join(message.encode() for message in messages))


class TestInner:
    def test_a_message_that_is_not_compressed_holds_itself(self) -> None:
        assert list(inner(Message(0, NONE, b"hello"), LIMIT)) == [b"hello"]

    @pytest.mark.parametrize(
        ("codec", "payload"),
        [
            (GZIP, gzip.compress(HELLO_0 + HELLO_1)),
            (SNAPPY, raw(HELLO_0 + HELLO_1)),
            (SNAPPY, xerial(HELLO_0 + HELLO_1)),
        ],
        ids=["gzip", "raw", "framed"],
    )
    def test_a_compressed_one_holds_a_set(self, codec: int, payload: bytes) -> None:
        assert list(inner(compressed(codec, payload), LIMIT)) == [b"hello", b"hello"]

    def test_sets_within_each_other_in_their_order(self) -> None:
        deepest = compressed(SNAPPY, raw(Message(1, NONE, b"b").encode() + Message(0, NONE, b"c").encode()))
        middle = compressed(GZIP, gzip.compress(Message(1, NONE, b"a").encode() + deepest.encode() + HELLO_0))
        assert list(inner(middle, LIMIT)) == [b"a", b"b", b"c", b"hello"]

    def test_a_set_cut_short_within(self) -> None:
        assert list(inner(compressed(GZIP, gzip.compress(HELLO_0 + HELLO_1[:-1])), LIMIT)) == [b"hello"]

    @pytest.mark.parametrize(
        ("message", "flaw"),
        [
            (compressed(GZIP, b"not gzip"), "content"),
            (compressed(SNAPPY, b"\xff\xff\xff\xff\xff\xff"), "content"),
            (compressed(GZIP, gzip.compress(HELLO_0.replace(b"hello", b"hallo"))), "checksum"),
            (compressed(GZIP, gzip.compress(HELLO_1[:-1])), "length"),
        ],
    )
    def test_what_is_wrong_within_is_named(self, message: Message, flaw: str) -> None:
        with pytest.raises(InvalidMessage) as caught:
            list(inner(message, LIMIT))
        assert caught.value.flaw == flaw

    def test_no_deeper_than_eight(self) -> None:
        message = Message(1, NONE, b"a")
        for _ in range(8):
            message = compressed(GZIP, gzip.compress(message.encode()))
        assert list(inner(message, LIMIT)) == [b"a"]
        with pytest.raises(InvalidMessage) as caught:
            list(inner(compressed(GZIP, gzip.compress(message.encode())), LIMIT))
        assert caught.value.flaw == "nesting"

    def test_the_limit_counts_all_levels(self) -> None:
        bomb = compressed(GZIP, gzip.compress(Message(1, NONE, bytes(600)).encode()))
        pair = compressed(GZIP, gzip.compress(bomb.encode() * 2))
        assert len(list(inner(pair, 2_000))) == 2
        with pytest.raises(RecordTooLarge):
            list(inner(pair, 1_000))

    def test_the_checksum_is_that_of_the_compressed_bytes(self) -> None:
        payload = gzip.compress(HELLO_0)
        assert compressed(GZIP, payload).encode()[6:10] == crc32(payload).to_bytes(4)
