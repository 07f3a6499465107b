"""A client of Kafka 0.7 that costs next to nothing: one socket, frames made before the clock runs.

Prints {"seconds": ...} as JSON. A producer's clock ends when an OFFSETS, which waits for what was produced before on
its connection, is answered; a consumer fetches chunks and takes the next position from the messages in them.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import sys
import time
from collections.abc import Iterator
from zlib import crc32

_SET = 200  # messages of a request, the batch.size of 0.7's producer
_CHUNK = 1 << 20  # bytes of a fetch
_EARLIEST = -2


def _request(kind: int, topic: str, rest: bytes) -> bytes:
    body = struct.pack(">hh", kind, len(topic)) + topic.encode() + struct.pack(">i", 0) + rest
    return struct.pack(">i", len(body)) + body


def _message(payload: bytes) -> bytes:
    return struct.pack(">ibbI", 6 + len(payload), 1, 0, crc32(payload)) + payload


class Client:
    def __init__(self, server: str) -> None:
        host, _, port = server.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def response(self) -> bytes:
        size, code = struct.unpack(">ih", self._exactly(6))
        assert code == 0, f"error code {code}"
        return self._exactly(size - 2)

    def position(self, topic: str, of: int) -> int:
        self.send(_request(4, topic, struct.pack(">qi", of, 1)))
        position: int = struct.unpack_from(">q", self.response(), 4)[0]
        return position

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            got = self._socket.recv_into(view)
            assert got, "the broker closed the connection"
            view = view[got:]
        return bytes(data)


def _requests(topic: str, size: int, count: int) -> Iterator[bytes]:
    source = random.Random(7)
    messages = [_message(source.randbytes(size)) for _ in range(_SET)]
    for start in range(0, count, _SET):
        data = b"".join(messages[: min(_SET, count - start)])
        yield _request(0, topic, struct.pack(">i", len(data)) + data)


def produce(client: Client, topic: str, size: int, count: int) -> float:
    requests = list(_requests(topic, size, count))
    begin = time.monotonic()
    for request in requests:
        client.send(request)
    client.position(topic, _EARLIEST)  # the latest would have the positions counted
    return time.monotonic() - begin


def consume(client: Client, topic: str, count: int) -> float:
    begin = time.monotonic()
    position, left = client.position(topic, _EARLIEST), count
    while left > 0:
        client.send(_request(1, topic, struct.pack(">qi", position, _CHUNK)))
        chunk = client.response()
        at = 0
        while at + 4 <= len(chunk):
            end = at + 4 + int.from_bytes(chunk[at : at + 4])
            if end > len(chunk):
                break
            at, left = end, left - 1
        position += at
    return time.monotonic() - begin


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    connected, name, number = Client(given["server"]), given["topic"], given["count"]
    if given["verb"] == "produce":
        seconds = produce(connected, name, given["size"], number)
    else:
        seconds = consume(connected, name, number)
    print(json.dumps({"seconds": seconds}))
