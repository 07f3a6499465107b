"""kio's entities with the versions folded away.

Handlers read request entities by attribute and answer with plain dicts that hold the union of all versions' fields, in
kio's names; what a version does not know is left out here. The messages themselves are declared by kio alone, generated
from Kafka's own schemas.
"""

from __future__ import annotations

import io
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from ketch.wire.bounds import MalformedRequest, check_bounds

type_hints = typing.get_type_hints
Body = Mapping[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Header:
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
    key, version = int.from_bytes(frame[:2], signed=True), int.from_bytes(frame[2:4], signed=True)
    return key, version, int.from_bytes(frame[4:8], signed=True)


@cache
def _request_readers(api_key: int, version: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    schema = load_request_schema(api_key, version)
    return entity_reader(schema.__header_schema__), entity_reader(schema)


def decode_request(frame: bytes, api_key: int, version: int) -> tuple[Header, Any]:
    """A frame as (header, kio request entity).

    Raises:
        MalformedRequest: truncated or out of bounds.
    """
    check_bounds(frame, api_key, version)
    read_header, read_body = _request_readers(api_key, version)
    try:
        header, used = read_header(frame, 0)
        body, _ = read_body(frame, used)  # bytes behind it are ignored, as Kafka does
    except (SerialError, ValueError, TypeError, OverflowError) as error:
        raise MalformedRequest(f"{type(error).__name__}: {error}") from None
    return Header(api_key, version, header.correlation_id, header.client_id), body


def encode_response(api_key: int, version: int, correlation_id: int, body: Body) -> bytes:
    """A whole response frame, its length prefix included.

    Args:
        body: kio's field names to values; nested entities as dicts, arrays as iterables of them, times in ms.
    """
    schema = load_response_schema(api_key, version)
    header = schema.__header_schema__
    buffer = io.BytesIO()
    buffer.write(b"\0\0\0\0")
    _writer(header)(buffer, header(correlation_id=correlation_id))  # type: ignore[arg-type]
    _writer(schema)(buffer, build(schema, body))
    frame = buffer.getbuffer()
    frame[:4] = (len(frame) - 4).to_bytes(4)
    return bytes(frame)


@cache
def _writer(entity: type) -> Callable[[io.BytesIO, Any], None]:
    return entity_writer(entity)


def build(entity: type, body: Body) -> Any:
    """The kio entity of one version from a dict that may hold more fields than that version has."""
    values = {}
    for name, convert, required in _plan(entity):
        if name in body:
            values[name] = convert(body[name])
        elif required:
            raise KeyError(f"{entity.__name__}.{name} has no default")
    return entity(**values)


@cache
def _plan(entity: type) -> tuple[tuple[str, Callable[[Any], Any], bool], ...]:
    hints = type_hints(entity)
    return tuple(
        (field.name, _converter(field.metadata.get("kafka_type"), hints[field.name]), field.default is MISSING)
        for field in fields(entity)
    )


def _converter(kafka_type: str | None, hint: Any) -> Callable[[Any], Any]:
    array, inner = _unwrap(hint)
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        convert: Callable[[Any], Any] = lambda ms: timedelta(milliseconds=ms)  # noqa: E731
    elif kafka_type == "datetime_i64":
        convert = _moment
    elif kafka_type == "error_code":
        convert = ErrorCode
    elif kafka_type is None:  # an entity of its own
        convert = lambda body: None if body is None else build(inner, body)  # noqa: E731
    else:
        convert = _identity
    if not array:
        return convert
    if convert is _identity:
        return lambda items: None if items is None else tuple(items)
    return lambda items: None if items is None else tuple(map(convert, items))


def _unwrap(hint: Any) -> tuple[bool, Any]:
    """(is it an array, the type inside `tuple[T, ...] | None`)."""
    options = [option for option in typing.get_args(hint) if option is not type(None) and option is not Ellipsis]
    if typing.get_origin(hint) is tuple:
        return True, options[0]
    if len(options) == 1:  # T | None
        return _unwrap(options[0])
    return False, hint


def _identity(value: Any) -> Any:
    return value


def _moment(ms: int | None) -> datetime | None:
    return None if ms is None or ms < 0 else _EPOCH + timedelta(milliseconds=ms)
