"""Records of one partition, for a person to look at: a page of them, one of them, or those with a key. Questions to
Redis alone; what lies in the archive is not looked at.

All of it is bounded whatever the records are: a page reads the beginnings of values (`store.stream.glances`), and a
search looks at so many entries and then says where it would go on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ketch.errors import ConfigError
from ketch.redis.question import Question
from ketch.store.keys import Keyspace
from ketch.store.stream import glances, ranges, search
from ketch.store.stream.glances import Glimpse, Match
from ketch.store.stream.ranges import EntrySizes, PartitionStream
from ketch.store.xinfo import StreamInfo
from ketch.views import partitions

SHOWN = 300  # bytes of a value in a list
SEARCHED = 20_000  # entries that one search looks at
_BUSY_BYTES = 96_000_000  # of entries that Redis reads for one page, and the entry with which it has them: 0.2 s
_LARGE = 8 << 20  # bytes of an entry: where they are larger, start and end are not looked up
_END = 1 << 62  # beyond every offset
_STEPS = 40  # scripts of one search
_TIME_STEPS = 20  # scripts by which a time is looked for


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Some records of a partition.

    Attributes:
        key: of its stream in Redis.
        batches: whether an entry is a batch rather than a record.
        start, end: of the log in Redis, offsets; `end` exclusive. None where a record alone was asked for, and where
            entries are large, which Redis would have to read for it.
        records: in the order of their offsets.
        next: the offset that the next page begins with; None where there is none.
        older: whether there may be records before these.
        looked: entries that a search has looked at.
    """

    topic: str
    partition: int
    key: bytes
    batches: bool
    start: int | None
    end: int | None
    records: tuple[Glimpse, ...]
    next: int | None
    older: bool
    looked: int = 0


def page(keys: Keyspace, topic: str, partition: int, offset: int, count: int) -> Question[RecordPage]:
    """`count` records from `offset` on.

    Raises:
        ConfigError: there is no such partition; so do all of these views.
    """
    stream, start, end, entry_bytes = yield from _bounds(keys, topic, partition)
    at, found, size = max(offset, 0), list[Glimpse](), 0
    following: int | None = at
    while following is not None and len(found) <= count and size < _BUSY_BYTES:
        step = yield from glances.forward(stream, following, entry_bytes, count + 1 - len(found), SHOWN)
        found += step.found
        size += step.size
        following = step.next
    more = found[count].offset if len(found) > count else following
    return _page(stream, start, end, found[:count], more)


def last(keys: Keyspace, topic: str, partition: int, count: int, before: int | None = None) -> Question[RecordPage]:
    """The last `count` records, or those before an offset."""
    stream, start, end, entry_bytes = yield from _bounds(keys, topic, partition)
    found, size = list[Glimpse](), 0
    following: int | None = (_END if end is None else end) if before is None else before
    while following is not None and len(found) <= count and size < _BUSY_BYTES:
        step = yield from glances.backward(stream, following, entry_bytes, count + 1 - len(found), SHOWN)
        found += step.found
        size += step.size
        following = step.next
    shown = found[:count][::-1]
    older = len(found) > count or (following is not None and following > (start or 0))
    return replace(_page(stream, start, end, shown, before), older=older)


def one(keys: Keyspace, topic: str, partition: int, offset: int, most: int) -> Question[RecordPage]:
    """The record at an offset, or the next one where there is none; values up to `most` bytes."""
    stream = yield from _named(keys, topic, partition)
    step = yield from glances.forward(stream, offset, 0, 1, most)
    return _page(stream, None, None, step.found[:1], None)


def at_time(keys: Keyspace, topic: str, partition: int, timestamp: int) -> Question[int | None]:
    """The offset of the first record that is as late as `timestamp`, ms; None where there is none.

    With time ids only the beginnings of records are read, a bounded number of them; then the answer is the offset at
    which the search has stopped.
    """
    stream, info = yield from _stream(keys, topic, partition)
    start, _ = stream.topic.extent(info)
    if stream.numbering.dense:
        sizes = EntrySizes.of(stream, info)
        found = yield from search.first_at_or_after(stream, sizes, info, start, timestamp)
        return None if found is None else found.offset
    following: int | None = max(start, (timestamp - stream.topic.timestamp_lead) << stream.numbering.bits)
    looked = 0
    for _ in range(_TIME_STEPS):
        if following is None:
            return None
        if looked * info.entry_bytes >= _BUSY_BYTES:
            break
        step = yield from glances.forward(stream, following, info.entry_bytes, 500, 32)
        late = next((record.offset for record in step.found if record.timestamp >= timestamp), None)
        if late is not None:
            return late
        following = step.next
        looked += step.looked
    return following


def with_key(
    keys: Keyspace, topic: str, partition: int, offset: int, how: Match, key: bytes, count: int
) -> Question[RecordPage]:
    """Up to `count` records from `offset` on whose key is, or contains, `key`; `next` is where the search would go on.

    It looks at `SEARCHED` entries at most, as many a script as make up some bytes.
    """
    stream, info = yield from _stream(keys, topic, partition)
    found, looked = list[Glimpse](), 0
    following: int | None = max(offset, 0)
    for _ in range(_STEPS):
        if following is None or looked >= SEARCHED or len(found) >= count or looked * info.entry_bytes >= _BUSY_BYTES:
            break
        step = yield from glances.forward(stream, following, info.entry_bytes, SEARCHED, SHOWN, how, key)
        found += step.found
        looked += step.looked
        following = step.next
    if len(found) > count:
        following = found[count].offset
    return _page(stream, *stream.topic.extent(info), found[:count], following, looked)


def offset_of(keys: Keyspace, topic: str, partition: int, entry_id: str) -> Question[int]:
    """The offset that an entry id stands for; raises ConfigError for anything else than an id, too."""
    stream = yield from _named(keys, topic, partition)
    whole = entry_id if "-" in entry_id else f"{entry_id}-0"
    try:
        return max(0, stream.numbering.to_offset(*stream.numbering.parse_id(whole.encode())))
    except ValueError:
        raise ConfigError(f"{entry_id!r} is no entry id, which is two numbers with a dash between.") from None


def _stream(keys: Keyspace, topic: str, partition: int) -> Question[tuple[PartitionStream, StreamInfo]]:
    stream = yield from _named(keys, topic, partition)
    (info,) = yield from ranges.lean_infos([stream])
    return stream, info or StreamInfo()


def _bounds(
    keys: Keyspace, topic: str, partition: int
) -> Question[tuple[PartitionStream, int | None, int | None, int]]:
    """A partition with its start and end, as in `RecordPage`, and about how large its entries are."""
    stream = yield from _named(keys, topic, partition)
    (info,) = yield from ranges.lean_infos([stream], _LARGE)
    if info is None:
        return stream, None, None, _LARGE
    return stream, *stream.topic.extent(info), info.entry_bytes


def _named(keys: Keyspace, topic: str, partition: int) -> Question[PartitionStream]:
    (stream,) = (yield from partitions.streams(keys, [(topic, partition)])).values()
    if not 0 <= partition < stream.topic.partitions:
        raise ConfigError(f"Topic {topic} has no partition {partition}; it has 0 to {stream.topic.partitions - 1}.")
    return stream


def _page(
    stream: PartitionStream,
    start: int | None,
    end: int | None,
    records: list[Glimpse],
    following: int | None,
    looked: int = 0,
) -> RecordPage:
    name, batches = stream.topic.name, not stream.layout.entry_is_record
    older = bool(records) and (start is None or records[0].offset > start)
    return RecordPage(name, stream.index, stream.key, batches, start, end, tuple(records), following, older, looked)
