"""Removes what is past its limits: records by `retention.ms` and `retention.bytes`, and producer states.

Where a topic has an archive, `local.retention.ms` and `local.retention.bytes` decide what Redis keeps, and only
archived records are removed (KIP-405). `ketch archive expire` applies `retention.ms` and `retention.bytes` to the
archive.

Trimming is approximate (whole nodes of the stream, `~`): a record may stay a little longer, as in Kafka where a segment
goes as a whole, and Redis is not held up. Each broker does this for all partitions. What one has removed, the next does
not find.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ketch.clock import now_ms
from ketch.configs.topic_table import AS_TOTAL
from ketch.errors import KetchError, StorageUnavailable
from ketch.log.partition import Partition
from ketch.log.topic_cache import TopicCache
from ketch.redis.driver import Driver
from ketch.store.append import markers, producers
from ketch.store.stream import ranges, trimming
from ketch.store.topics.topic import Topic

log = logging.getLogger(__name__)


async def sweep(
    topics: TopicCache, find: Callable[[Topic, int], Partition], driver: Driver, producer_expiration_ms: int
) -> None:
    """Goes once over every partition; what fails for one is logged and does not keep it from the others.

    Raises:
        StorageUnavailable: Redis is gone.
    """
    for topic in await topics.all():
        for index in range(topic.partitions):
            try:
                # A round takes its time: another broker may have created a topic of that name again meanwhile, whose
                # records are not to go by the limits of the old one.
                now = await topics.reread(topic)
                if now is None:
                    break
                partition = find(now, index)
                removed = await trim(partition, now, driver)
                if removed:
                    log.info("%s-%d: retention removed %d records", topic.name, index, removed)
                await _forget(partition, driver, now_ms() - producer_expiration_ms)
            except StorageUnavailable:  # of all partitions: the rest of the round would fail, too
                raise
            except (KetchError, ValueError) as error:  # ValueError: a config that was written by hand and is no number
                log.warning("%s-%d: retention: %s", topic.name, index, error)


async def _forget(partition: Partition, driver: Driver, oldest: int) -> None:
    """Forgets producers that have not written since `oldest` (ms), and aborted transactions below the first entry."""
    keys = partition.transaction_keys
    await driver.ask(producers.expire(keys.producers, keys.transactions, oldest))
    start = (await partition.bounds.get()).local_start
    await driver.ask(markers.trim_aborted(keys.aborted, partition.topic.numbering.to_id(start)))


async def trim(partition: Partition, topic: Topic, driver: Driver) -> int:
    """Removes what the limits let go; the number of entries removed."""
    if not topic.deletes:
        return 0
    archived = await partition.tier.settled()
    if archived is None and topic.configs["remote.storage.enable"] == "true":
        return 0  # as in Kafka nothing goes that was not copied, however old it is
    removed = 0
    prefix = "" if archived is None else "local."
    oldest = limit(topic, prefix, "retention.ms")
    if oldest >= 0:
        removed += await _trim_by_time(partition, topic, driver, oldest, archived)
    size = limit(topic, prefix, "retention.bytes")
    if size >= 0:
        removed += await _trim_by_size(partition, topic, driver, size, archived)
    if archived and partition.tier.stalled and await _overdue(partition, topic, driver, archived):
        partition.tier.warn_stalled()
    return removed


async def _overdue(partition: Partition, topic: Topic, driver: Driver, archived: int) -> bool:
    """Whether records are past the local limits that are still there only because they are not archived."""
    oldest, size = limit(topic, "local.", "retention.ms"), limit(topic, "local.", "retention.bytes")
    if oldest >= 0:
        end = await _cutoff(partition, topic, oldest, archived=True)
        if await driver.ask(trimming.any_between(partition.stream, archived, end)):
            return True
    waits = size >= 0 and await driver.ask(trimming.any_between(partition.stream, archived))
    return waits and await driver.ask(ranges.memory(partition.stream)) > size


def limit(topic: Topic, prefix: str, name: str) -> int:
    """The limit of what Redis holds, -1 for none: no more than the limit of the whole.

    Args:
        prefix: `local.` where the topic has an archive.
        name: `retention.ms` or `retention.bytes`.
    """
    total, own = int(topic.configs[name]), int(topic.configs[prefix + name])
    if own == AS_TOTAL or total < 0:
        return total if own == AS_TOTAL else own
    return total if own < 0 else min(own, total)


async def _trim_by_time(
    partition: Partition, topic: Topic, driver: Driver, retention: int, archived: int | None
) -> int:
    cutoff = await _cutoff(partition, topic, retention, archived is not None)
    if archived is not None:
        cutoff = min(cutoff, archived)
    return await driver.ask(trimming.trim_nodes(partition.stream, topic.numbering.to_id(cutoff)))


async def _cutoff(partition: Partition, topic: Topic, retention: int, archived: bool) -> int:
    """The offset below which records are older than `retention` ms."""
    oldest = now_ms() - retention
    if not topic.numbering.dense:
        return max(oldest, 0) << topic.numbering.bits
    # The clock is not in the ids: records go by their timestamps, up to the first that is to stay. Where these do not
    # rise, a bisection might take younger records along. So all that goes is read, once, for it is gone then; but not
    # where it may have to wait for the archive, which keeps it.
    found = await partition.local_first_at_or_after(oldest, rising=archived)
    if found is not None:
        return found.offset
    latest = await partition.local_latest_timestamp()
    # What was written by hand has no timestamp and so no age. As in Kafka, a log that has none at all is not old.
    return (await partition.bounds.get()).high_watermark if latest is not None and latest.timestamp >= 0 else 0


async def _trim_by_size(partition: Partition, topic: Topic, driver: Driver, size: int, archived: int | None) -> int:
    """Leaves about `size` bytes, and all that is not archived; the newest node too, as Kafka leaves the active segment.

    Redis knows what a stream takes without a look at its entries, whose sizes may be anything; only those that go are
    looked at. An entry takes more than its fields, but less than twice as much: so half of the excess goes at a time.
    """
    removed, newest = 0, topic.numbering.to_id(max((await partition.bounds.get()).high_watermark - 1, 0))
    while (excess := await driver.ask(ranges.memory(partition.stream)) - size) > 0:
        kept = min(await driver.ask(trimming.id_after(partition.stream, excess // 2)), newest)
        if archived is not None:
            kept = min(kept, topic.numbering.to_id(archived))
        step = await driver.ask(trimming.trim_nodes(partition.stream, kept))
        if step == 0:
            break
        removed += step
    return removed
