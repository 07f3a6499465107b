"""The twin of the Cython kernel in plain Python, for responses; `wire.kernel` documents what both offer."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any
from uuid import UUID

from ketch.wire.pieces import BytesLike, Pieces
from ketch.wire.schemas import NUMBERS

REQUIRED: Any = object()  # the default of a field that has none

_NO_UUID = bytes(16)
_LARGE = 1 << 15

_Emit = Callable[[BytesLike], None]
_Write = Callable[[Any, _Emit], None]


class Field:
    __slots__ = ("array", "default", "entity", "kind", "name", "nullable", "tag", "write")

    def __init__(
        self,
        name: str,
        kind: str,
        flexible: bool,
        array: bool = False,
        nullable: bool = False,
        default: Any = REQUIRED,
        entity: Entity | None = None,
        tag: int = -1,
    ) -> None:
        self.name, self.kind, self.array, self.nullable = name, kind, array, nullable
        self.default, self.entity, self.tag = default, entity, tag
        self.write = _writer(self, flexible)

    def value(self, body: Mapping[str, Any]) -> Any:
        value = body.get(self.name, self.default)
        if value is REQUIRED:
            raise KeyError(f"{self.name} has no default")
        return value


class Entity:
    __slots__ = ("_steps",)

    def __init__(self, fields: tuple[Field, ...], tagged: tuple[Field, ...] | None) -> None:
        self._steps: list[_Write] = []
        run: list[Field] = []
        for field in fields:
            if field.kind in NUMBERS and not field.array:
                run.append(field)
                continue
            self._steps += [*_run(run), _single(field)]
            run = []
        self._steps += _run(run)
        if tagged is not None:
            self._steps.append(_tags(tagged))

    def write(self, body: Any, emit: _Emit) -> None:
        if not isinstance(body, dict):
            emit(body.bytes_of(self))
            return
        for step in self._steps:
            step(body, emit)


def encode(header: Entity, header_body: dict[str, Any], entity: Entity, body: Any) -> list[BytesLike]:
    parts: list[BytesLike] = [b""]
    header.write(header_body, parts.append)
    entity.write(body, parts.append)
    parts[0] = sum(map(len, parts)).to_bytes(4, signed=True)
    return _joined(parts)


def entity_bytes(entity: Entity, body: dict[str, Any]) -> bytes:
    return _written(entity.write, body)


def _joined(parts: list[BytesLike]) -> list[BytesLike]:
    """The parts with those that lie between large ones as one."""
    joined: list[BytesLike] = []
    start = 0
    for index, part in enumerate(parts):
        if len(part) >= _LARGE:
            if start < index:
                joined.append(b"".join(parts[start:index]))
            joined.append(part)
            start = index + 1
    if start < len(parts):
        joined.append(b"".join(parts[start:]))
    return joined


def _written(write: _Write, value: Any) -> bytes:
    parts: list[BytesLike] = []
    if value is not None:  # a null that only the field's absence can say
        write(value, parts.append)
    return b"".join(parts)


def _run(fields: list[Field]) -> list[_Write]:
    """A step that packs consecutive numbers together."""
    if not fields:
        return []
    pack = struct.Struct(">" + "".join(NUMBERS[field.kind] for field in fields)).pack
    if len(fields) == 1:
        return [lambda body, emit: emit(pack(fields[0].value(body)))]
    get = itemgetter(*(field.name for field in fields))

    def step(body: Mapping[str, Any], emit: _Emit) -> None:
        try:
            emit(pack(*get(body)))
        except KeyError:
            emit(pack(*(field.value(body) for field in fields)))

    return [step]


def _single(field: Field) -> _Write:
    write, name = field.write, field.name
    return lambda body, emit: write(body[name] if name in body else field.value(body), emit)


def _tags(fields: tuple[Field, ...]) -> _Write:
    """Tagged fields (KIP-482): those that differ from their default, by tag. Debian's kcat misreads any other."""
    if not fields:
        return lambda body, emit: emit(_VARINTS[0])
    writers = [(field.name, _varint(field.tag), field.write, _written(field.write, field.default)) for field in fields]

    def step(body: Mapping[str, Any], emit: _Emit) -> None:
        values = [
            (tag, value)
            for name, tag, write, default in writers
            if name in body and (value := _written(write, body[name])) != default
        ]
        emit(_varint(len(values)))
        for tag, value in values:
            emit(tag + _varint(len(value)) + value)

    return step


def _writer(field: Field, flexible: bool) -> _Write:
    length = _compact_length if flexible else _length_32
    if field.array and field.kind in NUMBERS:
        return _numbers(NUMBERS[field.kind], length)
    write = field.entity.write if field.entity is not None else _primitive(field.kind, flexible)
    if field.array:
        return _array(write, length)
    return _nullable(write) if field.nullable and field.entity is not None else write


def _primitive(kind: str, flexible: bool) -> _Write:
    if kind in NUMBERS:
        pack = struct.Struct(">" + NUMBERS[kind]).pack
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


def _numbers(form: str, length: Callable[[int | None], bytes]) -> _Write:
    @lru_cache(1024)  # the same replicas, for thousands of partitions
    def numbers(values: tuple[int, ...]) -> bytes:
        return length(len(values)) + struct.pack(f">{len(values)}{form}", *values)

    return lambda values, emit: emit(length(None) if values is None else numbers(tuple(values)))


def _array(write: _Write, length: Callable[[int | None], bytes]) -> _Write:
    def write_all(values: Iterable[Any] | None, emit: _Emit) -> None:
        values = None if values is None else values if isinstance(values, list | tuple) else list(values)
        emit(length(None if values is None else len(values)))
        for value in values or ():
            write(value, emit)

    return write_all


def _nullable(write: _Write) -> _Write:
    def write_nullable(value: Any, emit: _Emit) -> None:
        emit(b"\xff" if value is None else b"\x01")
        if value is not None:
            write(value, emit)

    return write_nullable


def _string(length: Callable[[int | None], bytes]) -> _Write:
    def write(value: str | None, emit: _Emit) -> None:
        raw = None if value is None else value.encode()
        emit(length(None if raw is None else len(raw)) + (raw or b""))

    return write


def _bytes(length: Callable[[int | None], bytes]) -> _Write:
    def write(value: BytesLike | Pieces | None, emit: _Emit) -> None:
        emit(length(None if value is None else len(value)))
        if isinstance(value, Pieces):
            for piece in value.pieces:
                emit(piece)
        elif value:
            emit(value)

    return write


def _write_uuid(value: UUID | None, emit: _Emit) -> None:
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
