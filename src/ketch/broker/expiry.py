"""Deletes commits that are past `offsets.retention.minutes`, as Kafka's GroupCoordinator does (KIP-211).

A group with members keeps everything. Without members, a commit goes that long after it was made or the group became
empty, whichever is later. A commit that brought its own retention time (OffsetCommit before version 5) goes at that
time, as soon as the group has no members. A group with nothing left goes as a whole. A share group stays until it is
deleted (ShareGroup.shouldExpire): what its members have done lies with the partitions.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from ketch.broker.services import Coordinating
from ketch.clock import now_ms
from ketch.coordinator.share.group import ShareGroup
from ketch.errors import KetchError
from ketch.store.coordination.commits import Committed
from ketch.store.keys import TopicPartition

log = logging.getLogger(__name__)


async def sweep(broker: Coordinating) -> None:
    """Goes once over every group; what fails for one is logged and does not keep it from the others."""
    now = now_ms()
    oldest = now - broker.settings.offsets_retention_minutes * 60_000
    await broker.adoption.look()
    for name in await broker.groups.names():
        try:
            await _sweep(broker, name, oldest, now)
        except KetchError as error:
            log.warning("group %s: retention: %s", name, error)
        except Exception:
            log.exception("group %s: retention", name)


async def _sweep(broker: Coordinating, name: str, oldest: int, now: int) -> None:
    group = await broker.groups.get(name)
    if not group.is_idle or isinstance(group, ShareGroup):
        return
    kept = broker.log.commits
    commits = await kept.of(name, await kept.partitions(name))
    old = await _old(broker, name, commits, oldest, now)
    if len(old) == len(commits):
        if await broker.groups.delete(name):
            log.info("group %s: nothing of it is left, it is removed", name)
    elif old and await broker.groups.retire(name, lambda term: kept.remove(name, old, term)):
        log.info("group %s: %d commits have expired", name, len(old))


async def _old(
    broker: Coordinating, name: str, commits: dict[TopicPartition, Committed], oldest: int, now: int
) -> list[TopicPartition]:
    by_hand = {partition: replace(commit, time=now) for partition, commit in commits.items() if not commit.time}
    if by_hand:  # nobody knows since when: from now on
        await broker.log.commits.describe(name, by_hand)
    emptied = await broker.groups.emptied(name)

    def expired(commit: Committed) -> bool:
        return max(commit.time, emptied) < oldest if commit.expires < 0 else commit.expires <= now

    return [partition for partition, commit in commits.items() if partition not in by_hand and expired(commit)]
