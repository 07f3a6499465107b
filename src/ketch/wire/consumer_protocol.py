"""The payloads of the "consumer" protocol: what members of a classic group say of themselves, and their assignments.

The broker passes them on as they are; who wants to know which member reads which partition looks into them here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kio.index import load_entity_schema
from kio.serial import entity_reader
from kio.serial.errors import SerialError
from kio.static.constants import EntityType

SUBSCRIPTION, ASSIGNMENT = "consumer_protocol_subscription", "consumer_protocol_assignment"
_NEWEST = 3  # version of either schema; a newer one begins with the same fields (ConsumerProtocol.java)


@cache
def _reader(schema: str, version: int) -> Any:
    return entity_reader(load_entity_schema(schema, version, EntityType.data))


def read(schema: str, data: bytes) -> Any | None:
    """The entity that follows a version prefix; None where it cannot be read."""
    if len(data) < 2:
        return None
    version = min(int.from_bytes(data[:2], signed=True), _NEWEST)
    try:
        entity, _ = _reader(schema, max(version, 0))(data, 2)
    except (SerialError, ValueError):
        return None
    return entity


def assigned(data: bytes) -> list[tuple[str, int]]:
    """The topics and partitions of an assignment; none where it cannot be read."""
    assignment = read(ASSIGNMENT, data)
    if assignment is None:
        return []
    return [(entry.topic, index) for entry in assignment.assigned_partitions for index in entry.partitions]
