"""Kafka's outermost frame: an int32 length, big-endian, and that many bytes.

Sans-IO: bytes go in as the socket delivers them, whole frames come out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ketch.errors import KetchError

_LENGTH = struct.Struct(">i")
_LARGE = 1 << 12  # bytes of a read that are worth an object of their own


class FrameError(KetchError):
    """The length prefix can't be Kafka's: the connection has to be closed."""


class FrameReader:
    """Cuts a byte stream into frames; memory grows with what has arrived, never with what a length claims.

    Args:
        max_bytes: the largest frame taken (setting `socket_request_max_bytes`).
    """

    __slots__ = ("_held", "_limit", "_missing", "_parts", "_prefix", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.bound(max_bytes)
        self._prefix = b""  # the bytes of the length prefix received so far
        self._missing = 0  # bytes of the frame at hand
        self._parts: list[
            memoryview | bytearray
        ] = []  # of that frame; small ones are joined, so that tiny reads make no long list
        self._held = 0  # bytes in these

    def bound(self, max_bytes: int, setting: str = "socket_request_max_bytes") -> None:
        """From the next frame on the largest that is taken is another, by that setting."""
        self.max_bytes, self._limit = max_bytes, setting

    @property
    def buffered(self) -> int:
        """Bytes held of a frame that is not whole yet."""
        return self._held + 4 if self._missing else len(self._prefix)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Takes what a socket read returned, gives the frames it completes, in order, without their prefix.

        Raises:
            FrameError: a length is negative or above `max_bytes`. The frames before it were given; the bytes after it
                cannot be trusted.
        """
        view = memoryview(self._prefix + data if self._prefix else data)
        self._prefix = b""
        while self._missing or len(view) >= 4:
            if not self._missing:
                self._missing = self._length(view)
                view = view[4:]
            part = view[: self._missing]
            view = view[len(part) :]
            self._missing -= len(part)
            if self._missing:
                self._keep(part, len(data))
                return
            frame = b"".join((*self._parts, part))
            self._parts, self._held = [], 0
            yield frame
        self._prefix = bytes(view)

    def _keep(self, part: memoryview, read: int) -> None:
        self._held += len(part)
        if len(part) >= max(_LARGE, read // 2):  # a view keeps the whole read in memory
            self._parts.append(part)
        elif self._parts and isinstance(self._parts[-1], bytearray):
            self._parts[-1] += part
        else:
            self._parts.append(bytearray(part))

    def _length(self, frame: memoryview) -> int:
        size: int = _LENGTH.unpack_from(frame)[0]
        if 0 <= size <= self.max_bytes:
            return size
        raise FrameError(_explain(bytes(frame[:4]), size, self.max_bytes, self._limit))


def _explain(prefix: bytes, size: int, limit: int, setting: str) -> str:
    """One phrase for the log; names the two usual mistakes."""
    if prefix in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI"):
        return "an HTTP request on the Kafka port"
    if prefix[:2] == b"\x16\x03":
        return "a TLS hello on the plaintext Kafka port"
    return f"a frame length of {size} (allowed: 0 to {limit}, {setting})"
