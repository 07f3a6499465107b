"""Responses as bytes, along plans that come from kio's schemas.

kio's own writer makes an object of every entity and looks at the type of every number: 13 ms for the metadata of 1,000
partitions. Here the kernel writes the dicts that handlers answer with.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

from kio.index import load_response_schema

from ketch.wire.kernel import REQUIRED, Entity, Field, encode, entity_bytes
from ketch.wire.pieces import BytesLike
from ketch.wire.schemas import unwrap

Body = dict[str, Any]

_IMPLICIT = {"string": "", "bytes": b"", "records": b"", "uuid": None}  # what a tagged field is by default; 0 else


class Kept:
    """An entity that many responses repeat: its bytes are kept for each version.

    Args:
        make: makes its body, once for each version; the body must be the same each time.
    """

    __slots__ = ("_make", "_written")

    def __init__(self, make: Callable[[], Body]) -> None:
        self._make = make
        self._written: dict[Entity, bytes] = {}

    def bytes_of(self, entity: Entity) -> bytes:
        """The bytes of it as this entity, which is one version's."""
        written = self._written.get(entity)
        if written is None:
            written = self._written[entity] = entity_bytes(entity, self._make())
        return written


def encode_response(api_key: int, version: int, correlation_id: int, body: Body) -> list[BytesLike]:
    """A whole response frame in pieces, its length prefix included.

    Args:
        body: kio's field names to values; nested entities as dicts or Kept, arrays as iterables of them, times in ms.
            It may have more fields than the version knows.

    Raises:
        KeyError: a field without a default is missing.
    """
    header, entity = _plan(api_key, version)
    return encode(header, {"correlation_id": correlation_id}, entity, body)


@cache
def _plan(api_key: int, version: int) -> tuple[Entity, Entity]:
    schema: Any = load_response_schema(api_key, version)
    return _entity(schema.__header_schema__), _entity(schema)


@cache
def _entity(schema: Any) -> Entity:
    hints = typing.get_type_hints(schema)
    declared = dataclasses.fields(schema)
    plain = [field for field in declared if "tag" not in field.metadata]
    tagged = sorted((field for field in declared if "tag" in field.metadata), key=lambda field: field.metadata["tag"])
    fields, in_order = (
        tuple(_field(field, hints[field.name], schema.__flexible__) for field in group) for group in (plain, tagged)
    )
    return Entity(fields, in_order if schema.__flexible__ else None)


def _field(field: dataclasses.Field[Any], hint: Any, flexible: bool) -> Field:
    kind, tag = field.metadata.get("kafka_type"), field.metadata.get("tag")
    array, element, nullable = unwrap(hint)
    default = _plain(field.default)
    if tag is None:
        default = REQUIRED if default is dataclasses.MISSING else default
    else:
        nullable = False
        default = _IMPLICIT.get(kind or "", 0) if default is dataclasses.MISSING else default
    entity = _entity(element) if kind is None else None
    return Field(field.name, kind or "entity", flexible, array, nullable, default, entity, -1 if tag is None else tag)


def _plain(default: Any) -> Any:
    """kio's default as a handler would say it."""
    if isinstance(default, timedelta):
        return default // timedelta(milliseconds=1)
    if dataclasses.is_dataclass(default):
        return {each.name: _plain(getattr(default, each.name)) for each in dataclasses.fields(default)}
    return default
