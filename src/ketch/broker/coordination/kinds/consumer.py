"""Consumer groups (KIP-848) as a kind: their fields, log lines and metrics, and when a group changes its protocol.

The machine is `coordinator.consumer.group`. For what native groups do see `broker.coordination.kinds.followed`.

A classic group with members becomes a consumer group, and the other way round, where `group.consumer.migration.policy`
allows it (`coordinator.migration`). A consumer group has the events of classic members among its own, so only two
events of theirs lead to a classic group: JoinGroup to a group without members, and the end of the last member of this
protocol.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import UnionType
from typing import Any

from kio.schema.errors import ErrorCode

from ketch import metrics
from ketch.broker.coordination.group_configs import GroupConfigs
from ketch.broker.coordination.kinds.classic import ClassicKind, new_member_id
from ketch.broker.coordination.kinds.followed import FollowedKind
from ketch.broker.coordination.native_groups import NativeGroups
from ketch.clock import now_ms
from ketch.coordinator.classic.events import Join, JoinResult
from ketch.coordinator.classic.group import Group
from ketch.coordinator.classic.payload import CONSUMER
from ketch.coordinator.consumer.events import JOIN_EPOCH, Beat, BeatResult, Depart, Effect, Event, OnlyClassic
from ketch.coordinator.consumer.fields import from_fields, to_fields
from ketch.coordinator.consumer.group import ConsumerGroup
from ketch.coordinator.machine import Heir, Persist, Reply
from ketch.coordinator.migration import Unfit, downgrade, released, upgrade

log = logging.getLogger(__name__)

# Of `group.consumer.migration.policy`: which values let a group with members become one of the other kind.
_UPGRADES, _DOWNGRADES = ("bidirectional", "upgrade"), ("bidirectional", "downgrade")


class ConsumerKind(FollowedKind[ConsumerGroup]):
    """What is particular to consumer groups, see `broker.coordination.kinds.kind.Kind`.

    Args:
        configs: what each group goes by.
        native_groups: follow assignments and members that go.
        classic: the kind that these groups come from and go to.
        policy: `group.consumer.migration.policy`.
    """

    name = "consumer"
    machine: type[ConsumerGroup] = ConsumerGroup
    events: UnionType = Event
    outlives = False  # a member must not be told what the next coordinator does not know

    def __init__(self, configs: GroupConfigs, native_groups: NativeGroups, classic: ClassicKind, policy: str) -> None:
        super().__init__(native_groups)
        self._configs, self._classic = configs, classic
        self._upgrades, self._downgrades = policy in _UPGRADES, policy in _DOWNGRADES

    # -- machines

    def new(self, id: str) -> ConsumerGroup:
        return ConsumerGroup(id, self._configs.consumer(id))

    def from_fields(self, id: str, fields: Mapping[str, str], now: float) -> ConsumerGroup | None:
        return from_fields(id, fields, self._configs.consumer(id), now)

    def to_fields(self, machine: ConsumerGroup) -> dict[str, str]:
        return to_fields(machine, now_ms())

    # -- events and effects

    def handle(self, machine: ConsumerGroup, event: Event, now: float) -> list[Any]:
        machine.config = self._configs.consumer(machine.id)  # they may have changed
        if isinstance(event, Join):
            if machine.is_idle and not machine.retired:
                return self._begin_classic(machine, event, now)
            if not self._classic.has_session_timeout(event.session_timeout):
                return [Reply(event.token, JoinResult(ErrorCode.invalid_session_timeout, event.member_id))]
        state, epoch = machine.state, machine.epoch
        effects: list[Effect] = machine.handle(event, now)
        if (machine.state, machine.epoch) != (state, epoch):
            members = len(machine.members)
            log.info("group %s: %s, epoch %d, %d members", machine.id, machine.state, machine.epoch, members)
        if machine.epoch != epoch:
            metrics.rebalanced(machine.id)
        return self._downgraded(machine, effects, now)

    # -- a group changes its protocol

    def _begin_classic(self, machine: ConsumerGroup, event: Join, now: float) -> list[Any]:
        heir = self._classic.new(machine.id)
        return [Heir(heir), *self._classic.handle(heir, event, now)]

    def convert(self, machine: Any, event: Event, now: float) -> list[Any]:
        """A classic group with members becomes a consumer group with the first heartbeat of a member of this kind."""
        if not isinstance(machine, Group) or not isinstance(event, Beat | Depart):
            return []
        try:
            return self._upgraded(machine, event, now)
        except Unfit as why:
            log.info("group %s: %s", machine.id, why)
            return [Reply(event.token, BeatResult(ErrorCode.group_id_not_found, str(why)))]

    def _upgraded(self, group: Group, event: Beat | Depart, now: float) -> list[Any]:
        """The effects of the conversion and of the event; raises Unfit."""
        if isinstance(event, Depart) or event.epoch != JOIN_EPOCH:
            raise Unfit(f"Group {group.id} is not a consumer group.")
        heir = self._upgrade(group, event, now)
        effects = self.handle(heir, event, now)
        if Persist() not in effects:  # the newcomer is refused, and nothing has changed
            return effects
        log.info("group %s: converted to a consumer group, %d members", group.id, len(heir.members))
        return [*released(group), Heir(heir), *effects]

    def _upgrade(self, group: Group, event: Beat, now: float) -> ConsumerGroup:
        config, cannot = self._configs.consumer(group.id), f"Cannot upgrade classic group {group.id} to consumer group"
        if not self._upgrades:
            raise Unfit(f"{cannot} because online upgrade is disabled.")
        if group.protocol_type != CONSUMER:
            raise Unfit(f"{cannot} because the group does not use the consumer embedded protocol.")
        if len(group.members) > config.max_size:
            raise Unfit(f"{cannot} because the group size exceeds the consumer group maximum size.")
        try:
            return upgrade(group, config, event.topics, now)
        except Unfit as why:
            raise Unfit(f"{cannot} because {why}.") from None

    def _downgraded(self, machine: ConsumerGroup, effects: list[Effect], now: float) -> list[Any]:
        """The effects, those of the group's conversion among them where it becomes a classic one."""
        left = next((effect for effect in effects if isinstance(effect, OnlyClassic)), None)
        if left is None:
            return effects
        effects.remove(left)
        if not self._downgrades or len(machine.members) > self._classic.config.max_size:
            log.info("group %s: cannot become a classic group", machine.id)
            return effects
        config = self._classic.config
        heir = downgrade(machine, config, new_member_id, left.epoch, left.rebalances, now)
        log.info("group %s: converted to a classic group, %d members", heir.id, len(heir.members))
        return [Heir(heir), *effects]

    def refusal(self, event: Event) -> Any:
        """As Kafka's GroupMetadataManager answers for a group that is no consumer group."""
        match event:
            case Beat() | Depart():
                return BeatResult(ErrorCode.group_id_not_found, "The group is not a consumer group.")
            case _:
                return ErrorCode.unknown_member_id
