"""MetricsData of OpenTelemetry as a client serializes it: as plain as can be, to be read by ketch.wire.otlp."""

from __future__ import annotations

import struct


def bytes_of_varint(value: int) -> bytes:
    """Protobuf's, without zig-zag."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, content: bytes) -> bytes:
    """A field of bytes: a message or a text."""
    return bytes_of_varint(number << 3 | 2) + bytes_of_varint(len(content)) + content


def point(value: float, **attributes: str) -> bytes:
    """A NumberDataPoint; an int is written as one."""
    pairs = [field(7, field(1, name.encode()) + field(2, field(1, text.encode()))) for name, text in attributes.items()]
    if isinstance(value, int):
        number = bytes_of_varint(6 << 3 | 1) + struct.pack("<q", value)
    else:
        number = bytes_of_varint(4 << 3 | 1) + struct.pack("<d", value)
    return b"".join(pairs) + bytes_of_varint(3 << 3 | 1) + bytes(8) + number


def metric(name: str, *points: bytes, kind: int = 7) -> bytes:
    """A Metric: a sum, or with kind 5 a gauge, with 9 a histogram."""
    return field(1, name.encode()) + field(3, b"ms") + field(kind, b"".join(field(1, each) for each in points))


def metrics_data(*metrics: bytes) -> bytes:
    """All of them in one scope of one resource."""
    scope = field(1, field(1, b"scope")) + b"".join(field(2, each) for each in metrics)
    return field(1, field(1, b"") + field(2, scope))
