"""Requests as kio's entities, which are generated from Kafka's own schemas: handlers read them by attribute."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from kio.index import load_request_schema
from kio.schema.index import api_key_map
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from ketch.wire.bounds import MAX_STRING, MalformedRequest, check_bounds, check_strings

_API = struct.Struct(">hhi")


class RequestHeader(NamedTuple):
    """What every request begins with (Kafka's RequestHeader, versions 1 and 2)."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def peek_api(frame: bytes) -> tuple[int, int, int]:
    """(api key, api version, correlation id), the part of the header that no version changes.

    Raises:
        MalformedRequest: the frame is shorter than that.
    """
    if len(frame) < 8:
        raise MalformedRequest(f"a request of {len(frame)} bytes")
    return _API.unpack_from(frame)


def api_label(api_key: int) -> str:
    """An API for the log: key and Kafka's name, the key alone where Kafka has none."""
    name = api_key_map.get(api_key)
    return f"{api_key} ({''.join(word.capitalize() for word in name.split('_'))})" if name else str(api_key)


@cache
def _request_readers(api_key: int, version: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    schema = load_request_schema(api_key, version)
    return entity_reader(schema.__header_schema__), entity_reader(schema)


def decode_request(frame: bytes, api_key: int, version: int) -> tuple[RequestHeader, Any]:
    """A frame as (header, kio request entity).

    Raises:
        MalformedRequest: truncated or out of bounds.
    """
    frame = check_bounds(frame, api_key, version)
    read_header, read_body = _request_readers(api_key, version)
    try:
        header, used = read_header(frame, 0)
        body, _ = read_body(frame, used)  # bytes after it are ignored, as Kafka does
    except (SerialError, ValueError, TypeError, OverflowError, KeyError) as error:
        # KeyError: a tagged field within a tagged field that kio does not know.
        raise MalformedRequest(f"{type(error).__name__}: {error}") from None
    if len(frame) > MAX_STRING:
        check_strings(body, api_key, version)
    return RequestHeader(api_key, version, header.correlation_id, header.client_id), body
