"""Frames cut out of what a socket delivers, however it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.wire.framing import FrameError, FrameReader

frames = st.lists(st.binary(max_size=40) | st.integers(16, 60).map(lambda n: bytes(range(250)) * n), max_size=5)


@given(wanted=frames, data=st.data(), rest=st.binary(max_size=3))
def test_cut_anywhere(wanted: list[bytes], data: st.DataObject, rest: bytes) -> None:
    stream = b"".join(len(frame).to_bytes(4) + frame for frame in wanted) + rest
    reader, got, at, whole = FrameReader(1 << 20), list[bytes](), 0, 0
    while at < len(stream):
        size = len(stream) // 100 + data.draw(st.sampled_from([1, 3, 50, 5_000, 9_000]))
        got += reader.feed(stream[at : at + size])
        at = min(at + size, len(stream))
        whole = sum(len(frame) + 4 for frame in got)
        assert reader.buffered == at - whole
    assert got == wanted
    assert all(type(frame) is bytes for frame in got)


@pytest.mark.parametrize("prefix", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x65", b"GET "])
def test_a_length_that_cannot_be(prefix: bytes) -> None:
    reader = FrameReader(100)
    feeding = reader.feed(b"\x00\x00\x00\x01a" + prefix)
    assert next(feeding) == b"a"
    with pytest.raises(FrameError):
        next(feeding)
