"""Kafka's outermost frame: an int32 length, big-endian, and that many bytes.

Sans-IO: bytes go in as the socket delivers them, whole frames come out.
"""

from __future__ import annotations

import struct

from ketch.errors import KetchError

_LENGTH = struct.Struct(">i")


class FrameError(KetchError):
    """The length prefix can't be Kafka's: the connection has to be closed."""


class FrameReader:
    """Cuts a byte stream into frames; memory grows with what has arrived, never with what a length claims.

    Args:
        max_bytes: the largest frame taken (`socket.request.max.bytes`).
    """

    __slots__ = ("_chunks", "_have", "_need", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._chunks: list[bytes] = []
        self._have = 0
        self._need = 0  # bytes of the current frame with its prefix; 0 while the prefix is incomplete

    @property
    def buffered(self) -> int:
        """Bytes held of a frame that is not whole yet."""
        return self._have

    def feed(self, data: bytes) -> list[bytes]:
        """Takes what a socket read returned, gives the frames it completes, in order, without their prefix.

        Raises:
            FrameError: a length that is negative or above `max_bytes`; nothing after it can be trusted.
        """
        self._chunks.append(data)
        self._have += len(data)
        if self._have < self._need:
            return []
        buffer = data if len(self._chunks) == 1 else b"".join(self._chunks)
        frames = []
        start, end = 0, len(buffer)
        self._need = 0
        while end - start >= 4:
            size = self._length(buffer, start)
            if end - start - 4 < size:
                self._need = size + 4
                break
            frames.append(buffer[start + 4 : start + 4 + size])
            start += 4 + size
        self._chunks = [buffer[start:]] if start < end else []
        self._have = end - start
        return frames

    def _length(self, buffer: bytes, start: int) -> int:
        size: int = _LENGTH.unpack_from(buffer, start)[0]
        if 0 <= size <= self.max_bytes:
            return size
        raise FrameError(_explain(buffer[start : start + 4], size, self.max_bytes))


def _explain(prefix: bytes, size: int, limit: int) -> str:
    """One phrase for the log; names the two usual mistakes."""
    if prefix in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI"):
        return "an HTTP request on the Kafka port"
    if prefix[:2] == b"\x16\x03":
        return "a TLS hello on the plaintext Kafka port"
    return f"a frame length of {size} (allowed: 0 to {limit}, socket.request.max.bytes)"
