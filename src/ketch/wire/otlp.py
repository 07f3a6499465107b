"""Reads numbers out of OpenTelemetry's MetricsData (opentelemetry.proto.metrics.v1), as clients push it (KIP-714).

A reader for the few fields that are wanted, instead of a dependency on generated code: gauges and sums, with their
name and attributes. Histograms and summaries are passed over. No I/O; the input is a client's, so its depth and the
number of values are bounded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ketch.errors import KetchError

MOST_VALUES = 10_000  # of one push; others are passed over

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types of protobuf
_RESOURCE_METRICS, _SCOPE_METRICS, _METRICS = 1, 2, 2
_NAME, _GAUGE, _SUM, _POINTS = 1, 5, 7, 1
_AS_DOUBLE, _AS_INT, _ATTRIBUTES = 4, 6, 7
_KEY, _VALUE, _STRING, _BOOL, _INT, _DOUBLE = 1, 2, 1, 2, 3, 4


class MalformedMetrics(KetchError):
    """Bytes that are no MetricsData; Kafka's INVALID_RECORD (87)."""


class Value(NamedTuple):
    """One number of one metric."""

    metric: str
    attributes: tuple[tuple[str, str], ...]
    value: float


def read_metrics(data: bytes) -> list[Value]:
    """The numbers in a serialized MetricsData.

    Raises:
        MalformedMetrics: it is none.
    """
    found: list[Value] = []
    for value in _values(data):
        if len(found) == MOST_VALUES:
            break
        found.append(value)
    return found


def _values(data: bytes) -> Iterator[Value]:
    for resource in _messages(data, _RESOURCE_METRICS):
        for scope in _messages(resource, _SCOPE_METRICS):
            for metric in _messages(scope, _METRICS):
                yield from _numbers(metric)


def _numbers(metric: bytes) -> Iterator[Value]:
    name = next((_text(value) for number, value in _fields(metric) if number == _NAME), "")
    for number, series in _fields(metric):
        if number in (_GAUGE, _SUM):
            for point in _messages(_bytes(series), _POINTS):
                value, attributes = _point(point)
                if value is not None:
                    yield Value(name, attributes, value)


def _point(point: bytes) -> tuple[float | None, tuple[tuple[str, str], ...]]:
    value: float | None = None
    attributes = []
    for number, field in _fields(point):
        if number == _AS_DOUBLE:
            (value,) = struct.unpack("<d", _eight(field))
        elif number == _AS_INT:
            (value,) = struct.unpack("<q", _eight(field))
        elif number == _ATTRIBUTES:
            attributes.append(_attribute(_bytes(field)))
    return value, tuple(sorted(attributes))


def _attribute(pair: bytes) -> tuple[str, str]:
    fields = dict(_fields(pair))
    for number, value in _fields(_bytes(fields.get(_VALUE, b""))):
        if number == _STRING:
            return _text(fields.get(_KEY, b"")), _text(value)
        if number in (_BOOL, _INT) and isinstance(value, int):
            return _text(fields.get(_KEY, b"")), str(value)
        if number == _DOUBLE:
            return _text(fields.get(_KEY, b"")), str(struct.unpack("<d", _eight(value))[0])
    return _text(fields.get(_KEY, b"")), ""


# -- protobuf


def _messages(data: bytes, number: int) -> Iterator[bytes]:
    return (_bytes(value) for found, value in _fields(data) if found == number)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field: a varint as a number, others as their bytes."""
    pos = 0
    while pos < len(data):
        tag, pos = _varint(data, pos)
        kind = tag & 7
        if kind == _VARINT:
            value, pos = _varint(data, pos)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, pos = _varint(data, pos)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise MalformedMetrics(f"a field of wire type {kind}")
        if size > len(data) - pos:
            raise MalformedMetrics("a field is cut short")
        yield tag >> 3, data[pos : pos + size]
        pos += size


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70 and pos < len(data):
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7
    raise MalformedMetrics("a number is cut short or too long")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise MalformedMetrics("a number where a message should be")
    return value


def _eight(value: int | bytes) -> bytes:
    if isinstance(value, int) or len(value) != 8:
        raise MalformedMetrics("a value is no 64-bit number")
    return value


def _text(value: int | bytes) -> str:
    return _bytes(value).decode(errors="replace")
