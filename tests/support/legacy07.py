"""Frames of Kafka 0.7 as a test writes them out, and a connection that sends and takes them.

It shares no code with the codec that it tests.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from zlib import crc32


def message(payload: bytes, magic: int = 1, compression: int = 0) -> bytes:
    """One message, its LENGTH in front."""
    attributes = bytes([compression]) if magic else b""
    body = bytes([magic]) + attributes + struct.pack(">I", crc32(payload)) + payload
    return struct.pack(">i", len(body)) + body


def target(topic: str, number: int) -> bytes:
    """What each part of a request begins with."""
    return struct.pack(f">h{len(topic)}si", len(topic), topic.encode(), number)


def frame(kind: int, *parts: bytes) -> bytes:
    """A request: REQUEST_LENGTH, REQUEST_TYPE, parts."""
    body = struct.pack(">h", kind) + b"".join(parts)
    return struct.pack(">i", len(body)) + body


def produce(topic: str, number: int, messages: bytes) -> bytes:
    return frame(0, target(topic, number), struct.pack(">i", len(messages)), messages)


def fetch(topic: str, number: int, position: int, max_size: int) -> bytes:
    return frame(1, target(topic, number), struct.pack(">qi", position, max_size))


def multifetch(*parts: tuple[str, int, int, int]) -> bytes:
    fields = [target(topic, number) + struct.pack(">qi", position, size) for topic, number, position, size in parts]
    return frame(2, struct.pack(">h", len(parts)), *fields)


def multiproduce(*parts: tuple[str, int, bytes]) -> bytes:
    fields = [target(topic, number) + struct.pack(">i", len(data)) + data for topic, number, data in parts]
    return frame(3, struct.pack(">h", len(parts)), *fields)


def offsets(topic: str, number: int, time: int, most: int) -> bytes:
    return frame(4, target(topic, number), struct.pack(">qi", time, most))


class Legacy:
    """One connection to a broker's legacy port."""

    def __init__(self, port: int, timeout: float = 20.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)

    def send(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(frames))

    def response(self) -> tuple[int, bytes] | None:
        """Error code and what follows it; None where the broker has closed the connection."""
        head = self._exactly(6)
        if head is None:
            return None
        size, code = struct.unpack(">ih", head)
        rest = self._exactly(size - 2)
        return None if rest is None else (code, rest)

    def call(self, request: bytes) -> tuple[int, bytes]:
        self.send(request)
        answer = self.response()
        assert answer is not None, "the broker closed the connection"
        return answer

    def positions(self, topic: str, number: int, time: int, most: int = 10) -> list[int]:
        code, rest = self.call(offsets(topic, number, time, most))
        assert code == 0
        (count,) = struct.unpack_from(">i", rest)
        return list(struct.unpack(f">i{count}q", rest)[1:])

    def closed(self) -> bool:
        """Whether the broker has closed the connection; waits for that."""
        return self.response() is None

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            try:
                more = self.socket.recv(min(size - len(data), 1 << 20))
            except ConnectionError:
                return None
            if not more:
                return None
            data += more
        return bytes(data)

    def __enter__(self) -> Legacy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def messages(chunk: bytes) -> Iterator[tuple[int, bytes]]:
    """The whole messages of a chunk: where each begins in it, and its bytes, LENGTH included."""
    at = 0
    while at + 4 <= len(chunk):
        end = at + 4 + int.from_bytes(chunk[at : at + 4])
        if end > len(chunk):
            return
        yield at, chunk[at:end]
        at = end


def payload(whole: bytes) -> bytes:
    """Of a message with its LENGTH, its checksum compared."""
    start = 9 if whole[4] == 0 else 10
    assert crc32(whole[start:]) == int.from_bytes(whole[start - 4 : start])
    return whole[start:]
