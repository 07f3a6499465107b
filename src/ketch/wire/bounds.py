"""Checks a request before kio parses it, for two things that kio does otherwise than Kafka.

kio's native reader reserves memory for as many elements as an array's length says, and where that fails the whole
process aborts: twenty bytes would do. And it refuses tagged fields that its schema does not know, which a broker has
to ignore (KIP-482): newer clients send them. So requests are walked over first, along plans that come from kio's
schemas; lengths are checked, and unknown tagged fields are cut out.
"""

from __future__ import annotations

import dataclasses
import typing
from functools import cache
from typing import Any, TypeAlias

from kio.index import load_request_schema

from ketch.errors import KetchError

MAX_ELEMENTS = 100_000  # of all arrays of a request; each becomes an object of some hundred bytes

_SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}


class MalformedRequest(KetchError):
    """A frame that does not parse as the request its header announces."""


# The parts of an entity: a fixed number of bytes; bytes after their length; an array; tagged fields (KIP-482).
_FIXED, _SIZED, _ARRAY, _TAGS = range(4)


class _Step(typing.NamedTuple):
    kind: int
    size: int = 0  # of the bytes, or of the length in front of them; 0 for a varint of one more
    element: tuple[Any, ...] = ()  # steps
    nullable: bool = True
    tags: frozenset[int] = frozenset()  # those that the schema knows


_Plan: TypeAlias = tuple[_Step, ...]
_Cuts: TypeAlias = list[tuple[int, int, bytes]]  # from, to, what takes its place; in ascending order


def check_bounds(frame: bytes, api_key: int, version: int) -> bytes:
    """The request as kio can parse it: the frame itself unless tagged fields had to be cut out.

    Raises:
        MalformedRequest: it is cut short, or has more elements or nulls than it may have.
    """
    left = MAX_ELEMENTS
    pos = 0
    cuts: _Cuts = []
    try:
        for plan in _request_plans(api_key, version):
            pos, left = _walk(plan, frame, pos, left, cuts)
    except IndexError:
        raise MalformedRequest("the request is cut short") from None
    return _without(frame, cuts) if cuts else frame


def _without(frame: bytes, cuts: _Cuts) -> bytes:
    pieces, pos = [], 0
    for begin, end, instead in cuts:
        pieces += [frame[pos:begin], instead]
        pos = end
    return b"".join((*pieces, frame[pos:]))


def _walk(plan: _Plan, data: bytes, pos: int, left: int, cuts: _Cuts) -> tuple[int, int]:
    """Passes over one entity: (where it ends, elements that may still come)."""
    for kind, size, element, nullable, tags in plan:
        if kind == _FIXED:
            pos += size
        elif kind == _TAGS:
            if pos < len(data) and data[pos] == 0:
                pos += 1
            else:
                pos, left = _walk_tags(tags, data, pos, left, cuts)
        else:
            length, pos = _length(data, pos, size)
            if length < 0 and not nullable:
                raise MalformedRequest("a null where none is allowed")
            if kind == _SIZED:
                pos += max(0, length)
            else:
                left -= max(0, length)
                _check_left(left)
                for _ in range(length):
                    pos, left = _walk(element, data, pos, left, cuts)
    if pos > len(data):
        raise IndexError
    return pos, left


def _walk_tags(tags: frozenset[int], data: bytes, pos: int, left: int, cuts: _Cuts) -> tuple[int, int]:
    begin = pos
    count, pos = _varint(data, pos)
    left -= count
    _check_left(left)
    known: dict[int, bytes] = {}
    for _ in range(count):
        field = pos
        tag, pos = _varint(data, pos)
        size, pos = _varint(data, pos)
        pos += size
        if tag in tags:
            known[tag] = data[field:pos]
    if len(known) < count:
        cuts.append((begin, pos, bytes((len(known),)) + b"".join(known.values())))
    return pos, left


def _check_left(left: int) -> None:
    if left < 0:
        raise MalformedRequest(f"a request of more than {MAX_ELEMENTS} elements")


def _length(data: bytes, pos: int, size: int) -> tuple[int, int]:
    """A length, below 0 for null, and where it ends."""
    if size:
        return int.from_bytes(data[pos : pos + size], signed=True), pos + size
    length, pos = _varint(data, pos)
    return length - 1, pos


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    value = data[pos]
    if value < 0x80:
        return value, pos + 1
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        pos += 1
        byte = data[pos]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos + 1
    raise MalformedRequest("a varint of more than five bytes")


# -- plans


@cache
def _request_plans(api_key: int, version: int) -> tuple[_Plan, _Plan]:
    schema = load_request_schema(api_key, version)
    header = _plan(schema.__header_schema__)
    # The client id has a two-byte length in every version, for brokers to find it there (KIP-511).
    return tuple(step._replace(size=2) if step.kind == _SIZED else step for step in header), _plan(schema)


def _plan(schema: Any) -> _Plan:
    hints = typing.get_type_hints(schema)
    steps: list[_Step] = []
    tags = set()
    for field in dataclasses.fields(schema):
        if "tag" in field.metadata:
            tags.add(field.metadata["tag"])
            continue
        step = _step(field.metadata.get("kafka_type"), hints[field.name], schema.__flexible__)
        if steps and steps[-1].kind == step.kind == _FIXED:
            steps[-1] = _Step(_FIXED, steps[-1].size + step.size)
        else:
            steps.append(step)
    return (*steps, _Step(_TAGS, tags=frozenset(tags))) if schema.__flexible__ else tuple(steps)


def _step(kafka_type: str | None, hint: Any, flexible: bool) -> _Step:
    options = [option for option in typing.get_args(hint) if option is not type(None) and option is not Ellipsis]
    if typing.get_origin(hint) is tuple:
        element = _plan(options[0]) if kafka_type is None else (_step(kafka_type, None, flexible),)
        return _Step(_ARRAY, 0 if flexible else 4, element, nullable=False)
    if len(options) == 1:  # T | None
        if kafka_type is None and typing.get_origin(options[0]) is not tuple:
            # A nullable entity (KIP-893): a byte, -1 for null or 1, and the entity. Much like an array of one.
            return _Step(_ARRAY, 1, _plan(options[0]))
        return _step(kafka_type, options[0], flexible)._replace(nullable=True)
    if kafka_type in _SIZES:
        return _Step(_FIXED, _SIZES[kafka_type])
    if kafka_type in ("string", "bytes", "records"):
        return _Step(_SIZED, 0 if flexible else 2 if kafka_type == "string" else 4)
    raise TypeError(f"a field of type {kafka_type or hint}")
