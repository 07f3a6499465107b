"""Kafka requests as a test wants them, without a client library's good manners."""

from __future__ import annotations

import io
import socket
from typing import Any

from kio.serial import entity_reader, entity_writer


def encoded(request: Any, correlation_id: int, client_id: str | None) -> bytes:
    """Header and body of a request, a kio entity, without the length prefix."""
    header_type = request.__header_schema__
    known = header_type.__dataclass_fields__
    header = {
        "request_api_key": request.__api_key__,
        "request_api_version": request.__version__,
        "correlation_id": correlation_id,
        "client_id": client_id,
    }
    buffer = io.BytesIO()
    entity_writer(header_type)(buffer, header_type(**{k: v for k, v in header.items() if k in known}))
    entity_writer(type(request))(buffer, request)
    return buffer.getvalue()


class RawClient:
    """One connection. `call` for whole requests; `send_frame` and `receive` for malformed ones and for pipelining.

    Args:
        timeout: seconds that a receive waits before it raises TimeoutError.
        source: the address of this machine to call from; any one without it.
    """

    def __init__(
        self, host: str, port: int, timeout: float = 10.0, client_id: str | None = "raw", source: str = ""
    ) -> None:
        self.socket = socket.create_connection((host, port), timeout, (source, 0) if source else None)
        self.client_id = client_id
        self.correlation_id = 0

    def encode(self, request: Any) -> bytes:
        """Header and body, without the length prefix; takes the next correlation id."""
        self.correlation_id += 1
        return encoded(request, self.correlation_id, self.client_id)

    def send_frame(self, payload: bytes, length: int | None = None) -> None:
        """Sends a payload behind its length, or behind a `length` that lies."""
        self.socket.sendall((len(payload) if length is None else length).to_bytes(4, signed=True) + payload)

    def receive(self) -> bytes | None:
        """The next response frame without its length; None where the broker has closed the connection."""
        try:
            prefix = self._exactly(4)
            return prefix and self._exactly(int.from_bytes(prefix))
        except ConnectionError:
            return None

    def decode(self, frame: bytes, response_type: type[Any]) -> tuple[int, Any]:
        """(correlation id, response); bytes left over are an AssertionError."""
        header, used = entity_reader(response_type.__header_schema__)(frame, 0)
        response, size = entity_reader(response_type)(frame, used)
        assert used + size == len(frame), f"{len(frame) - used - size} bytes behind the response"
        return header.correlation_id, response

    def call(self, request: Any, response_type: type[Any]) -> Any:
        """One request and its response; ConnectionError where the broker closes instead of answering."""
        self.send_frame(self.encode(request))
        frame = self.receive()
        if frame is None:
            raise ConnectionError("the broker closed the connection")
        correlation_id, response = self.decode(frame, response_type)
        assert correlation_id == self.correlation_id
        return response

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                return None
            data += more
        return bytes(data)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
