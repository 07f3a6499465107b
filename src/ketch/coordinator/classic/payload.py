"""What clients of protocol type "consumer" put into JoinGroup and SyncGroup: Kafka's ConsumerProtocol, both ways.

To the classic protocol these are bytes: a member's subscription (its metadata) and its assignment. The broker looks
into them to know who reads which partition, and to turn classic members into members of a consumer group and back.
Each begins with its version as an int16; a version that is not known begins with the fields of the newest one that is
(ConsumerProtocol.java). Pure; nothing else in the project reads or writes these bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from kio.index import load_entity_schema
from kio.schema.consumer_protocol_assignment.v3.data import ConsumerProtocolAssignment, TopicPartition
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.constants import EntityType
from kio.static.primitive import i32

CONSUMER = "consumer"  # the protocol type

_NEWEST = 3  # version of either schema
_SUBSCRIPTION, _ASSIGNMENT = "consumer_protocol_subscription", "consumer_protocol_assignment"

Places = frozenset[tuple[str, int]]  # topic name and index


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants.

    Attributes:
        version: of the payload; the member's assignments are to have it, too.
        owned: what it says it may still read; versions before 1 cannot say it.
    """

    version: int
    topics: frozenset[str]
    owned: Places
    rack_id: str | None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member may read.

    Attributes:
        custom: whether it holds data of the client's own assignor.
    """

    places: tuple[tuple[str, int], ...]
    custom: bool


@cache
def _reader(name: str, version: int) -> Any:
    return entity_reader(load_entity_schema(name, version, EntityType.data))


def _version(data: bytes) -> int:
    return max(0, min(int.from_bytes(data[:2], signed=True), _NEWEST))


def _read(name: str, data: bytes) -> Any | None:
    """The entity that follows a version; None where it cannot be read."""
    if len(data) < 2:
        return None
    try:
        entity, _ = _reader(name, _version(data))(data, 2)
    except (SerialError, ValueError):
        return None
    return entity


def _places(topics: Iterable[Any]) -> Iterable[tuple[str, int]]:
    return ((entry.topic, index) for entry in topics for index in entry.partitions)


def read_subscription(data: bytes) -> Subscription | None:
    """A member's subscription; None where it cannot be read."""
    found = _read(_SUBSCRIPTION, data)
    if found is None:
        return None
    owned = frozenset(_places(getattr(found, "owned_partitions", ())))
    return Subscription(_version(data), frozenset(found.topics), owned, getattr(found, "rack_id", None))


def read_assignment(data: bytes) -> Assignment | None:
    """A member's assignment; None where it cannot be read, as where there is none."""
    found = _read(_ASSIGNMENT, data)
    return None if found is None else Assignment(tuple(_places(found.assigned_partitions)), bool(found.user_data))


def write_assignment(version: int, topics: Mapping[str, Iterable[int]]) -> bytes:
    """The assignment of these partitions, by topic name; all versions look alike."""
    parts = tuple(
        TopicPartition(topic=TopicName(topic), partitions=tuple(map(i32, indexes))) for topic, indexes in topics.items()
    )
    buffer = io.BytesIO()
    entity_writer(ConsumerProtocolAssignment)(buffer, ConsumerProtocolAssignment(assigned_partitions=parts))
    return version.to_bytes(2) + buffer.getvalue()
