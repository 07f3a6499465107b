"""Share groups (KIP-932) as a kind: their fields, log lines and metrics.

The machine is `coordinator.share.group`. What a share group was given of a partition is kept by the partition's leader,
which does not ask who is a member: so native groups have nothing to do for a member that comes or goes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import UnionType
from typing import Any

from kio.schema.errors import ErrorCode

from ketch import metrics
from ketch.broker.coordination.group_configs import GroupConfigs
from ketch.broker.coordination.kinds.kind import Kind
from ketch.clock import now_ms
from ketch.coordinator.consumer.events import BeatResult
from ketch.coordinator.share.events import Effect, Event
from ketch.coordinator.share.fields import from_fields, to_fields
from ketch.coordinator.share.group import ShareGroup

log = logging.getLogger(__name__)


class ShareKind(Kind[ShareGroup]):
    """What is particular to share groups, see `broker.coordination.kinds.kind.Kind`.

    Args:
        configs: what each group goes by.
    """

    name = "share"
    machine: type[ShareGroup] = ShareGroup
    events: UnionType = Event
    gives_way = False  # as in Kafka: the id stays a share group's until that is deleted, as its partitions' state does
    outlives = False  # a member must not be told what the next coordinator does not know

    def __init__(self, configs: GroupConfigs) -> None:
        self._configs = configs

    # -- machines

    def new(self, id: str) -> ShareGroup:
        return ShareGroup(id, self._configs.share(id))

    def from_fields(self, id: str, fields: Mapping[str, str], now: float) -> ShareGroup | None:
        return from_fields(id, fields, self._configs.share(id), now)

    def to_fields(self, machine: ShareGroup) -> dict[str, str]:
        return to_fields(machine, now_ms())

    # -- events and effects

    def handle(self, machine: ShareGroup, event: Event, now: float) -> list[Effect]:
        machine.config = self._configs.share(machine.id)  # they may have changed
        epoch = machine.epoch
        effects: list[Effect] = machine.handle(event, now)
        if machine.epoch != epoch:
            members = len(machine.members)
            log.info("group %s: %s, epoch %d, %d members", machine.id, machine.state, machine.epoch, members)
            metrics.rebalanced(machine.id)
        return effects

    def carry_out(self, machine: ShareGroup, effect: Any) -> None:
        """There is nothing but Reply and Persist."""

    def changed(self, machine: ShareGroup) -> None:
        """Nobody follows it."""

    def refusal(self, event: Event) -> Any:
        """As Kafka's GroupMetadataManager answers for a group that is no share group."""
        return BeatResult(ErrorCode.group_id_not_found, "The group is not a share group.")
