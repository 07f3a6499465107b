"""Raw members of consumer groups (KIP-848), of either protocol: a connection each, which says what it is told to."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from ketch.coordinator.classic.payload import read_assignment
from tests.support.groups import Member, subscription

CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69
REBALANCE = 27
Places = frozenset[tuple[uuid.UUID, int]]


class Beater(Member):
    """A member of one consumer group; knows its epoch and what it may read. Commits are those of `Member`."""

    def __init__(self, port: int, group: str, instance: str | None = None, client_id: str = "raw") -> None:
        super().__init__(port, group, instance, client_id)
        self.id, self.generation = str(uuid.uuid4()), -1
        self.assigned: Places = frozenset()

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "group_instance_id": None}

    def enters(self, *topics: str, regex: str | None = None, **given: Any) -> Any:
        """Joins by names or a regular expression."""
        names = None if regex is not None and not topics else topics
        said = {"rebalance_timeout": 60_000, "subscribed_topic_names": names, "subscribed_topic_regex": regex}
        return self.beat(**{"member_epoch": 0, "topic_partitions": (), **said, **given})

    def beat(self, version: int = 1, **given: Any) -> Any:
        """One heartbeat; it says what the member owns, and nothing else that is not given."""
        self.send_beat(version, **given)
        return self.heard(version)

    def send_beat(self, version: int = 1, **given: Any) -> None:
        """A heartbeat whose answer `heard` waits for."""
        said = {
            "group_id": self.group,
            "member_id": self.id,
            "member_epoch": self.generation,
            "instance_id": self.instance,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "topic_partitions": self.owned(),
        }
        self.send(CONSUMER_GROUP_HEARTBEAT, version, **{**said, **given})

    def heard(self, version: int = 1) -> Any:
        """The answer to `send_beat`."""
        _, answer = self.answer(CONSUMER_GROUP_HEARTBEAT, version)
        if answer.error_code == 0:
            self.id, self.generation = answer.member_id, answer.member_epoch
            if answer.assignment is not None:
                parts = answer.assignment.topic_partitions
                self.assigned = frozenset((part.topic_id, index) for part in parts for index in part.partitions)
        return answer

    def owned(self) -> list[dict[str, Any]]:
        topics: dict[uuid.UUID, list[int]] = {}
        for topic, index in sorted(self.assigned):
            topics.setdefault(topic, []).append(index)
        return [{"topic_id": topic, "partitions": indexes} for topic, indexes in topics.items()]

    def goes(self, epoch: int = -1, **given: Any) -> Any:
        return self.beat(member_epoch=epoch, topic_partitions=None, **given)

    def shown(self, version: int = 1, group: str | None = None) -> Any:
        """The group as ConsumerGroupDescribe has it."""
        groups = [self.group if group is None else group]
        return self.ask(CONSUMER_GROUP_DESCRIBE, version, group_ids=groups).groups[0]


class Classic(Member):
    """A member of the classic protocol that knows what it owns, and says so when it joins."""

    def __init__(self, port: int, group: str, topic: str, instance: str | None = None) -> None:
        super().__init__(port, group, instance)
        self.topic, self.owned = topic, list[int]()

    def _join(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return super()._join({"protocols": {"range": owning(self.topic, self.owned)}, **given})

    def gets(self, **given: Any) -> tuple[int, int]:
        """The code and the number of partitions that SyncGroup answers."""
        answer = self.sync(**given)
        if answer.error_code == 0:
            found = read_assignment(answer.assignment)
            self.owned = [] if found is None else sorted(index for _, index in found.places)
        return int(answer.error_code), len(self.owned)

    def steps(self, **given: Any) -> list[int]:
        """What a consumer does in one round: a heartbeat, and where it is told so, joins and syncs; the codes."""
        codes = [self.heartbeat()]
        if codes[0] == REBALANCE:
            codes += [int(self.join(**given).error_code), self.gets()[0]]
        return codes


def owning(topic: str, owned: list[int]) -> bytes:
    """A subscription of version 1, with what the member owns."""
    parts = len(topic).to_bytes(2) + topic.encode() + len(owned).to_bytes(4) + b"".join(n.to_bytes(4) for n in owned)
    return b"\0\1" + subscription(topic)[2:] + (1).to_bytes(4) + parts


def settle(members: Iterable[Beater], rounds: int = 4) -> None:
    """Heartbeats of all members in turn, until each has what it is to have."""
    for _ in range(rounds):
        for member in members:
            assert member.beat().error_code == 0


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
    return int(answer.error_code), message, answer.member_epoch, answer.heartbeat_interval, count
