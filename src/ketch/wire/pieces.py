"""Bytes that lie in several places and are written to a socket from there."""

from __future__ import annotations

from typing import TypeAlias

BytesLike: TypeAlias = bytes | bytearray | memoryview

_LARGE_MEAN = 1 << 14  # bytes of a piece; copying smaller ones costs less than a piece more


class Pieces:
    """What a field of bytes may be, too."""

    __slots__ = ("_size", "pieces")

    def __init__(self, pieces: list[BytesLike], size: int) -> None:
        self.pieces, self._size = pieces, size

    def __len__(self) -> int:
        return self._size


def gather(pieces: list[BytesLike]) -> bytes | Pieces:
    """The bytes as they lie where they are large, else as one."""
    size = sum(map(len, pieces))
    return b"".join(pieces) if size < _LARGE_MEAN * len(pieces) else Pieces(pieces, size)
