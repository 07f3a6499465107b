"""Requests of Kafka 0.7, from frames without their length, without I/O.

A frame begins with the request's type. FETCH, PRODUCE and OFFSETS name one topic partition, MULTIFETCH and MULTIPRODUCE
as many as their count says; the fields of each are the same either way. Bytes behind a request are ignored, as in 0.7.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from ketch.legacy07.errors import BadRequest

RANDOM_PARTITION: Final = -1  # of a PRODUCE: any, as the broker likes (kafka.api.ProducerRequest)


class Kind(IntEnum):
    """REQUEST_TYPE."""

    PRODUCE = 0
    FETCH = 1
    MULTIFETCH = 2
    MULTIPRODUCE = 3
    OFFSETS = 4

    @property
    def label(self) -> str:
        """For metrics and log lines: the name, which no API of today's protocol has."""
        return f"Legacy{self.name.capitalize()}"


@dataclass(frozen=True, slots=True)
class Target:
    """What every part of a request begins with."""

    topic: str
    number: int  # of the partition, as this broker's clients count


@dataclass(frozen=True, slots=True)
class Produce(Target):
    """A set of messages to store."""

    messages: memoryview


@dataclass(frozen=True, slots=True)
class Fetch(Target):
    """A chunk of the log, from a position on."""

    position: int
    max_size: int


@dataclass(frozen=True, slots=True)
class Offsets(Target):
    """Positions before a time, in ms; -1 asks for the latest, -2 for the earliest."""

    time: int
    max_count: int


Part: TypeAlias = Produce | Fetch | Offsets

_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
_FETCH, _OFFSETS = struct.Struct(">qi"), struct.Struct(">qi")


class _Reader:
    """A frame, and how far it is read."""

    def __init__(self, frame: bytes) -> None:
        self._view = memoryview(frame)
        self._pos = 0

    def numbers(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self.take(form.size))

    def take(self, size: int) -> memoryview:
        end = self._pos + size
        if size < 0 or end > len(self._view):
            raise BadRequest(f"{size} bytes are announced at byte {self._pos} of a request of {len(self._view)}")
        taken = self._view[self._pos : end]
        self._pos = end
        return taken

    def target(self) -> tuple[str, int]:
        (size,) = self.numbers(_SHORT)
        # A name that is no text can't be a topic's; `service.check_name` refuses it with the other illegal ones.
        topic = str(self.take(size), "utf-8", "replace")
        (number,) = self.numbers(_INT)
        return topic, number


def _produce(frame: _Reader) -> Produce:
    topic, number = frame.target()
    (size,) = frame.numbers(_INT)
    return Produce(topic, number, frame.take(size))


def _fetch(frame: _Reader) -> Fetch:
    topic, number = frame.target()
    position, max_size = frame.numbers(_FETCH)
    return Fetch(topic, number, position, max_size)


def _offsets(frame: _Reader) -> Offsets:
    topic, number = frame.target()
    time, max_count = frame.numbers(_OFFSETS)
    return Offsets(topic, number, time, max_count)


# By kind: how a part is read, and whether there is a count of them.
_FORMS: dict[Kind, tuple[Callable[[_Reader], Part], bool]] = {
    Kind.PRODUCE: (_produce, False),
    Kind.FETCH: (_fetch, False),
    Kind.MULTIFETCH: (_fetch, True),
    Kind.MULTIPRODUCE: (_produce, True),
    Kind.OFFSETS: (_offsets, False),
}


def decode(frame: bytes) -> tuple[Kind, list[Part]]:
    """A request: its kind, and its parts, one where the kind has no count.

    Raises:
        BadRequest: it is none of Kafka 0.7.
    """
    reader = _Reader(frame)
    kind = kind_of(frame)
    reader.take(2)
    read, counted = _FORMS[kind]
    count = reader.numbers(_SHORT)[0] if counted else 1
    if count < 0:
        raise BadRequest(f"a {kind.name} of {count} parts")
    return kind, [read(reader) for _ in range(count)]


def kind_of(frame: bytes) -> Kind:
    """Raises BadRequest for a type that Kafka 0.7 has not."""
    if len(frame) < 2:
        raise BadRequest(f"a request of {len(frame)} bytes")
    number = int.from_bytes(frame[:2], signed=True)
    try:
        return Kind(number)
    except ValueError:
        raise BadRequest(f"request type {number}; Kafka 0.7 has 0 to 4") from None
