"""Checks a request before kio parses it, and its strings after that, for what kio does otherwise than Kafka.

kio's native reader reserves memory for as many elements as an array's length says, and where that fails the whole
process aborts: twenty bytes would do. And it refuses tagged fields that its schema does not know, which a broker has
to ignore (KIP-482): newer clients send them. So requests are walked over first, along plans that come from kio's
schemas; lengths are checked, and unknown tagged fields are cut out.

A string has at most 32,767 bytes, as in Kafka, also where its version has room for a greater length: names and ids go
into keys, answers and lines of the log, some of them once for each partition.
"""

from __future__ import annotations

import dataclasses
import struct
import typing
from functools import cache
from typing import Any, TypeAlias

from kio.index import load_request_schema

from ketch.errors import KetchError
from ketch.wire.kernel import ARRAY, FIXED, SIZED, TAGS, Step, walk
from ketch.wire.schemas import NUMBERS, unwrap

MAX_ELEMENTS = 100_000  # of all arrays of a request; each becomes an object of some hundred bytes

MAX_STRING = 0x7FFF  # bytes

_SIZES = {kind: struct.calcsize(f">{letter}") for kind, letter in NUMBERS.items()} | {"datetime_i64": 8, "uuid": 16}


class MalformedRequest(KetchError):
    """A frame that does not parse as the request its header announces."""


_Plan: TypeAlias = tuple[Step, ...]
_Strings: TypeAlias = tuple[tuple[str, bool, "_Strings | None"], ...]  # field, is it an array, None for a string
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
            pos, left = walk(plan, frame, pos, left, cuts)
    except IndexError:
        raise MalformedRequest("the request is cut short") from None
    except OverflowError:
        raise MalformedRequest(f"a request of more than {MAX_ELEMENTS} elements") from None
    except ValueError as error:
        raise MalformedRequest(f"a request with {error}") from None
    return _without(frame, cuts) if cuts else frame


def _without(frame: bytes, cuts: _Cuts) -> bytes:
    pieces, pos = [], 0
    for begin, end, instead in cuts:
        pieces += [frame[pos:begin], instead]
        pos = end
    return b"".join((*pieces, frame[pos:]))


def check_strings(body: Any, api_key: int, version: int) -> None:
    """Raises MalformedRequest for a request with a string that is longer than Kafka takes."""
    _check_strings(body, _strings(load_request_schema(api_key, version)))


def _check_strings(entity: Any, fields: _Strings) -> None:
    for name, array, inner in fields:
        value = getattr(entity, name)
        for each in value or () if array else () if value is None else (value,):
            if inner is not None:
                _check_strings(each, inner)
            elif len(each) > MAX_STRING or (not each.isascii() and len(each.encode()) > MAX_STRING):
                raise MalformedRequest(f"a request with a string of more than {MAX_STRING} bytes as {name}")


# -- plans


@cache
def _request_plans(api_key: int, version: int) -> tuple[_Plan, _Plan]:
    schema = load_request_schema(api_key, version)
    # The client id has a two-byte length in every version, for brokers to find it there (KIP-511).
    return _plan(schema.__header_schema__, string_length=2), _plan(schema)


@cache
def _strings(schema: Any) -> _Strings:
    """The fields of a schema that are strings, or have some in them."""
    hints, found = typing.get_type_hints(schema), list[tuple[str, bool, _Strings | None]]()
    for field in dataclasses.fields(schema):
        kind = field.metadata.get("kafka_type")
        array, element, _ = unwrap(hints[field.name])
        inner = _strings(element) if kind is None else None
        if kind == "string" or inner:
            found.append((field.name, array, inner))
    return tuple(found)


def _plan(schema: Any, string_length: int | None = None) -> _Plan:
    """Args: string_length: bytes of the length of a string, where that is another than the version's."""
    hints = typing.get_type_hints(schema)
    steps: list[Step] = []
    fixed = 0
    tags = set()
    for field in dataclasses.fields(schema):
        if "tag" in field.metadata:
            tags.add(field.metadata["tag"])
            continue
        kind = field.metadata.get("kafka_type")
        array, element, nullable = unwrap(hints[field.name])
        if kind in _SIZES and not array:
            fixed += _SIZES[kind]
            continue
        steps += _fixed(fixed)
        fixed = 0
        if array:
            of = _plan(element) if kind is None else (_single(kind, schema.__flexible__),)
            steps.append(Step(ARRAY, 0 if schema.__flexible__ else 4, of, nullable))
        elif kind == "string" and string_length is not None:
            steps.append(Step(SIZED, string_length))
        elif kind is None and nullable:  # an entity (KIP-893): a byte, -1 for null or 1; much like an array of one
            steps.append(Step(ARRAY, 1, _plan(element)))
        else:
            steps.append(_single(kind, schema.__flexible__))
    steps += _fixed(fixed)
    return (*steps, Step(TAGS, tags=frozenset(tags))) if schema.__flexible__ else tuple(steps)


def _fixed(size: int) -> list[Step]:
    return [Step(FIXED, size)] if size else []


def _single(kind: str | None, flexible: bool) -> Step:
    if kind in _SIZES:
        return Step(FIXED, _SIZES[kind])
    if kind in ("string", "bytes", "records"):
        return Step(SIZED, 0 if flexible else 2 if kind == "string" else 4)
    raise TypeError(f"a field of type {kind}")
