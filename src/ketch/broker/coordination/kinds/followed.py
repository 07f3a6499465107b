"""What classic groups and consumer groups have in common as kinds: native groups follow their members and assignments.

No I/O: `broker.coordination.native_groups` asks Redis, in tasks of its own.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ketch.broker.coordination.kinds.kind import Kind
from ketch.broker.coordination.native_groups import NativeGroups
from ketch.coordinator.classic.events import Assigned, Commit, Removed
from ketch.coordinator.classic.group import Group
from ketch.coordinator.consumer.group import ConsumerGroup

G = TypeVar("G", Group, ConsumerGroup)


class FollowedKind(Kind[G]):
    """A kind of groups whose members commit offsets, see `broker.coordination.kinds.kind.Kind`.

    Args:
        native_groups: follow assignments and members that go.
    """

    gives_way = True

    def __init__(self, native_groups: NativeGroups) -> None:
        self._native_groups = native_groups

    def takes_over(self, event: Any) -> bool:
        """A commit without a generation or epoch is not a member's."""
        return not (isinstance(event, Commit) and event.generation < 0)

    def carry_out(self, machine: G, effect: Removed | Assigned) -> None:
        match effect:
            case Removed(member_id):
                self._native_groups.member_left(machine.id, member_id)
            case Assigned():
                self._native_groups.assigned(machine.id)

    def changed(self, machine: G) -> None:
        self._native_groups.reassigned(machine)
