"""What a group is made of: its states, its limits, its members."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum

from ketch.coordinator.classic.events import Protocols


class State(StrEnum):
    """Names as Kafka shows them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Kafka's `group.*` settings, in seconds."""

    min_session_timeout: float = 6.0
    max_session_timeout: float = 1800.0
    max_size: int = 2**31 - 1
    initial_rebalance_delay: float = 0.0
    new_member_join_timeout: float = 300.0


@dataclass(slots=True)
class Member:
    """One member. Its tokens stand for requests of its that wait for an answer."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: Protocols
    assignment: bytes = b""
    deadline: float = 0.0  # of its session
    join_token: Hashable | None = None
    sync_token: Hashable | None = None
    synced: bool = True  # has sent its Sync of this generation
    new: bool = False  # has not been answered yet: its deadline holds although it waits
    skips_assignment: bool = False

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def expired(self, now: float) -> bool:
        """Whether its session is over; a member that waits for an answer cannot send a heartbeat."""
        return self.deadline <= now and not self.excused

    @property
    def excused(self) -> bool:
        return not self.new and (self.join_token is not None or self.sync_token is not None)
