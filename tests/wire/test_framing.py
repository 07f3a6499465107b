"""Frames cut out of what a socket delivers, however it is cut."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.wire import _pure_walk, framing, kernel
from ketch.wire.framing import FrameError, FrameReader

_MOST = 1 << 23  # bytes of a frame that room is made for

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


@pytest.mark.parametrize("module", [pytest.param(kernel, id="kernel"), pytest.param(_pure_walk, id="pure")])
@given(
    sizes=st.lists(st.sampled_from([0, 5, 30_000, 32_767, 32_768, 40_000, 100_000, _MOST, _MOST + 1]), max_size=4),
    data=st.data(),
)
def test_read_to_where_it_stays(module: ModuleType, sizes: list[int], data: st.DataObject) -> None:
    """As a connection reads: into the room where there is one, no more than fits there."""
    wanted = [bytes(range(251)) * (size // 251) + b"e" * (size % 251) for size in sizes]
    stream = memoryview(b"".join(len(frame).to_bytes(4) + frame for frame in wanted))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(framing, "blank", module.blank)
        patch.setattr(framing, "writable", module.writable)
        reader, got, at, whole = FrameReader(16 << 20), list[bytes](), 0, 0
        while at < len(stream):
            read = data.draw(st.sampled_from([1, 3000, 16_384, 70_000, 1 << 18])) + len(stream) // 100
            room = reader.room
            if room is None:
                part = stream[at : at + read]
                got += reader.feed(bytes(part))
            else:
                assert len(room) >= (1 << 15) - 1
                part = stream[at : at + min(read, len(room))]
                room[: len(part)] = part
                reader.filled(len(part))
            at += len(part)
            whole = sum(len(frame) + 4 for frame in got)
            assert reader.buffered == at - whole
    assert got == wanted
    assert all(type(frame) is bytes for frame in got)


def test_no_room_for_what_may_never_come() -> None:
    reader = FrameReader(100 << 20)
    assert list(reader.feed((100 << 20).to_bytes(4) + bytes(40_000))) == []
    assert reader.room is None


@pytest.mark.parametrize("prefix", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x65", b"GET "])
def test_a_length_that_cannot_be(prefix: bytes) -> None:
    reader = FrameReader(100)
    feeding = reader.feed(b"\x00\x00\x00\x01a" + prefix)
    assert next(feeding) == b"a"
    with pytest.raises(FrameError):
        next(feeding)
