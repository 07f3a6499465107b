"""What happens to a group and what follows from it, beside what every machine has. Times are seconds on the caller's
clock."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.coordinator.machine import Persist, Reply, Tick

Protocols = tuple[tuple[str, bytes], ...]  # name and metadata, most wanted first


# -- events; `token` comes back in the Reply, which may be much later


@dataclass(frozen=True, slots=True)
class Join:
    """JoinGroup. `member_id` is empty for a member that has none yet.

    Attributes:
        topics: all that there are (`coordinator.consumer.topics.Topics`), for a group that has become a consumer group.
        new_id: the id for a member that has none, in such a group.
    """

    token: Hashable
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: Protocols
    id_required: bool = True  # version 4 on (KIP-394): a new member has to come again with the id it is given
    skips_assignment: bool = False  # version 9 on (KIP-814)
    topics: Any = None
    new_id: str = ""


@dataclass(frozen=True, slots=True)
class Sync:
    """SyncGroup. `assignments` by member id, from the leader only."""

    token: Hashable
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Heartbeat."""

    token: Hashable
    member_id: str
    instance_id: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """One member of a LeaveGroup; `member_id` is empty where an administrator names only the instance."""

    token: Hashable
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class Commit:
    """Asks whether an OffsetCommit may be taken; `generation` is below 0 for a consumer that assigned itself.

    Members of a consumer group commit with their member epoch as the generation, if their request `knows_epochs`.
    """

    token: Hashable
    member_id: str
    instance_id: str | None
    generation: int
    knows_epochs: bool = True  # OffsetCommit version 9 on, and TxnOffsetCommit


Event = Join | Sync | Heartbeat | Leave | Commit | Tick


# -- effects


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The answer to a Join; `members` (id, instance id, metadata) for the leader only."""

    error: ErrorCode = ErrorCode.none
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The answer to a Sync."""

    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Removed:
    """A member is gone: left, expired, or replaced by a new incarnation."""

    member_id: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """The members that waited have been told what the leader assigned them."""


# The result of a Reply: a JoinResult, a SyncResult, or to a Heartbeat, Leave or Commit an error code alone.
Effect = Reply | Persist | Removed | Assigned
