"""How far a consumer group is behind, in records. With time ids offsets are sparse, so Redis has to count."""

from __future__ import annotations

from ketch.redis.question import Question, call
from ketch.store.coordination import native
from ketch.store.stream import counting
from ketch.store.stream.ranges import PartitionStream


def lag(stream: PartitionStream, group: str, committed: int) -> Question[int]:
    """How many records there are from offset `committed` on.

    Redis counts for a native group how many entries it was not given yet. Where an entry is a record, that saves
    counting all of them: only the difference between what was given and what was committed is counted then.
    """
    known = (yield from native.groups(stream.key)).get(group)
    if known is None or known.lag is None or not stream.layout.entry_is_record:
        return (yield from counting.count(stream, committed))
    given = stream.numbering.to_offset(*known.last_delivered) + 1
    if given >= committed:
        return known.lag + (yield from counting.count(stream, committed, given))
    return max(0, known.lag - (yield from counting.count(stream, given, committed)))


def records(stream: PartitionStream) -> Question[int]:
    """How many records Redis holds of a partition."""
    if stream.layout.entry_is_record:
        length: int = yield from call(stream.key, "XLEN", stream.key)
        return length
    return (yield from counting.count(stream, 0))
