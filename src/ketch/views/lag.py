"""How far a consumer group is behind, in records. Questions to Redis alone: with time ids offsets are sparse, so Redis
has to count. `dense_lag` is for dense ids, which need no Redis.
"""

from __future__ import annotations

from collections.abc import Mapping

from ketch.redis.question import Question
from ketch.store.coordination import native
from ketch.store.coordination.native import NativeGroup
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.stream import counting
from ketch.store.stream.ranges import PartitionStream
from ketch.views import partitions


def record_lag(
    keys: Keyspace, group: str, committed: Mapping[TopicPartition, int]
) -> Question[dict[TopicPartition, int]]:
    """How many records there are from each committed offset on.

    Raises:
        ConfigError: a topic is not in this Redis.
    """
    streams = yield from partitions.streams(keys, committed)
    known = yield from native.named([stream.key for stream in streams.values()], group)
    found = {}
    for (partition, stream), native_group in zip(streams.items(), known, strict=True):
        found[partition] = yield from lag(stream, native_group, committed[partition])
    return found


def lag(stream: PartitionStream, known: NativeGroup | None, committed: int, most: int | None = None) -> Question[int]:
    """How many records there are from offset `committed` on; at least `most`, where that is given and passed.

    Redis counts for a native group how many entries it was not given yet. Where an entry is a record, that saves
    counting all of them: only the difference between what was given and what was committed is counted then.

    Args:
        known: the native group on the stream; None where there is none.
    """
    if known is None or known.lag is None or not stream.layout.entry_is_record:
        return (yield from counting.count(stream, committed, most=most))
    given = stream.numbering.to_offset(*known.last_delivered) + 1
    if given >= committed:
        return known.lag + (yield from counting.count(stream, committed, given, most))
    return max(0, known.lag - (yield from counting.count(stream, given, committed)))


def dense_lag(committed: int, start: int, end: int) -> int:
    """The same with dense ids, of a log from offset `start` to below `end`: there the difference is the number."""
    return max(0, end - max(committed, start))
