"""Kafka's outermost frame: an int32 length, big-endian, and that many bytes.

Sans-IO: bytes go in as the socket delivers them, whole frames come out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ketch.errors import KetchError

_LENGTH = struct.Struct(">i")


class FrameError(KetchError):
    """The length prefix can't be Kafka's: the connection has to be closed."""


class FrameReader:
    """Cuts a byte stream into frames; memory grows with what has arrived, never with what a length claims.

    Args:
        max_bytes: the largest frame taken (`socket.request.max.bytes`).
    """

    __slots__ = ("_need", "_rest", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._rest = bytearray()  # of a frame that is not whole yet; one piece, however small the reads
        self._need = 0  # bytes of that frame with its prefix; 0 while the prefix is incomplete

    @property
    def buffered(self) -> int:
        """Bytes held of a frame that is not whole yet."""
        return len(self._rest)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Takes what a socket read returned, gives the frames it completes, in order, without their prefix.

        Raises:
            FrameError: behind the frames before it, a length that is negative or above `max_bytes`; nothing after it
                can be trusted.
        """
        whole: bytes | bytearray = data
        if self._rest:
            self._rest += data
            if len(self._rest) < self._need:
                return
            whole, self._rest = self._rest, bytearray()
        view = memoryview(whole)
        self._need = 0
        while len(view) >= 4:
            size = self._length(view)
            if len(view) - 4 < size:
                self._need = size + 4
                break
            yield bytes(view[4 : 4 + size])
            view = view[4 + size :]
        self._rest += view

    def _length(self, frame: memoryview) -> int:
        size: int = _LENGTH.unpack_from(frame)[0]
        if 0 <= size <= self.max_bytes:
            return size
        raise FrameError(_explain(bytes(frame[:4]), size, self.max_bytes))


def _explain(prefix: bytes, size: int, limit: int) -> str:
    """One phrase for the log; names the two usual mistakes."""
    if prefix in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI"):
        return "an HTTP request on the Kafka port"
    if prefix[:2] == b"\x16\x03":
        return "a TLS hello on the plaintext Kafka port"
    return f"a frame length of {size} (allowed: 0 to {limit}, socket.request.max.bytes)"
