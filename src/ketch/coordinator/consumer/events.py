"""What happens to a consumer group, beside the events that it shares with classic groups. Times are seconds."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from ketch.coordinator.classic.events import Assigned, Commit, Heartbeat, Join, Leave, Removed, Sync
from ketch.coordinator.consumer.topics import Partitions, Topics
from ketch.coordinator.machine import Persist, Reply, Tick

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2  # a static member goes and will come back


@dataclass(frozen=True, slots=True)
class Beat:
    """ConsumerGroupHeartbeat of a member that joins (epoch 0) or stays.

    What is None has not changed since the member's last one.

    Attributes:
        topics: all that there are.
        hides: whether the client may not describe the topic of this name.
    """

    token: Hashable
    member_id: str
    epoch: int
    client_id: str
    host: str
    topics: Topics
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout: float | None = None
    names: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    hides: Callable[[str], bool] = field(default=lambda _: False, compare=False)

    @property
    def is_full(self) -> bool:
        """Whether the member says everything, so that it is told its assignment, changed or not."""
        whole = self.rebalance_timeout is not None and self.names is not None and self.owned is not None
        return self.epoch == JOIN_EPOCH or whole


@dataclass(frozen=True, slots=True)
class Depart:
    """ConsumerGroupHeartbeat with LEAVE_EPOCH or LEAVE_STATIC_EPOCH."""

    token: Hashable
    member_id: str
    instance_id: str | None
    epoch: int


@dataclass(frozen=True, slots=True)
class BeatResult:
    """The answer to a Beat or Depart.

    Attributes:
        interval: s until the next heartbeat.
        assignment: None where it has not changed.
    """

    error: ErrorCode = ErrorCode.none
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    interval: float = 0.0
    assignment: Partitions | None = None


@dataclass(frozen=True, slots=True)
class OnlyClassic:
    """The effect that the last member of this protocol has gone, and members of the classic one are left.

    The group may become a classic one (`coordinator.migration`); it goes on as it is otherwise.

    Attributes:
        epoch: the group epoch before that.
        rebalances: whether the members have to share the partitions anew; else a member of the classic protocol has
            come back in the place of the last one.
    """

    epoch: int
    rebalances: bool


Event = Beat | Depart | Join | Sync | Heartbeat | Commit | Leave | Tick

# The result of a Reply: to a Beat or Depart a BeatResult, else as in a classic group.
Effect = Reply | Persist | Removed | Assigned | OnlyClassic
