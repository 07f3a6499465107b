"""What a consumer group is made of: its states, its limits, its members."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ketch.coordinator.classic.events import Protocols
from ketch.coordinator.consumer.topics import NO_PARTITIONS, Partitions


class State(StrEnum):
    """A group's states; names as Kafka shows them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(StrEnum):
    """How far a member is on the way from what it has to its target; names as in Kafka's MemberState."""

    STABLE = "STABLE"
    UNREVOKED = "UNREVOKED_PARTITIONS"  # it has to give up partitions, and has not said that it has
    UNRELEASED = "UNRELEASED_PARTITIONS"  # it waits for partitions that other members have still to give up


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """Kafka's `group.consumer.*` settings, in seconds; the first assignor is the default."""

    session_timeout: float = 45.0
    heartbeat_interval: float = 5.0
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    regex_refresh_interval: float = 600.0


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What a member of the classic protocol has said in JoinGroup, beside its subscription.

    Attributes:
        session_timeout: its own; members of the other protocol go by the group's.
        protocols: the first of them is the one that it is told.
    """

    session_timeout: float
    protocols: Protocols


@dataclass(slots=True)
class Member:
    """One member. Times take no part in a comparison: they are not stored.

    Attributes:
        epoch: that of the target it has reconciled to; LEAVE_STATIC_EPOCH while a static member is away.
        assigned: what it may read.
        revoking: what it was told to give up and has not said that it has.
        target: what it is to have in the end.
        classic: None for a member that sends ConsumerGroupHeartbeat.
        deadline: of its session.
        revoke_by: when it must have given up what it is revoking.
        join_by: of a classic member that was told to join again: until when.
        sync_by: of a classic member that has joined: until when it must have asked for its assignment.
    """

    id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    host: str = ""
    rebalance_timeout: float = 300.0
    names: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS
    target: Partitions = NO_PARTITIONS
    classic: ClassicSide | None = None
    deadline: float = field(default=0.0, compare=False)
    revoke_by: float | None = field(default=None, compare=False)
    join_by: float | None = field(default=None, compare=False)
    sync_by: float | None = field(default=None, compare=False)

    def is_reconciled(self, epoch: int) -> bool:
        """Whether it has all of the target of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    @property
    def due(self) -> float:
        """When its session, or another time that it has, is over."""
        times = (self.deadline, self.revoke_by, self.join_by, self.sync_by)
        return min(time for time in times if time is not None)
