"""Entities of Kafka's schemas as kio has them: made of plain dictionaries, which may be drawn at random."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def entity(schema: Any, body: dict[str, Any]) -> Any:
    hints = typing.get_type_hints(schema)
    return schema(
        **{
            field.name: converted(field.metadata.get("kafka_type"), hints[field.name], body[field.name])
            for field in dataclasses.fields(schema)
            if field.name in body
        }
    )


def converted(kind: str | None, hint: Any, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return tuple(converted(kind, inner(hint)[1], each) for each in value)
    if kind is None:
        return entity(inner(hint)[1], value)
    if kind.startswith("timedelta"):
        return timedelta(milliseconds=value)
    if kind == "datetime_i64":
        return EPOCH + timedelta(milliseconds=value)
    return ErrorCode(value) if kind == "error_code" else value


def inner(hint: Any) -> tuple[bool, Any]:
    """(is it an array, the type of one without None)."""
    options = [option for option in typing.get_args(hint) if option not in (type(None), Ellipsis)]
    if typing.get_origin(hint) is tuple:
        return True, inner(options[0])[1]
    if len(options) == 1:
        return inner(options[0])
    return False, hint


def nullable(hint: Any) -> bool:
    return type(None) in typing.get_args(hint) and typing.get_origin(hint) is not tuple


PRIMITIVES: dict[str, Callable[[Random], Any]] = {
    "bool": lambda random: random.random() < 0.5,
    "int8": lambda random: integer(random, 8),
    "int16": lambda random: integer(random, 16),
    "uint16": lambda random: random.choice((0, 1, 2**16 - 1, random.randrange(2**16))),
    "int32": lambda random: integer(random, 32),
    "int64": lambda random: integer(random, 64),
    "float64": lambda random: random.random(),
    "error_code": lambda random: random.choice(list(ErrorCode)),
    "timedelta_i32": lambda random: random.randrange(2**31),
    "timedelta_i64": lambda random: random.randrange(2**40),
    "datetime_i64": lambda random: random.randrange(2**40),
    "uuid": lambda random: UUID(int=random.getrandbits(128)),
    "string": lambda random: random.choice("aé€") * size(random),
    "bytes": lambda random: random.randbytes(size(random)),
    "records": lambda random: random.randbytes(size(random)),
}


def integer(random: Random, bits: int) -> int:
    return random.choice((-(2 ** (bits - 1)), -1, 0, 1, 2 ** (bits - 1) - 1, random.randrange(2 ** (bits - 1))))


def size(random: Random) -> int:
    return random.choice((0, 1, 5, 126, 127, 128, 9_000))


def drawn_body(schema: Any, random: Random) -> dict[str, Any]:
    """A body for a schema, with some of the fields that have defaults."""
    hints = typing.get_type_hints(schema)
    return {
        field.name: drawn(field, hints[field.name], random)
        for field in dataclasses.fields(schema)
        if field.default is dataclasses.MISSING or random.random() < 0.5
    }


def drawn(field: dataclasses.Field[Any], hint: Any, random: Random) -> Any:
    array, element = inner(hint)
    if nullable(hint) and "tag" not in field.metadata and random.random() < 0.2:
        return None
    kind = field.metadata.get("kafka_type")
    draw = PRIMITIVES[kind] if kind else partial(drawn_body, element)
    return [draw(random) for _ in range(random.randrange(4))] if array else draw(random)
