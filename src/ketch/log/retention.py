"""What is deleted in time: records past `retention.ms` or `retention.bytes`, producer states past their expiration.

Where a topic has an archive, what Redis holds goes by `local.retention.ms` and `local.retention.bytes` and only once it
is archived (KIP-405); `retention.ms` and `retention.bytes` of the whole are then the archive's business.

Trimming is approximate (whole nodes of the stream, `~`): a record may stay a little longer, as in Kafka where a segment
goes as a whole, and Redis is not held up. Every broker may do it; it comes to the same.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ketch.clock import now_ms
from ketch.errors import KetchError
from ketch.log.partition import Partition
from ketch.store import scripts
from ketch.store.link import Link
from ketch.store.topics import Topic
from ketch.topicconfig import AS_TOTAL

if TYPE_CHECKING:
    from ketch.log.log import Log

log = logging.getLogger(__name__)

_STEP = 50_000  # entries that one XTRIM removes: some milliseconds

# KEYS producers. ARGV producer id, state as read. Only a state that nobody has moved since is removed.
_EXPIRE = "if redis.call('HGET',KEYS[1],ARGV[1])==ARGV[2] then return redis.call('HDEL',KEYS[1],ARGV[1]) end return 0"


async def sweep(logs: Log, link: Link, producer_expiration_ms: int) -> None:
    """Goes once over every partition; what fails for one is logged and does not keep it from the others."""
    for topic in await logs.catalog.all():
        for index in range(topic.partitions):
            try:
                # A round takes its time: another broker may have made a topic of that name anew meanwhile, whose
                # records are not to go by the limits of the old one.
                now = await logs.catalog.anew(topic)
                if now is None:
                    break
                partition = logs.partition(now, index)
                removed = await trim(partition, now, link)
                if removed:
                    log.info("%s-%d: retention removed %d records", topic.name, index, removed)
                await expire_producers(partition.producers_key, link, producer_expiration_ms)
            except (KetchError, ValueError) as error:  # a config that somebody's hand has made no number, too
                log.warning("%s-%d: retention: %s", topic.name, index, error)


async def trim(partition: Partition, topic: Topic, link: Link) -> int:
    """Removes what the limits let go; the number of entries removed."""
    archived = await partition.tier.settled()
    if archived is None and topic.configs["remote.storage.enable"] == "true":
        return 0  # as in Kafka nothing goes that was not copied, however old it is
    removed = 0
    prefix = "" if archived is None else "local."
    oldest = _limit(topic, prefix, "retention.ms")
    if oldest >= 0:
        removed += await _trim_by_time(partition, topic, link, oldest, archived)
    size = _limit(topic, prefix, "retention.bytes")
    if size >= 0:
        removed += await _trim_by_size(partition, topic, link, size, archived)
    if archived and partition.tier.stalled and await _overdue(partition, topic, link, archived):
        partition.tier.warn_stalled()
    return removed


async def _overdue(partition: Partition, topic: Topic, link: Link, archived: int) -> bool:
    """Whether records are past the local limits that are still there only because they are not archived."""
    first = _entry(topic, archived)
    oldest, size = _limit(topic, "local.", "retention.ms"), _limit(topic, "local.", "retention.bytes")
    if oldest >= 0:
        end = _entry(topic, await _cutoff(partition, topic, oldest, archived=True))
        if await link.pipe.call("XRANGE", partition.stream, first, b"(" + end, "COUNT", 1):
            return True
    waits = size >= 0 and await link.pipe.call("XRANGE", partition.stream, first, "+", "COUNT", 1)
    return bool(waits) and await _used(partition, link) > size


def _limit(topic: Topic, prefix: str, name: str) -> int:
    """Of what Redis holds, -1 for none: no more than the limit of the whole."""
    total, own = int(topic.configs[name]), int(topic.configs[prefix + name])
    if own == AS_TOTAL or total < 0:
        return total if own == AS_TOTAL else own
    return total if own < 0 else min(own, total)


async def _trim_by_time(partition: Partition, topic: Topic, link: Link, retention: int, archived: int | None) -> int:
    cutoff = await _cutoff(partition, topic, retention, archived is not None)
    if archived is not None:
        cutoff = min(cutoff, archived)
    return await _trim(link, partition.stream, _entry(topic, cutoff))


async def _cutoff(partition: Partition, topic: Topic, retention: int, archived: bool) -> int:
    """The offset below which records are older than `retention` ms."""
    oldest = now_ms() - retention
    if not topic.codec.dense:
        return max(oldest, 0) << topic.codec.bits
    # The clock is not in the ids: records go by their timestamps, up to the first that is to stay. Where these do not
    # rise, a bisection might take younger records along. So all that goes is read, once, for it is gone then; but not
    # where it may have to wait for the archive, which keeps it.
    found = await partition.local_first_at_or_after(oldest, rising=archived)
    if found is not None:
        return found.offset
    latest = await partition.local_latest_timestamp()
    # What was written by hand has no timestamp and so no age. As in Kafka, a log that has none at all is not old.
    return (await partition.bounds()).high_watermark if latest is not None and latest.timestamp >= 0 else 0


async def _trim_by_size(partition: Partition, topic: Topic, link: Link, size: int, archived: int | None) -> int:
    """Leaves about `size` bytes, and all that is not archived.

    Redis knows what a stream takes without a look at its entries, whose sizes may be anything; only those that go are
    looked at. An entry takes more than its fields, but less than twice as much: so half of the excess goes at a time.
    """
    removed = 0
    while (excess := await _used(partition, link) - size) > 0:
        kept = await _behind(partition, topic, link, excess // 2)
        if archived is not None:
            kept = min(kept, topic.codec.to_id(archived))
        step = await _trim(link, partition.stream, topic.codec.format_id(*kept))
        if step == 0:
            break
        removed += step
    return removed


async def _used(partition: Partition, link: Link) -> int:
    """Bytes that the stream takes in Redis."""
    return await link.pipe.call("MEMORY", "USAGE", partition.stream, "SAMPLES", 0) or 0


async def _behind(partition: Partition, topic: Topic, link: Link, excess: int) -> tuple[int, int]:
    """The id behind the first entries that take `excess` bytes."""
    first, behind = b"-", (0, 0)
    while excess > 0:
        at, size = await link.pipe.call(
            "EVAL", scripts.SIZES, 1, partition.stream, first, topic.layout.count_step, excess
        )
        if not at:
            break
        excess -= size
        ms, seq = topic.codec.parse_id(at)
        first, behind = b"(" + at, (ms, seq + 1)
    return behind


async def _trim(link: Link, stream: bytes, least: bytes) -> int:
    """XTRIM of the entries below an id, in steps, for Redis does nothing else meanwhile.

    Without a limit Redis would set one itself, of a hundred nodes (10,000 entries), and retention fall behind.
    """
    removed = 0
    while step := await link.pipe.call("XTRIM", stream, "MINID", "~", least, "LIMIT", _STEP):
        removed += step
    return removed


def _entry(topic: Topic, offset: int) -> bytes:
    return topic.codec.format_id(*topic.codec.to_id(offset))


async def expire_producers(key: bytes, link: Link, expiration_ms: int) -> None:
    """Forgets idempotent producers that have not written for `expiration_ms`."""
    oldest = now_ms() - expiration_ms
    cursor: bytes | int = 0
    while True:
        cursor, pairs = await link.pipe.call("HSCAN", key, cursor, "COUNT", 1000)
        for producer, state in zip(pairs[::2], pairs[1::2], strict=True):
            if int(state.split()[2]) < oldest:
                await link.pipe.call("EVAL", _EXPIRE, 1, key, producer, state)
        if int(cursor) == 0:
            return
