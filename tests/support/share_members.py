"""Raw members of share groups (KIP-932): a connection each, which says what it is told to."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from tests.support.groups import Member
from tests.support.kafka import Kafka
from tests.support.ketch import eventually

SHARE_GROUP_HEARTBEAT, SHARE_GROUP_DESCRIBE = 76, 77
DESCRIBE_SHARE_GROUP_OFFSETS, ALTER_SHARE_GROUP_OFFSETS, DELETE_SHARE_GROUP_OFFSETS = 90, 91, 92
Places = frozenset[tuple[uuid.UUID, int]]


class Sharer(Member):
    """A member of one share group; knows its epoch and what it may read."""

    def __init__(self, port: int, group: str, client_id: str = "raw") -> None:
        super().__init__(port, group, None, client_id)
        self.id, self.generation = str(uuid.uuid4()), -1
        self.assigned: Places = frozenset()

    def enters(self, *topics: str, **given: Any) -> Any:
        return self.beat(**{"member_epoch": 0, "subscribed_topic_names": topics, **given})

    def beat(self, **given: Any) -> Any:
        """One heartbeat, which says nothing that is not given."""
        said = {
            "group_id": self.group,
            "member_id": self.id,
            "member_epoch": self.generation,
            "rack_id": None,
            "subscribed_topic_names": None,
        }
        answer = self.ask(SHARE_GROUP_HEARTBEAT, 1, **{**said, **given})
        if answer.error_code == 0:
            self.generation = answer.member_epoch
            if answer.assignment is not None:
                parts = answer.assignment.topic_partitions
                self.assigned = frozenset((part.topic_id, index) for part in parts for index in part.partitions)
        return answer

    def goes(self, **given: Any) -> Any:
        return self.beat(member_epoch=-1, **given)

    def shown(self, group: str | None = None) -> Any:
        """The group as ShareGroupDescribe has it."""
        groups = [self.group if group is None else group]
        return self.ask(SHARE_GROUP_DESCRIBE, 1, group_ids=groups, include_authorized_operations=False).groups[0]


def settled(member: Sharer, partitions: int) -> None:
    """Heartbeats until the member has so many partitions; Kafka assigns one once its state is made."""
    eventually(lambda: member.beat().error_code == 0 and len(member.assigned) == partitions)


def told(answer: Any, names: Mapping[str, str]) -> tuple[Any, ...]:
    """What of a heartbeat's answer two brokers have in common.

    Args:
        names: by member ids, what stands for them in messages.
    """
    message = answer.error_message
    for member_id, name in names.items():
        message = message and message.replace(member_id, name)
    parts = None if answer.assignment is None else answer.assignment.topic_partitions
    count = None if parts is None else sorted(len(part.partitions) for part in parts)
    return int(answer.error_code), message, min(answer.member_epoch, 0), answer.heartbeat_interval, count


class ShareAdmin(Kafka):
    """The requests of an administrator of one share group."""

    def __init__(self, port: int, group: str) -> None:
        super().__init__(port)
        self.group = group

    def offsets(self, topics: Mapping[str, Iterable[int]] | None, group: str | None = None) -> Any:
        """The group's part of a DescribeShareGroupOffsets answer; None asks for every partition."""
        asked = None if topics is None else [{"topic_name": t, "partitions": tuple(p)} for t, p in topics.items()]
        groups = [{"group_id": self.group if group is None else group, "topics": asked}]
        return self.ask(DESCRIBE_SHARE_GROUP_OFFSETS, 0, groups=groups).groups[0]

    def starts(self, topic: str) -> dict[int, int]:
        """The start offset of each partition of a topic, as far as there is one; -1: nothing was delivered yet."""
        found = self.offsets(None)
        assert found.error_code == 0, found
        return {p.partition_index: p.start_offset for t in found.topics if t.topic_name == topic for p in t.partitions}

    def alter(self, offsets: Mapping[str, Mapping[int, int]], group: str | None = None) -> Any:
        topics = [
            {
                "topic_name": topic,
                "partitions": [{"partition_index": n, "start_offset": offset} for n, offset in partitions.items()],
            }
            for topic, partitions in offsets.items()
        ]
        given = self.group if group is None else group
        return self.ask(ALTER_SHARE_GROUP_OFFSETS, 0, group_id=given, topics=topics)

    def forget(self, *topics: str, group: str | None = None) -> Any:
        given = self.group if group is None else group
        return self.ask(DELETE_SHARE_GROUP_OFFSETS, 0, group_id=given, topics=[{"topic_name": t} for t in topics])
