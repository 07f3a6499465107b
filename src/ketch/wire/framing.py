"""Kafka's outermost frame: an int32 length, big-endian, and that many bytes.

Sans-IO: bytes go in as the socket delivers them, whole frames come out. Most of a large frame may be read from the
socket straight into the frame (`FrameReader.room`); these bytes are not copied.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ketch.errors import KetchError
from ketch.wire.kernel import blank, writable

_LENGTH = struct.Struct(">i")
_LARGE = 1 << 12  # bytes of a read that are worth an object of their own
_STAYING = 1 << 15  # bytes missing of a frame that are worth to be read to where they stay
_STAYING_MAX = 1 << 23  # the largest frame that room is made for before it has come in


class FrameError(KetchError):
    """The length prefix can't be Kafka's: the connection has to be closed."""


class FrameReader:
    """Cuts a byte stream into frames; memory grows with what has arrived, never with what a length claims.

    (Room for a frame of up to 8 MB is made as a whole: the system gives memory for what is written there.)

    Args:
        max_bytes: the largest frame taken (setting `socket_request_max_bytes`).

    Attributes:
        room: the part of a large frame that the next bytes from the socket belong to; whoever puts them there calls
            `filled`. None: the next bytes are for `feed`.
    """

    __slots__ = ("_held", "_limit", "_missing", "_parts", "_prefix", "_staying", "max_bytes", "room")

    def __init__(self, max_bytes: int) -> None:
        self.bound(max_bytes)
        self._prefix = b""  # the bytes of the length prefix received so far
        self._missing = 0  # bytes of the frame at hand
        self._parts: list[
            memoryview | bytearray
        ] = []  # of that frame; small ones are joined, so that tiny reads make no long list
        self._held = 0  # bytes of it that are here
        self._staying: bytes | bytearray | None = None  # in the place of parts: where it will be whole
        self.room: memoryview | None = None

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
            yield self._completed(part)
        self._prefix = bytes(view)

    def filled(self, size: int) -> None:
        """So many bytes were put into the `room`."""
        self._held += size
        self._missing -= size
        self._make_room()

    def _make_room(self) -> None:
        """The last byte of a frame is left to `feed`, which so gives every frame."""
        if self._staying is not None and self._missing >= _STAYING:
            self.room = writable(self._staying, self._held)[:-1]
        else:
            self.room = None

    def _completed(self, last: memoryview) -> bytes:
        """The frame at hand, of which these bytes are the last."""
        if self._staying is None:
            frame = b"".join((*self._parts, last))
        else:
            writable(self._staying, self._held)[:] = last
            frame, self._staying = bytes(self._staying), None
        self._parts, self._held = [], 0
        return frame

    def _keep(self, part: memoryview, read: int) -> None:
        if self._staying is None and not self._parts and _STAYING <= self._missing <= _STAYING_MAX - len(part):
            self._staying = blank(len(part) + self._missing)
        if self._staying is not None:
            writable(self._staying, self._held)[: len(part)] = part
        elif len(part) >= max(_LARGE, read // 2):  # a view keeps the whole read in memory
            self._parts.append(part)
        elif self._parts and isinstance(self._parts[-1], bytearray):
            self._parts[-1] += part
        else:
            self._parts.append(bytearray(part))
        self._held += len(part)
        self._make_room()

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
