"""Raw group members: one connection each, every request in any version."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 10, 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 42, 47
SERVED = {
    OFFSET_COMMIT: range(2, 10),
    OFFSET_FETCH: range(1, 10),
    FIND_COORDINATOR: range(7),
    JOIN: range(10),
    HEARTBEAT: range(5),
    LEAVE: range(6),
    SYNC: range(6),
    DESCRIBE_GROUPS: range(7),
    LIST_GROUPS: range(6),
    DELETE_GROUPS: range(3),
    OFFSET_DELETE: range(1),
}
NEWEST = {key: versions[-1] for key, versions in SERVED.items()}
CONSUMER = "consumer"


def subscription(*topics: str) -> bytes:
    """ConsumerProtocolSubscription, version 0."""
    names = b"".join(len(topic).to_bytes(2) + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4) + names + (-1).to_bytes(4, signed=True)


def coordinator(server: KetchServer, group: str) -> int:
    """The node id of a group's coordinator, as this broker tells."""
    with Kafka(server.port) as client:
        return int(client.ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group]).coordinators[0].node_id)


def group_of(node: int, server: KetchServer, prefix: str = "g") -> str:
    """A group that falls to this node."""
    return next(name for name in (f"{prefix}{n}" for n in itertools.count()) if coordinator(server, name) == node)


def assignment(places: Mapping[str, Iterable[int]]) -> bytes:
    """ConsumerProtocolAssignment, version 0."""
    data = b"\0\0" + len(places).to_bytes(4)
    for topic, indexes in places.items():
        numbers = list(indexes)
        data += len(topic).to_bytes(2) + topic.encode() + len(numbers).to_bytes(4)
        data += b"".join(index.to_bytes(4) for index in numbers)
    return data + (-1).to_bytes(4, signed=True)


class Member(Kafka):
    """A member of one group; knows its id and generation once it has joined."""

    def __init__(self, port: int, group: str, instance: str | None = None, client_id: str = "raw") -> None:
        super().__init__(port, client_id=client_id)
        self.port, self.group, self.instance = port, group, instance
        self.id, self.generation = "", -1

    # -- JoinGroup

    def send_join(self, version: int = 9, **given: Any) -> None:
        self.send(JOIN, version, **self._join(given))

    def joined(self, version: int = 9) -> Any:
        """The answer to `send_join`."""
        return self._took(self.answer(JOIN, version)[1])

    def join(self, version: int = 9, **given: Any) -> Any:
        """One JoinGroup and its answer."""
        return self._took(self.ask(JOIN, version, **self._join(given)))

    def _join(self, given: Mapping[str, Any]) -> dict[str, Any]:
        protocols = given.get("protocols", {"range": subscription("t")})
        named = {
            "group_id": self.group,
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "protocol_type": CONSUMER,
        }
        return {
            **named,
            **given,
            "protocols": [{"name": name, "metadata": metadata} for name, metadata in protocols.items()],
        }

    def _took(self, answer: Any) -> Any:
        self.id = answer.member_id or self.id
        if answer.error_code == 0:
            self.generation = answer.generation_id
        return answer

    def enter(self, version: int = 9, **given: Any) -> Any:
        """Joins for good, by way of MEMBER_ID_REQUIRED where the version asks for it."""
        answer = self.join(version, **given)
        return self.join(version, **given) if answer.error_code == 79 else answer

    # -- the others

    def send_sync(self, shares: Mapping[str, bytes] = {}, version: int = 5, **given: Any) -> None:
        self.send(SYNC, version, **self._sync(shares, given))

    def synced(self, version: int = 5) -> Any:
        return self.answer(SYNC, version)[1]

    def sync(self, shares: Mapping[str, bytes] = {}, version: int = 5, **given: Any) -> Any:
        return self.ask(SYNC, version, **self._sync(shares, given))

    def _sync(self, shares: Mapping[str, bytes], given: Mapping[str, Any]) -> dict[str, Any]:
        named = {**self.identity(), "protocol_type": CONSUMER, "protocol_name": "range"}
        return {
            **named,
            **given,
            "assignments": [{"member_id": member, "assignment": share} for member, share in shares.items()],
        }

    def identity(self) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
        }

    def heartbeat(self, version: int = 4, **given: Any) -> int:
        return int(self.ask(HEARTBEAT, version, **{**self.identity(), **given}).error_code)

    def leave(self, version: int = 5, **given: Any) -> Any:
        members = [{"member_id": self.id, "group_instance_id": self.instance}]
        return self.ask(LEAVE, version, **{**self.identity(), "members": members, **given})

    def commit(self, topic: str, offset: int, partition: int = 0, version: int = 9, **given: Any) -> int:
        """The error code of one partition's commit; `given` may hold its metadata and epoch as well."""
        part = {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1}
        part |= {key: given.pop(key) for key in ("committed_metadata", "committed_leader_epoch") if key in given}
        named = {**self.identity(), "generation_id_or_member_epoch": self.generation}
        topics = [{"name": topic, "partitions": [part]}]
        answer = self.ask(OFFSET_COMMIT, version, **{**named, "topics": topics, **given})
        return int(answer.topics[0].partitions[0].error_code)

    def offsets(self, topics: Mapping[str, Iterable[int]] | None, version: int = 9, **given: Any) -> Any:
        """The group's part of an OffsetFetch answer; None asks for every partition."""
        asked = topics and [{"name": topic, "partition_indexes": indexes} for topic, indexes in topics.items()]
        if version < 8:
            return self.ask(OFFSET_FETCH, version, group_id=self.group, topics=asked, **given)
        group = {"group_id": self.group, "topics": asked, "member_epoch": -1, **given}
        return self.ask(OFFSET_FETCH, version, groups=[group]).groups[0]

    def committed(self, topic: str, partition: int = 0, version: int = 9) -> tuple[int, int, str]:
        """Offset, leader epoch, metadata."""
        (found,) = self.offsets({topic: [partition]}, version).topics[0].partitions
        return found.committed_offset, getattr(found, "committed_leader_epoch", -1), found.metadata

    def describe(self, version: int = 6, group: str | None = None) -> Any:
        return self.ask(DESCRIBE_GROUPS, version, groups=[self.group if group is None else group]).groups[0]

    def listed(self, version: int = 5, **given: Any) -> list[tuple[str, str]]:
        """(protocol type, state) of this group if it is listed."""
        found = self.ask(LIST_GROUPS, version, **given).groups
        return [(g.protocol_type, getattr(g, "group_state", "")) for g in found if g.group_id == self.group]

    def delete(self, *groups: str, version: int = 2) -> list[int]:
        answer = self.ask(DELETE_GROUPS, version, groups_names=groups or [self.group])
        return [int(result.error_code) for result in answer.results]

    def uncommit(self, topic: str, *partitions: int) -> tuple[int, list[int]]:
        """The request's error code and those of the partitions."""
        topics = [{"name": topic, "partitions": [{"partition_index": index} for index in partitions]}]
        answer = self.ask(OFFSET_DELETE, 0, group_id=self.group, topics=topics)
        return int(answer.error_code), [int(p.error_code) for t in answer.topics for p in t.partitions]


def gather(first: Member, *others: Member, shares: Mapping[str, bytes] | None = None, **given: Any) -> Member:
    """Forms one stable generation of members that are none yet; `first` leads, and is returned."""
    assert first.enter(**given).error_code == 0
    for member in others:
        if member.instance is None:
            assert member.join(**given).error_code == 79
        member.send_join(**given)
    with Member(first.port, first.group) as watch:
        eventually(lambda: len(watch.describe().members) == 1 + len(others))
    if others:
        first.send_join(**given)
    for member in [first, *others] if others else []:
        answer = member.joined()
        assert (answer.error_code, answer.leader) == (0, first.id)
    for member in (first, *others):
        member.send_sync((shares or {}) if member is first else {})
    for member in (first, *others):
        assert member.synced().error_code == 0
    return first


def keys_naming(server: KetchServer, *words: str) -> list[bytes]:
    """Every key, native group and hash field that still bears one of the words."""
    redis, found = server.redis(), []
    for key in redis.scan_iter(count=1000):
        parts = [key]
        kind = redis.type(key)
        if kind == b"stream":
            parts += [group["name"] for group in redis.xinfo_groups(key)]
        elif kind == b"hash":
            parts += [*redis.hkeys(key), *redis.hvals(key)]
        elif kind == b"set":
            parts += redis.smembers(key)
        found += [part for part in parts if any(word.encode() in part for word in words)]
    return found
