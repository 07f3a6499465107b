"""Bytes in several buffers, which are written to a socket without being joined first."""

from __future__ import annotations

from typing import TypeAlias

BytesLike: TypeAlias = bytes | bytearray | memoryview

LARGE_MEAN = 1 << 14  # bytes of a piece; copying smaller ones costs less than a piece more


class Pieces:
    """The value of a response's bytes field, in pieces."""

    __slots__ = ("_size", "pieces")

    def __init__(self, pieces: list[BytesLike], size: int) -> None:
        self.pieces, self._size = pieces, size

    def __len__(self) -> int:
        return self._size


def gather(pieces: list[BytesLike]) -> bytes | Pieces:
    """Large pieces as they are, small ones joined."""
    size = sum(map(len, pieces))
    return b"".join(pieces) if size < LARGE_MEAN * len(pieces) else Pieces(pieces, size)
