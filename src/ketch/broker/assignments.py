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

from ketch.coordinator.group import Group
from ketch.coordinator.member import Member

_PROTOCOL_TYPE = "consumer"
_NEWEST = 3  # version of either schema; a newer one begins with the same fields (ConsumerProtocol.java)

Place = tuple[str, int]  # topic and partition
_Key = tuple[str, str, Place]  # client id, host, place


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


def subscribed_topics(group: Group) -> set[str] | None:
    """The topics that any member subscribes to; None where that cannot be told."""
    topics: set[str] = set()
    for member in group.members.values():
        subscription = _read("consumer_protocol_subscription", member.metadata(group.protocol))
        if subscription is None:
            return None
        topics.update(subscription.topics)
    return topics


def assigned_places(member: Member) -> list[Place]:
    """The partitions that the member was assigned."""
    assignment = _read("consumer_protocol_assignment", member.assignment)
    if assignment is None:
        return []
    return [(entry.topic, index) for entry in assignment.assigned_partitions for index in entry.partitions]


class Assignments:
    """The index of fetches: (client id, host, topic, partition) -> group and member."""

    def __init__(self) -> None:
        self._readers: dict[_Key, set[tuple[str, str]]] = {}
        self._members: dict[str, dict[str, list[_Key]]] = {}  # group -> member -> its keys in the index

    def update(self, group: Group) -> list[tuple[str, list[Place]]]:
        """The group has been assigned anew; which members lost which places."""
        had = {member: self.remove(group.id, member) for member in list(self._members.get(group.id, ()))}
        if group.protocol_type != _PROTOCOL_TYPE:
            return list(had.items())
        lost = []
        for member in group.members.values():
            places = assigned_places(member)
            self._add(group, member, places)
            lost.append((member.id, [place for place in had.pop(member.id, []) if place not in places]))
        return [*had.items(), *lost]

    def _add(self, group: Group, member: Member, places: list[Place]) -> None:
        keys = [(member.client_id, member.host, place) for place in places]
        self._members.setdefault(group.id, {})[member.id] = keys
        for key in keys:
            self._readers.setdefault(key, set()).add((group.id, member.id))

    def remove(self, group_id: str, member_id: str) -> list[Place]:
        """A member is gone; the places it had."""
        members = self._members.get(group_id, {})
        keys = members.pop(member_id, [])
        if not members:
            self._members.pop(group_id, None)
        for key in keys:
            readers = self._readers.get(key, set())
            readers.discard((group_id, member_id))
            if not readers:
                self._readers.pop(key, None)
        return [place for _, _, place in keys]

    def reads(self, group_id: str, place: Place) -> bool:
        """Whether a member of the group was assigned this place."""
        return any(place == own for keys in self._members.get(group_id, {}).values() for _, _, own in keys)

    def find(self, client_id: str, host: str, topic: str, index: int) -> tuple[str, str] | None:
        """Group and member id of a fetch; None where there is none, or more than one."""
        readers = self._readers.get((client_id, host, (topic, index)))
        return next(iter(readers)) if readers is not None and len(readers) == 1 else None
