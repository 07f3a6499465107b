"""What consumer groups and share groups have in common: members send heartbeats alone, and the coordinator assigns.

It has the fields that both kinds of group have, and how they follow the topics that their members subscribe to. What
members are, and how a target is made and reached, is the kind's: `coordinator.consumer.state` and
`coordinator.share.group`. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kio.schema.errors import ErrorCode

from ketch.coordinator.consumer.topics import Partitions, TopicInfo, Topics, named
from ketch.coordinator.machine import Reply

C = TypeVar("C")
M = TypeVar("M")


class Refused(Exception):
    """What a member wants is not done; nothing has changed.

    Args:
        error: what it is told.
        message: why, in Kafka's words.
    """

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error, self.message = error, message


@dataclass(slots=True)
class AssignedGroup(Generic[C, M]):
    """One group, of a config C and members M.

    Attributes:
        epoch: the group epoch; 0 where there is no such group yet.
        assignment_epoch: of the last target.
        topics: those that members subscribe to and that exist.
        seen: all topics as of the last look.
    """

    id: str
    config: C
    epoch: int = 0
    assignment_epoch: int = 0
    members: dict[str, M] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    seen: Topics | None = None
    retired: bool = False
    term: str = "0"  # see `Machine`, as the next one
    held_at: float = -math.inf
    effects: list[Any] = field(default_factory=list)

    @property
    def is_idle(self) -> bool:
        """Whether it has no members."""
        return not self.members

    def retire(self) -> bool:
        """The group is about to be deleted; False where it has members."""
        self.retired = not self.members
        return self.retired

    def named(self, partitions: Partitions) -> dict[tuple[str, str], list[int]]:
        """Partitions by their topics' ids and names; without those of topics that are gone."""
        return named(partitions, self.topics)

    def reply(self, token: Hashable, result: Any) -> None:
        self.effects.append(Reply(token, result))


G = TypeVar("G", bound=AssignedGroup[Any, Any])


def unknown(group: AssignedGroup[Any, Any], member_id: str) -> Refused:
    """Why somebody who is no member is refused."""
    return Refused(ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {group.id}.")


def follow(group: G, topics: Topics, bump: bool, look: Callable[[G], bool]) -> None:
    """Has the group look at its topics where that may show anything; the group epoch rises where something has changed.

    Args:
        topics: all that there are now.
        bump: what its members want has changed.
        look: looks which topics the group reads; whether that has changed, or any of them.
    """
    newer = group.seen is None or topics.serial > group.seen.serial
    if newer:
        group.seen = topics
    if newer or bump:
        bump |= look(group)
    if bump:
        group.epoch += 1


def read(group: AssignedGroup[Any, Any], names: Iterable[str]) -> bool:
    """The group reads those of these topics that there are; whether that has changed, or any of them."""
    assert group.seen is not None
    there = group.seen.by_name
    found = {name: there[name] for name in sorted(names) if name in there}
    found, group.topics = group.topics, found
    return found != group.topics
