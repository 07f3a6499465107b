"""Consumer groups (KIP-848) as a kind: their fields, log lines, metrics, and what native groups do for their effects.

The machine is `coordinator.consumer.group`. It does no I/O: `broker.coordination.native_groups` asks Redis, in tasks of
its own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import UnionType
from typing import Any

from kio.schema.errors import ErrorCode

from ketch import metrics
from ketch.broker.coordination.group_configs import GroupConfigs
from ketch.broker.coordination.native_groups import NativeGroups
from ketch.clock import now_ms
from ketch.coordinator.classic.events import Assigned, Commit, Removed
from ketch.coordinator.consumer.events import Beat, BeatResult, Depart, Effect, Event
from ketch.coordinator.consumer.fields import from_fields, to_fields
from ketch.coordinator.consumer.group import ConsumerGroup

log = logging.getLogger(__name__)


class ConsumerKind:
    """What is particular to consumer groups, see `broker.coordination.kinds.kind.Kind`.

    Args:
        configs: what each group goes by.
        native_groups: follow assignments and members that go.
    """

    name = "consumer"
    machine: type[ConsumerGroup] = ConsumerGroup
    events: UnionType = Event
    gives_way = True
    outlives = False  # a member must not be told what the next coordinator does not know

    def __init__(self, configs: GroupConfigs, native_groups: NativeGroups) -> None:
        self._configs, self._native_groups = configs, native_groups

    # -- machines

    def new(self, id: str) -> ConsumerGroup:
        return ConsumerGroup(id, self._configs.consumer(id))

    def from_fields(self, id: str, fields: Mapping[str, str], now: float) -> ConsumerGroup | None:
        return from_fields(id, fields, self._configs.consumer(id), now)

    def to_fields(self, machine: ConsumerGroup) -> dict[str, str]:
        return to_fields(machine, now_ms())

    # -- events and effects

    def takes_over(self, event: Event) -> bool:
        """A commit without an epoch is not a member's."""
        return not (isinstance(event, Commit) and event.generation < 0)

    def handle(self, machine: ConsumerGroup, event: Event, now: float) -> list[Effect]:
        machine.config = self._configs.consumer(machine.id)  # they may have changed
        state, epoch = machine.state, machine.epoch
        effects: list[Effect] = machine.handle(event, now)
        if (machine.state, machine.epoch) != (state, epoch):
            members = len(machine.members)
            log.info("group %s: %s, epoch %d, %d members", machine.id, machine.state, machine.epoch, members)
        if machine.epoch != epoch:
            metrics.rebalanced(machine.id)
        return effects

    def carry_out(self, machine: ConsumerGroup, effect: Removed | Assigned) -> None:
        match effect:
            case Removed(member_id):
                self._native_groups.member_left(machine.id, member_id)
            case Assigned():
                self._native_groups.assigned(machine.id)

    def changed(self, machine: ConsumerGroup) -> None:
        self._native_groups.reassigned(machine)

    def unstored(self, result: Any) -> Any:
        """Members come again; a commit's error code stays as it is."""
        return result if isinstance(result, ErrorCode) else BeatResult(ErrorCode.coordinator_not_available)

    def refusal(self, event: Event) -> Any:
        """As Kafka's GroupMetadataManager answers for a group that is no consumer group."""
        match event:
            case Beat() | Depart():
                return BeatResult(ErrorCode.group_id_not_found, "The group is not a consumer group.")
            case _:
                return ErrorCode.unknown_member_id
