"""Figures of many partitions at a time, as /metrics and `ketch top` show them. Questions to Redis alone.

What one costs is bounded by the number of partitions, not by their records: nothing is counted, and of a large stream's
memory Redis looks at a few nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ketch.redis.question import Question
from ketch.store.keys import Keyspace
from ketch.store.stream import extents, ranges
from ketch.store.stream.extents import Extent
from ketch.store.stream.ranges import PartitionStream
from ketch.store.topics import archives
from ketch.store.topics.archives import Announcement
from ketch.views.listing import about


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """One partition.

    Attributes:
        start, end: of the log in Redis, offsets; `end` exclusive.
        entries: of the stream; `added`: how many were ever added, None before Redis 7.
        records: in Redis, about; exact where an entry is a record.
        bytes: of Redis's memory, about.
        through: the offset up to which it is archived; None where nothing is.
        waiting: records that are not archived yet, about; None likewise.
    """

    topic: str
    partition: int
    start: int
    end: int
    entries: int
    added: int | None
    records: int
    bytes: int
    through: int | None
    waiting: int | None


@dataclass(frozen=True, slots=True)
class Figures:
    """Some partitions, and of their topics with an archive when the job announced something last, ms."""

    partitions: tuple[PartitionFigures, ...]
    archived: Mapping[str, int]


def figures(keys: Keyspace, of: Sequence[PartitionStream]) -> Question[Figures]:
    """The figures of some partitions, in four round trips. Large entries stay in Redis, see `extents.lean`."""
    topics = {stream.topic.name: str(stream.topic.id) for stream in of}
    found = yield from extents.lean(of, keys)
    sizes = yield from ranges.sizes([stream.key for stream in of])
    announced = dict(zip(topics, (yield from archives.read_all(keys, [*topics.items()])), strict=True))
    partitions = tuple(
        _figures(extent, size, announced[extent.stream.topic.name]) for extent, size in zip(found, sizes, strict=True)
    )
    return Figures(partitions, {name: each.updated for name, each in announced.items() if each is not None})


def _figures(of: Extent, size: int, archive: Announcement | None) -> PartitionFigures:
    archived = None if archive is None else archive.partitions.get(of.stream.index)
    through = None if archived is None else archived.through
    waiting = None
    if archive is not None:
        waiting = extents.about_from(of, of.start if through is None else max(through, of.start))
    info = of.info
    place = of.stream.topic.name, of.stream.index
    return PartitionFigures(*place, of.start, of.end, info.length, info.added, about(of), size, through, waiting)
