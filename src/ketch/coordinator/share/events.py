"""What happens to a share group. Times are seconds. Its answers are those of consumer groups: a BeatResult for each."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from ketch.coordinator.consumer.topics import TopicInfo, Topics
from ketch.coordinator.machine import Persist, Reply, Tick


@dataclass(frozen=True, slots=True)
class ShareBeat:
    """ShareGroupHeartbeat of a member that joins (epoch 0) or stays.

    What is None has not changed since the member's last one.

    Attributes:
        topics: all that there are.
        names: of the topics that it subscribes to.
    """

    token: Hashable
    member_id: str
    epoch: int
    client_id: str
    host: str
    topics: Topics
    rack_id: str | None = None
    names: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ShareDepart:
    """ShareGroupHeartbeat with LEAVE_EPOCH."""

    token: Hashable
    member_id: str


@dataclass(frozen=True, slots=True)
class ShareMove:
    """AlterShareGroupOffsets: the group is about to begin elsewhere on these topics, by name."""

    token: Hashable
    topics: Mapping[str, TopicInfo]


@dataclass(frozen=True, slots=True)
class ShareForget:
    """DeleteShareGroupOffsets: what is kept of the group on these topics, by name, is about to go."""

    token: Hashable
    names: frozenset[str]


Event = ShareBeat | ShareDepart | ShareMove | ShareForget | Tick

Effect = Reply | Persist  # the result of a Reply: a BeatResult
