"""Kafka requests as bytes, for thousands of connections, where a client library would use too much CPU and memory.

Frames are bytes with their length in front, ready to be sent.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence

import crc32c

_API_VERSIONS, _PRODUCE, _SASL_HANDSHAKE, _SASL_AUTHENTICATE = 18, 0, 17, 36


def _frame(key: int, version: int, body: bytes) -> bytes:
    """Header version 1: key, version, correlation id 0, client id "bench"."""
    payload = struct.pack(">hhi", key, version, 0) + _string("bench") + body
    return struct.pack(">i", len(payload)) + payload


def _string(words: str) -> bytes:
    return struct.pack(">h", len(words)) + words.encode()


def api_versions() -> bytes:
    """Version 0."""
    return _frame(_API_VERSIONS, 0, b"")


def sasl_handshake(mechanism: str) -> bytes:
    """Version 1."""
    return _frame(_SASL_HANDSHAKE, 1, _string(mechanism))


def sasl_authenticate(token: bytes) -> bytes:
    """Version 0."""
    return _frame(_SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)


def sasl_answer(response: bytes) -> tuple[int, bytes]:
    """Error code and token of the answer to a SaslAuthenticate; the response without its length."""
    code, message = struct.unpack_from(">hh", response, 4)
    return code, response[8 + max(0, message) + 4 :]


def produce(topic: str, *values: bytes) -> bytes:
    """Version 7, acks=all: one batch to partition 0, a record for each value."""
    records = _batch(values)
    partition = struct.pack(">iii", 1, 0, len(records)) + records
    body = struct.pack(">hhi", -1, -1, 30_000) + struct.pack(">i", 1) + _string(topic) + partition
    return _frame(_PRODUCE, 7, body)


def produce_error(topic: str, response: bytes) -> int:
    """The error code of the answer's only partition; the response without its length."""
    return int(struct.unpack_from(">h", response, 4 + 4 + 2 + len(topic) + 4 + 4)[0])


def _batch(values: Sequence[bytes]) -> bytes:
    now, last = int(time.time() * 1000), len(values) - 1
    records = b"".join(_record(place, value) for place, value in enumerate(values))
    checked = struct.pack(">hiqqqhii", 0, last, now, now, -1, -1, -1, len(values)) + records
    rest = struct.pack(">ibI", -1, 2, crc32c.crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(rest)) + rest


def _record(place: int, value: bytes) -> bytes:
    """Attributes, deltas of timestamp and offset, no key, value, no headers."""
    fields = b"\0\0" + _varint(place) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    return _varint(len(fields)) + fields


def _varint(value: int) -> bytes:
    left, out = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])
