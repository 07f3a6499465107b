"""Produce requests on one connection, a steady number of them in flight; prints {"seconds": what they took}.

Argument: JSON with `server`, `topic`, `records` and `size` (of each request, bytes of a record), `window` (requests in
flight) and `count`. Ends with 1 where a request was refused or none is answered for a minute.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator

from frames import produce, produce_error

_PATIENCE = 60.0


def main() -> None:
    options = json.loads(sys.argv[1])
    host, _, port = options["server"].rpartition(":")
    frame = produce(options["topic"], *[b"v" * options["size"]] * options["records"])
    with socket.create_connection((host, int(port)), _PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begin = time.monotonic()
        send(connection, frame, options["topic"], options["window"], options["count"])
        print(json.dumps({"seconds": time.monotonic() - begin}))


def send(connection: socket.socket, frame: bytes, topic: str, window: int, count: int) -> None:
    """Sends `count` requests; the next is sent as soon as fewer than `window` are in flight."""
    sent, answered, received = 0, 0, b""
    while answered < count:
        due = min(answered + window, count) - sent
        connection.sendall(frame * due)
        sent += due
        data = connection.recv(65_536)
        if not data:
            sys.exit("the broker closed the connection")
        received += data
        for response in whole(received):
            if error := produce_error(topic, response):
                sys.exit(f"error code {error}")
            received = received[4 + len(response) :]
            answered += 1


def whole(received: bytes) -> Iterator[bytes]:
    """The whole responses at the beginning of what was received, without their lengths."""
    place = 0
    while len(received) >= place + 4:
        end = place + 4 + int.from_bytes(received[place : place + 4])
        if len(received) < end:
            return
        yield received[place + 4 : end]
        place = end


if __name__ == "__main__":
    main()
