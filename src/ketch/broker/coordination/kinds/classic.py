"""Classic groups as a kind: their fields, log lines and metrics.

The machine is `coordinator.classic.group`. For what native groups do see `broker.coordination.kinds.followed`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from types import UnionType
from typing import Any

from kio.schema.errors import ErrorCode

from ketch import metrics
from ketch.broker.coordination.kinds.followed import FollowedKind
from ketch.broker.coordination.native_groups import NativeGroups
from ketch.clock import now_ms
from ketch.configs.settings import Settings
from ketch.coordinator.classic.events import (
    Commit,
    Effect,
    Event,
    Join,
    JoinResult,
    Sync,
    SyncResult,
)
from ketch.coordinator.classic.fields import from_fields, to_fields
from ketch.coordinator.classic.group import Group
from ketch.coordinator.classic.member import GroupConfig

log = logging.getLogger(__name__)


class ClassicKind(FollowedKind[Group]):
    """What is particular to classic groups, see `broker.coordination.kinds.kind.Kind`.

    Args:
        native_groups: follow assignments and members that go.

    Attributes:
        config: what classic groups go by.
    """

    name = "classic"
    machine: type[Group] = Group
    events: UnionType = Event
    outlives = True

    def __init__(self, settings: Settings, native_groups: NativeGroups) -> None:
        super().__init__(native_groups)
        self.config = GroupConfig(
            settings.group_min_session_timeout_ms / 1000,
            settings.group_max_session_timeout_ms / 1000,
            settings.group_max_size,
            settings.group_initial_rebalance_delay_ms / 1000,
        )

    def has_session_timeout(self, seconds: float) -> bool:
        """Whether a member may have this session timeout, in a group of whatever kind."""
        return self.config.min_session_timeout <= seconds <= self.config.max_session_timeout

    # -- machines

    def new(self, id: str) -> Group:
        return Group(id, self.config, new_member_id)

    def from_fields(self, id: str, fields: Mapping[str, str], now: float) -> Group | None:
        if "state" not in fields:  # it never had members
            return None
        return from_fields(id, fields, self.config, new_member_id, now)

    def to_fields(self, machine: Group) -> dict[str, str]:
        return to_fields(machine, now_ms())

    # -- events and effects

    def handle(self, machine: Group, event: Event, now: float) -> list[Effect]:
        state, generation = machine.state, machine.generation
        effects = machine.handle(event, now)
        if machine.state is not state:
            members = len(machine.members)
            log.info("group %s: %s, generation %d, %d members", machine.id, machine.state, machine.generation, members)
        if machine.generation != generation:
            metrics.rebalanced(machine.id)
        return effects

    def refusal(self, event: Event) -> Any:
        """As Kafka's GroupMetadataManager answers for a group that is neither classic nor of consumers."""
        match event:
            case Join():
                return JoinResult(ErrorCode.inconsistent_group_protocol)
            case Sync():
                return SyncResult(ErrorCode.unknown_member_id)
            case Commit():
                return ErrorCode.group_id_not_found
            case _:
                return ErrorCode.unknown_member_id


def new_member_id(prefix: str) -> str:
    """The id of a new member, from its client id or instance id."""
    return f"{prefix}-{uuid.uuid4()}"
