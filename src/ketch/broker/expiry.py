"""Commits that nobody needs any more: `offsets.retention.minutes`, as Kafka's GroupCoordinator expires them (KIP-211).

A group with members keeps everything. Without, a commit goes that long after it was made or the group became empty,
whichever is later; a group with nothing left goes as a whole.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from ketch.clock import now_ms
from ketch.coordinator.member import State
from ketch.errors import KetchError
from ketch.store.groups import Committed, TopicPartition

if TYPE_CHECKING:
    from ketch.broker.server import Broker

log = logging.getLogger(__name__)


async def sweep(broker: Broker) -> None:
    """Goes once over every group; what fails for one is logged and does not keep it from the others."""
    now = now_ms()
    oldest = now - broker.settings.offsets_retention_minutes * 60_000
    for name in await broker.groups.names():
        try:
            await _sweep(broker, name, oldest, now)
        except KetchError as error:
            log.warning("group %s: retention: %s", name, error)


async def _sweep(broker: Broker, name: str, oldest: int, now: int) -> None:
    group = await broker.groups.get(name)
    if group.state is not State.EMPTY or group.pending:
        return
    store = broker.groups.store
    commits = await store.committed(name, await store.partitions(name))
    old = await _old(broker, name, commits, oldest, now)
    if len(old) == len(commits):
        if await broker.delete_group(name):
            log.info("group %s: nothing of it is left, it is removed", name)
    elif old and await broker.groups.retire(name, lambda: store.uncommit(name, old)):
        log.info("group %s: %d commits have expired", name, len(old))


async def _old(
    broker: Broker, name: str, commits: dict[TopicPartition, Committed], oldest: int, now: int
) -> list[TopicPartition]:
    store = broker.groups.store
    by_hand = {place: replace(commit, time=now) for place, commit in commits.items() if not commit.time}
    if by_hand:  # nobody knows since when: from now on
        await store.commit(name, by_hand)
    if await store.emptied(name) >= oldest:
        return []
    return [place for place, commit in commits.items() if place not in by_hand and commit.time < oldest]
