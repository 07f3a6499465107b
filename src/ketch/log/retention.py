"""What is deleted in time: records past `retention.ms` or `retention.bytes`, producer states past their expiration.

Trimming is approximate (whole nodes of the stream, `~`): a record may stay a little longer, as in Kafka where a segment
goes as a whole, and Redis is not held up. Every broker may do it; it comes to the same.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from ketch.errors import KetchError
from ketch.log.partition import Partition
from ketch.store.link import Link
from ketch.store.topics import Topic

if TYPE_CHECKING:
    from ketch.log.log import Log

log = logging.getLogger(__name__)

# KEYS producers. ARGV producer id, state as read. Only a state that nobody has moved since is removed.
_EXPIRE = "if redis.call('HGET',KEYS[1],ARGV[1])==ARGV[2] then return redis.call('HDEL',KEYS[1],ARGV[1]) end return 0"


async def sweep(logs: Log, link: Link, producer_expiration_ms: int) -> None:
    """Goes once over every partition; what fails for one is logged and does not keep it from the others."""
    for topic in await logs.catalog.all():
        for index in range(topic.partitions):
            try:
                partition = logs.partition(topic, index)
                removed = await trim(partition, topic, link)
                if removed:
                    log.info("%s-%d: retention removed %d records", topic.name, index, removed)
                await expire_producers(partition.producers_key, link, producer_expiration_ms)
            except KetchError as error:
                log.warning("%s-%d: retention: %s", topic.name, index, error)


async def trim(partition: Partition, topic: Topic, link: Link) -> int:
    """Removes what both limits let go; the number of records removed."""
    removed = 0
    cutoff = await _time_cutoff(partition, topic)
    if cutoff is not None:
        removed += await link.pipe.call("XTRIM", partition.stream, "MINID", "~", cutoff)
    limit = int(topic.configs["retention.bytes"])
    if limit >= 0 and partition.entry_bytes:
        removed += await link.pipe.call("XTRIM", partition.stream, "MAXLEN", "~", int(limit / partition.entry_bytes))
    return removed


async def _time_cutoff(partition: Partition, topic: Topic) -> bytes | None:
    """The id of the first entry to keep, None to keep all."""
    retention = int(topic.configs["retention.ms"])
    if retention < 0:
        return None
    oldest = time.time_ns() // 1_000_000 - retention
    if not topic.codec.dense:
        return topic.codec.format_id(max(oldest, 0), 0)
    # The clock is not in the ids: records go by their timestamps, up to the first that is to stay.
    found = await partition.first_at_or_after(oldest)
    bounds = await partition.bounds()
    return topic.codec.format_id(*topic.codec.to_id(found.offset if found else bounds.high_watermark))


async def expire_producers(key: bytes, link: Link, expiration_ms: int) -> None:
    """Forgets idempotent producers that have not written for `expiration_ms`."""
    oldest = time.time_ns() // 1_000_000 - expiration_ms
    cursor: bytes | int = 0
    while True:
        cursor, pairs = await link.pipe.call("HSCAN", key, cursor, "COUNT", 1000)
        for producer, state in zip(pairs[::2], pairs[1::2], strict=True):
            if int(state.split()[2]) < oldest:
                await link.pipe.call("EVAL", _EXPIRE, 1, key, producer, state)
        if int(cursor) == 0:
            return
