"""Where the logs of many partitions start and end: one round trip, one more where trimmed ones are compacted.

And from that, without a further question, about how many records lie in a range of a log (`at_most`, `about`,
`about_from`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ketch.redis.question import Question
from ketch.store.keys import Keyspace
from ketch.store.offsets import OffsetNumbering
from ketch.store.stream import compaction, ranges
from ketch.store.stream.ranges import PartitionStream
from ketch.store.xinfo import StreamInfo


@dataclass(frozen=True, slots=True)
class Extent:
    """One partition's log as Redis has it: offsets of the first record that may exist, and after the last."""

    stream: PartitionStream
    info: StreamInfo
    start: int
    end: int


def extents(of: Sequence[PartitionStream], keys: Keyspace) -> Question[list[Extent]]:
    """Where each of these partitions starts and ends; raises as `ranges.infos`."""
    return (yield from _extents(of, (yield from ranges.infos(of)), keys))


def lean(of: Sequence[PartitionStream], keys: Keyspace) -> Question[list[Extent]]:
    """As `extents`, of partitions whose entries may be large, for whoever only looks; see `ranges.lean_infos`."""
    infos = yield from ranges.lean_infos(of)
    return (yield from _extents(of, [info for info in infos if info is not None], keys))


def bounded(of: Sequence[PartitionStream], keys: Keyspace, most: int) -> Question[list[Extent | None]]:
    """As `lean`; None for partitions beyond `most` bytes of large entries: Redis reads some 600 MB of them a second."""
    infos = yield from ranges.lean_infos(of, most)
    known = [(stream, info) for stream, info in zip(of, infos, strict=True) if info is not None]
    found = iter((yield from _extents([stream for stream, _ in known], [info for _, info in known], keys)))
    return [None if info is None else next(found) for info in infos]


def _extents(of: Sequence[PartitionStream], infos: Sequence[StreamInfo], keys: Keyspace) -> Question[list[Extent]]:
    found = [Extent(stream, info, *stream.topic.extent(info)) for stream, info in zip(of, infos, strict=True)]
    # Compaction removes first entries, too, and does not move the start: see `log.bounds`.
    first = {
        at: OffsetNumbering.format_id(*each.info.first)
        for at, each in enumerate(found)
        if each.stream.topic.compacts and each.info.removed != 0 and each.info.first is not None
    }
    starts = yield from compaction.starts([(keys.compaction(of[at].key), entry) for at, entry in first.items()])
    for at, start in zip(first, starts, strict=True):
        if start is not None:
            found[at] = replace(found[at], start=min(start, found[at].start))
    return found


def at_most(stream: PartitionStream, info: StreamInfo, offsets: int) -> int:
    """An upper bound of the number of records in Redis that lie in a range of so many offsets."""
    # An entry may hold many records where it is a batch.
    return min(offsets, info.length) if stream.layout.entry_is_record else offsets


def about(stream: PartitionStream, info: StreamInfo, span: tuple[int, int], log: tuple[int, int], most: int) -> int:
    """An estimate of the number of records in a range: exact with dense ids, else from the average density.

    Args:
        span: the range, offsets from the first up to the second, exclusive.
        log: where the records in Redis lie: the offset of the first one, and the high watermark.
        most: an upper bound of the number, such as `at_most`.
    """
    if stream.numbering.dense or not most:
        return most
    if info.first is None:
        return 0
    (start, end), (first, log_end) = span, log
    in_first_entry = stream.numbering.to_offset(*info.first) - first + 1
    density = info.length * in_first_entry / max(1, log_end - first)
    return max(1, min(most, round(density * (end - max(start, first)))))


def about_from(of: Extent, start: int) -> int:
    """About how many records Redis has from an offset of the log on: exact with dense ids, else estimated."""
    stream, info, offsets = of.stream, of.info, max(0, of.end - start)
    if stream.numbering.dense:
        return offsets
    first = stream.layout.start(info, stream.numbering)
    log = of.end if first is None else first, max(of.end, stream.numbering.to_offset(*info.last) + 1)
    return about(stream, info, (start, of.end), log, at_most(stream, info, offsets))
