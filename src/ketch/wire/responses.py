"""Responses as bytes, along plans that come from kio's schemas.

kio's own writer makes an object of every entity and looks at the type of every number: 13 ms for the metadata of 1,000
partitions. A plan knows once and for all which fields follow one another, so those of fixed size are packed in one go,
straight from the dicts that handlers answer with.
"""

from __future__ import annotations

import dataclasses
import struct
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any
from uuid import UUID

from kio.index import load_response_schema

from ketch.wire.pieces import BytesLike, Pieces

Body = Mapping[str, Any]
Emit = Callable[[BytesLike], None]
_Write = Callable[[Any, Emit], None]  # a value
_Step = Callable[[Body, Emit], None]  # one or more fields of an entity

_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "error_code": "h",
    "int32": "i",
    "uint32": "I",
    "timedelta_i32": "i",
    "int64": "q",
    "timedelta_i64": "q",
    "float64": "d",
}
_REQUIRED = dataclasses.MISSING
_IMPLICIT = {"string": "", "bytes": b"", "records": b"", "uuid": None}  # what a tagged field is by default; 0 else
_NO_UUID = bytes(16)
_LARGE = 1 << 15  # bytes of a part that is not copied once more
_MEAN = 1 << 10  # bytes of all parts; where it is less there are few such among too many others


class Kept:
    """An entity that many responses repeat: its bytes are kept for each version.

    Args:
        make: makes its body, once for each version; the body must be the same each time.
    """

    __slots__ = ("_make", "_written")

    def __init__(self, make: Callable[[], Body]) -> None:
        self._make = make
        self._written: dict[_Write, bytes] = {}

    def bytes_of(self, write: _Write) -> bytes:
        """The bytes that `write` gives for it."""
        written = self._written.get(write)
        if written is None:
            written = self._written[write] = _written(write, self._make())
        return written


def encode_response(api_key: int, version: int, correlation_id: int, body: Body) -> list[BytesLike]:
    """A whole response frame in pieces, its length prefix included.

    Args:
        body: kio's field names to values; nested entities as dicts or Kept, arrays as iterables of them, times in ms.
            It may have more fields than the version knows.

    Raises:
        KeyError: a field without a default is missing.
    """
    write_header, write_body = _plan(api_key, version)
    parts: list[BytesLike] = [b""]
    write_header({"correlation_id": correlation_id}, parts.append)
    write_body(body, parts.append)
    size = sum(map(len, parts))
    parts[0] = size.to_bytes(4)
    return [b"".join(parts)] if size < _MEAN * len(parts) else _joined(parts)


def _joined(parts: list[BytesLike]) -> list[BytesLike]:
    """The parts with the small ones that lie between large ones as one: copying these costs less than another part."""
    joined: list[BytesLike] = []
    start = 0
    for index, part in enumerate(parts):
        if len(part) >= _LARGE:
            joined += (b"".join(parts[start:index]), part)
            start = index + 1
    if start < len(parts):
        joined.append(b"".join(parts[start:]))
    return joined


@cache
def _plan(api_key: int, version: int) -> tuple[_Write, _Write]:
    schema: Any = load_response_schema(api_key, version)
    return _entity(schema.__header_schema__), _entity(schema)


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    kind: str | None  # kio's word for a primitive type; None for an entity
    array: bool
    element: Any  # the type, of one where it is an array, without None
    nullable: bool
    default: Any  # as a body would give it
    tag: int | None


@cache
def _entity(schema: Any) -> _Write:
    steps: list[_Step] = []
    run: list[_Field] = []
    fields = _fields(schema)
    for field in fields:
        if field.tag is not None:
            continue
        if field.kind in _FORMATS and not field.array:
            run.append(field)
            continue
        steps += _run(run)
        steps.append(_single(field, schema.__flexible__))
        run = []
    steps += _run(run)
    if schema.__flexible__:
        steps.append(_tags([field for field in fields if field.tag is not None]))

    def write(body: Body | Kept, emit: Emit) -> None:
        if isinstance(body, Kept):
            emit(body.bytes_of(write))
            return
        for step in steps:
            step(body, emit)

    return write


def _fields(schema: Any) -> list[_Field]:
    hints = typing.get_type_hints(schema)
    return [
        _Field(
            field.name,
            field.metadata.get("kafka_type"),
            *_unwrap(hints[field.name]),
            _plain(field.default),
            field.metadata.get("tag"),
        )
        for field in dataclasses.fields(schema)
    ]


def _unwrap(hint: Any) -> tuple[bool, Any, bool]:
    """(is it an array, the type inside `tuple[T, ...] | None` or `T | None`, may it be None)."""
    options = [option for option in typing.get_args(hint) if option is not type(None) and option is not Ellipsis]
    if typing.get_origin(hint) is tuple:
        return True, options[0], False
    if len(options) == 1:
        array, element, _ = _unwrap(options[0])
        return array, element, True
    return False, hint, False


def _plain(default: Any) -> Any:
    """kio's default as a handler would say it."""
    if isinstance(default, timedelta):
        return default // timedelta(milliseconds=1)
    if dataclasses.is_dataclass(default):
        return {each.name: _plain(getattr(default, each.name)) for each in dataclasses.fields(default)}
    return default


def _value(field: _Field, body: Body) -> Any:
    value = body.get(field.name, field.default)
    if value is _REQUIRED:
        raise KeyError(f"{field.name} has no default")
    return value


# -- steps


def _run(fields: list[_Field]) -> list[_Step]:
    """A step that packs consecutive fields of fixed size together."""
    if not fields:
        return []
    pack = struct.Struct(">" + "".join(_FORMATS[field.kind or ""] for field in fields)).pack
    if len(fields) == 1:
        return [lambda body, emit: emit(pack(_value(fields[0], body)))]
    get = itemgetter(*(field.name for field in fields))

    def step(body: Body, emit: Emit) -> None:
        try:
            emit(pack(*get(body)))
        except KeyError:
            emit(pack(*(_value(field, body) for field in fields)))

    return [step]


def _single(field: _Field, flexible: bool) -> _Step:
    write, name = _writer(field, flexible), field.name
    return lambda body, emit: write(body[name] if name in body else _value(field, body), emit)


def _tags(fields: list[_Field]) -> _Step:
    """Tagged fields (KIP-482): those that differ from their default, by tag. Debian's kcat misreads any other."""
    if not fields:
        return lambda body, emit: emit(_VARINTS[0])
    writers = []
    for field in sorted(fields, key=lambda field: field.tag or 0):
        write = _writer(dataclasses.replace(field, nullable=False), True)
        default = _IMPLICIT.get(field.kind or "", 0) if field.default is _REQUIRED else field.default
        writers.append((field.name, _varint(field.tag or 0), write, _written(write, default)))

    def step(body: Body, emit: Emit) -> None:
        values = [
            (tag, value)
            for name, tag, write, default in writers
            if name in body and (value := _written(write, body[name])) != default
        ]
        emit(_varint(len(values)))
        for tag, value in values:
            emit(tag + _varint(len(value)) + value)

    return step


def _written(write: _Write, value: Any) -> bytes:
    parts: list[BytesLike] = []
    if value is not None:  # a null that only the field's absence can say
        write(value, parts.append)
    return b"".join(parts)


# -- values


def _writer(field: _Field, flexible: bool) -> _Write:
    if field.array:
        return _array(field.kind, field.element, flexible)
    if field.kind is None:
        write = _entity(field.element)
        return _nullable(write) if field.nullable else write
    return _primitive(field.kind, flexible)


def _primitive(kind: str, flexible: bool) -> _Write:
    if kind in _FORMATS:
        pack = struct.Struct(">" + _FORMATS[kind]).pack
        return lambda value, emit: emit(pack(value))
    if kind == "uuid":
        return _write_uuid
    if kind == "datetime_i64":
        return lambda value, emit: emit((-1 if value is None else value).to_bytes(8, signed=True))
    if kind == "string":
        return _string(_compact_length if flexible else _length_16)
    if kind in ("bytes", "records"):
        return _bytes(_compact_length if flexible else _length_32)
    raise TypeError(f"a field of type {kind}")


def _array(kind: str | None, element: Any, flexible: bool) -> _Write:
    length = _compact_length if flexible else _length_32
    if kind in _FORMATS:
        form = _FORMATS[kind]

        @lru_cache(1024)  # the same replicas, for thousands of partitions
        def numbers(values: tuple[int, ...]) -> bytes:
            return length(len(values)) + struct.pack(f">{len(values)}{form}", *values)

        return lambda values, emit: emit(length(None) if values is None else numbers(tuple(values)))
    write = _entity(element) if kind is None else _primitive(kind, flexible)

    def write_all(values: Iterable[Any] | None, emit: Emit) -> None:
        values = None if values is None else values if isinstance(values, list | tuple) else list(values)
        emit(length(None if values is None else len(values)))
        for value in values or ():
            write(value, emit)

    return write_all


def _nullable(write: _Write) -> _Write:
    """An entity that may be missing (KIP-893): a byte says."""

    def write_nullable(value: Body | None, emit: Emit) -> None:
        emit(b"\xff" if value is None else b"\x01")
        if value is not None:
            write(value, emit)

    return write_nullable


def _string(length: Callable[[int | None], bytes]) -> _Write:
    def write(value: str | None, emit: Emit) -> None:
        raw = None if value is None else value.encode()
        emit(length(None if raw is None else len(raw)) + (raw or b""))

    return write


def _bytes(length: Callable[[int | None], bytes]) -> _Write:
    def write(value: bytes | Pieces | None, emit: Emit) -> None:
        emit(length(None if value is None else len(value)))
        if isinstance(value, Pieces):
            for piece in value.pieces:
                emit(piece)
        elif value:
            emit(value)

    return write


def _write_uuid(value: UUID | None, emit: Emit) -> None:
    emit(_NO_UUID if value is None else value.bytes)


def _length_16(length: int | None) -> bytes:
    return (-1 if length is None else length).to_bytes(2, signed=True)


def _length_32(length: int | None) -> bytes:
    return (-1 if length is None else length).to_bytes(4, signed=True)


def _compact_length(length: int | None) -> bytes:
    return _varint(0 if length is None else length + 1)


_VARINTS = tuple(bytes((value,)) for value in range(0x80))


def _varint(value: int) -> bytes:
    if value < 0x80:
        return _VARINTS[value]
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
