"""Where a reply ends, on a socket buffer that grows."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.model import array, batches, bulk, fields, xrange_reply

LINES = [
    b"+OK\r\n",
    b"-ERR no\r\n",
    b":-12\r\n",
    b"_\r\n",
    b"#t\r\n",
    b",1.5\r\n",
    b"(123456789012345678901\r\n",
    b"+\r\n",
]
STRINGS = [
    bulk(b""),
    bulk(b"\r\n"),
    b"$-1\r\n",
    b"=6\r\ntxt:ab\r\n",
    b"!5\r\nERR x\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"%0\r\n",
]

replies = st.recursive(
    st.sampled_from(LINES + STRINGS) | st.binary(max_size=20).map(bulk),
    lambda inner: (
        st.lists(inner, max_size=4).map(array)
        | st.lists(inner, max_size=4).map(lambda items: b"~%d\r\n" % len(items) + b"".join(items))
        | st.lists(st.tuples(inner, inner), max_size=3).map(
            lambda pairs: b"%%%d\r\n" % len(pairs) + b"".join(a + b for a, b in pairs)
        )
    ),
    max_leaves=12,
)


class TestWhole:
    @given(several=st.lists(replies, max_size=4), rest=st.binary(max_size=10))
    def test_ends_where_the_last_reply_ends(self, kernel: ModuleType, several: list[bytes], rest: bytes) -> None:
        data = b"".join(several)
        assert kernel.scan_reply(data + rest, 0, len(data + rest), len(several)) == (len(data), 0)

    def test_nothing_pending(self, kernel: ModuleType) -> None:
        assert kernel.scan_reply(b"+OK\r\n", 0, 5, 0) == (0, 0)

    def test_starts_in_the_middle_and_heeds_the_end(self, kernel: ModuleType) -> None:
        data = bytearray(b"xx+OK\r\n+OK\r\n")
        assert kernel.scan_reply(data, 2, 7, 1) == (7, 0)
        assert kernel.scan_reply(data, 2, 6, 1) == (2, 1)
        assert kernel.scan_reply(memoryview(data), 2, len(data), 2) == (12, 0)

    @given(several=st.lists(replies, min_size=1, max_size=3), told=st.lists(replies, max_size=4))
    def test_stops_before_a_push(self, kernel: ModuleType, several: list[bytes], told: list[bytes]) -> None:
        push = b">%d\r\n" % len(told) + b"".join(told)
        data = b"".join(several)
        whole = data + push + b"+OK\r\n"
        assert kernel.scan_reply(whole, 0, len(whole), len(several) + 1) == (len(data), 1)
        assert kernel.scan_reply(whole, len(data), len(whole), 1) == (len(data + push), 0)

    @given(rows=batches)
    def test_a_range(self, kernel: ModuleType, rows: list) -> None:
        reply = xrange_reply([(f"1-{i}", fields(row)) for i, row in enumerate(rows)])
        assert kernel.scan_reply(reply, 0, len(reply), 1) == (len(reply), 0)


class TestGrowing:
    @given(several=st.lists(replies, min_size=1, max_size=3))
    def test_cut_anywhere(self, kernel: ModuleType, several: list[bytes]) -> None:
        data = b"".join(several)
        for cut in range(len(data)):
            pos, pending = kernel.scan_reply(data, 0, cut, len(several))
            assert pos <= cut
            assert pending > 0
            assert kernel.scan_reply(data, pos, len(data), pending) == (len(data), 0)

    @given(several=st.lists(replies, min_size=1, max_size=3))
    def test_byte_by_byte(self, kernel: ModuleType, several: list[bytes]) -> None:
        data = b"".join(several)
        pos, pending = 0, len(several)
        for end in range(len(data) + 1):
            assert pending > 0
            before = pos
            pos, pending = kernel.scan_reply(data, pos, end, pending)
            assert before <= pos <= end
        assert (pos, pending) == (len(data), 0)

    def test_passes_only_whole_tokens(self, kernel: ModuleType) -> None:
        data = b"*2\r\n$3\r\nabc\r\n$3\r\nabc\r\n"
        seen = [kernel.scan_reply(data, 0, end, 1) for end in range(len(data) + 1)]
        assert seen == [(0, 1)] * 4 + [(4, 2)] * 9 + [(13, 1)] * 9 + [(22, 0)]


MALFORMED = [
    b"x",
    b"\r\n",
    b"$x\r\n",
    b"$\r\n",
    b"$-2\r\n",
    b"$-1x",
    b"$-01\r\n",
    b"$--1\r\n",
    b"$+1\r\n",
    b"$1x",
    b"$1\rx",
    b"$?\r\n",
]
MALFORMED += [
    b"*2147483648\r\n",
    b"$2147483648\r\n",
    b"$99999999999999999999\r\n",
    b"$000000000000\r\n",
    b"%-2\r\n",
    b"$1\r\nabc",
]
MALFORMED += [b"+" + b"x" * 70_000, b"+" + b"x" * 70_000 + b"\r\n"]


class TestMalformed:
    @pytest.mark.parametrize("data", MALFORMED, ids=lambda data: repr(data[:20]))
    def test_is_refused(self, kernel: ModuleType, data: bytes) -> None:
        with pytest.raises(ValueError, match="malformed"):
            kernel.scan_reply(data, 0, len(data), 1)

    def test_more_pending_than_can_be(self, kernel: ModuleType) -> None:
        data = b"*2\r\n"
        with pytest.raises(ValueError, match="malformed"):
            kernel.scan_reply(data, 0, len(data), 2**63 - 2)

    @pytest.mark.parametrize(("pos", "end", "pending"), [(-1, 1, 1), (2, 1, 1), (0, 6, 1), (0, 5, -1)])
    def test_no_part_of_the_buffer(self, kernel: ModuleType, pos: int, end: int, pending: int) -> None:
        with pytest.raises(ValueError, match="no part"):
            kernel.scan_reply(b"+OK\r\n", pos, end, pending)

    @given(data=st.binary(max_size=40) | st.text("*$+:-_%\r\n0123", max_size=30).map(str.encode))
    def test_random_bytes(self, kernel: ModuleType, data: bytes) -> None:
        try:
            pos, pending = kernel.scan_reply(data, 0, len(data), 1)
        except ValueError:
            return
        assert 0 <= pos <= len(data)
        assert pending >= 0

    @given(data=st.text("*$+:-_%\r\n0123", max_size=30).map(str.encode))
    def test_the_verdict_does_not_depend_on_the_cuts(self, kernel: ModuleType, data: bytes) -> None:
        def outcome(step: int) -> tuple[int, int] | None:
            pos, pending = 0, 1
            try:
                for end in [*range(0, len(data), step), len(data)]:
                    pos, pending = kernel.scan_reply(data, pos, end, pending)
            except ValueError:
                return None
            return pos, pending

        assert outcome(1) == outcome(3) == outcome(1000)
