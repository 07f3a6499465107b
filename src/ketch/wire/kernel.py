"""What sees every field of a request or a response: a Cython kernel or, where it was not built, its twin in Python.

Both walk along plans, which `wire.bounds` and `wire.responses` make of kio's schemas. ``KETCH_KERNEL=python`` in the
environment asks for the twin.

`blank(size)` is room for a frame, which is read to where it stays, and `writable(frame, at)` what of it begins there.
When all of it has been written, `bytes(frame)` is the frame; of the kernel's it makes no copy.

`Step(kind, size, element, nullable, tags)` is a part of a request's plan. Its kinds:
    FIXED: `size` bytes.
    SIZED: bytes after their length, which has `size` bytes, or is a varint of one more where `size` is 0.
    ARRAY: the same with elements, which have the plan `element`. An entity that may be null (KIP-893) is an array, too:
        its length is one byte.
    TAGS: tagged fields (KIP-482), of which the schema knows `tags`.
Without `nullable` a length below 0 is refused.
`walk(plan, data, pos, left, cuts)` passes over an entity. It returns where the entity ends, and how many elements of
arrays may still come. What has to be cut out of the request it appends to `cuts`: from, to, what takes its place; in
ascending order. It raises IndexError where the request is cut short, OverflowError where it has more elements than it
may have, ValueError where it has a null or a varint that cannot be.

`Field(name, kind, flexible, array, nullable, default, entity, tag)` is a field of a response. `kind` is kio's word for
a primitive type, or "entity". `default` is what a body without the field means, REQUIRED where it has to be there.
`nullable` is an entity that may be null. `Entity(fields, tagged)` is a response or a part of one; `tagged` is None in a
version that is not flexible, else the fields that have a tag, in the order of their tags.
`encode(header, header_body, entity, body)` is a response frame in pieces, its length prefix included, and
`entity_bytes(entity, body)` a part of one. A body is a dict, or has a method `bytes_of(entity)` (`responses.Kept`).
Bytes of 32 KB or more are a piece of their own, so that they are not copied.
Both raise KeyError where a required field is missing; OverflowError or struct.error where a number, a length or the
whole response does not fit; TypeError, AttributeError or struct.error where a value is not of the field's kind.
"""

from __future__ import annotations

import os
from typing import Literal

from ketch.wire._pure_walk import ARRAY, FIXED, SIZED, TAGS
from ketch.wire._pure_write import REQUIRED

KERNEL: Literal["cython", "python"]

try:
    if os.environ.get("KETCH_KERNEL") == "python":
        raise ImportError
    from ketch.wire._kernel import Entity, Field, Step, blank, encode, entity_bytes, walk, writable

    KERNEL = "cython"
except ImportError:
    from ketch.wire._pure_walk import Step, blank, walk, writable
    from ketch.wire._pure_write import Entity, Field, encode, entity_bytes

    KERNEL = "python"

__all__ = [
    "ARRAY",
    "FIXED",
    "KERNEL",
    "REQUIRED",
    "SIZED",
    "TAGS",
    "Entity",
    "Field",
    "Step",
    "blank",
    "encode",
    "entity_bytes",
    "walk",
    "writable",
]
