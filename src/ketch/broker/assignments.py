"""Which member reads which partition, as far as the broker can tell.

Kafka's Fetch names no group. A fetch is a member's if exactly one member with its client id and host was assigned the
partition; the "consumer" protocol's metadata and assignments are the one payload the broker looks into.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kio.index import load_entity_schema
from kio.serial import entity_reader
from kio.serial.errors import SerialError
from kio.static.constants import EntityType

from ketch.coordinator.group import Group, Member

_PROTOCOL_TYPE = "consumer"
_NEWEST = 3  # version of either schema; a newer one begins with the same fields (ConsumerProtocol.java)

Place = tuple[str, int]  # topic and partition


@cache
def _reader(schema: str, version: int) -> Any:
    return entity_reader(load_entity_schema(schema, version, EntityType.data))


def _read(schema: str, data: bytes) -> Any | None:
    """The entity behind a version prefix; None where it cannot be read."""
    if len(data) < 2:
        return None
    version = min(int.from_bytes(data[:2], signed=True), _NEWEST)
    try:
        entity, _ = _reader(schema, max(version, 0))(data, 2)
    except (SerialError, ValueError):
        return None
    return entity


def subscribed_topics(group: Group) -> set[str]:
    """The topics that any member subscribes to."""
    found = (_read("consumer_protocol_subscription", m.metadata(group.protocol)) for m in group.members.values())
    return {topic for subscription in found if subscription is not None for topic in subscription.topics}


def assigned_places(member: Member) -> list[Place]:
    """The partitions that the member was assigned."""
    assignment = _read("consumer_protocol_assignment", member.assignment)
    if assignment is None:
        return []
    return [(entry.topic, index) for entry in assignment.assigned_partitions for index in entry.partitions]


class Assignments:
    """The index of fetches: (client id, host, topic, partition) -> group and member."""

    def __init__(self) -> None:
        self._readers: dict[tuple[str, str, Place], set[tuple[str, str]]] = {}
        self._places: dict[tuple[str, str], list[tuple[str, str, Place]]] = {}  # member -> its keys in the index

    def update(self, group: Group) -> None:
        """The group has been assigned anew."""
        for known in [member for member in self._places if member[0] == group.id]:
            self.remove(*known)
        if group.protocol_type != _PROTOCOL_TYPE:
            return
        for member in group.members.values():
            keys = [(member.client_id, member.host, place) for place in assigned_places(member)]
            self._places[group.id, member.id] = keys
            for key in keys:
                self._readers.setdefault(key, set()).add((group.id, member.id))

    def remove(self, group_id: str, member_id: str) -> list[Place]:
        """A member is gone; the places it had."""
        keys = self._places.pop((group_id, member_id), [])
        for key in keys:
            readers = self._readers.get(key, set())
            readers.discard((group_id, member_id))
            if not readers:
                self._readers.pop(key, None)
        return [place for _, _, place in keys]

    def find(self, client_id: str, host: str, topic: str, index: int) -> tuple[str, str] | None:
        """Group and member id of a fetch; None where there is none, or more than one."""
        readers = self._readers.get((client_id, host, (topic, index)))
        return next(iter(readers)) if readers is not None and len(readers) == 1 else None
