"""Topics page by page: which there are, and the figures of those on a page, in a few round trips. Questions to Redis
alone.

`views.topics` counts exactly, a partition at a time. A list of thousands of topics cannot wait for that: here sizes are
what Redis guesses from a few nodes, and records of the batch layout are estimated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ketch.configs.topic_checks import LazyDefaults
from ketch.configs.topic_table import CONFIGS
from ketch.redis.question import Question
from ketch.store.keys import Keyspace
from ketch.store.stream import counting, extents, ranges
from ketch.store.stream.extents import Extent
from ketch.store.stream.ranges import PartitionStream
from ketch.store.topics import archives, hashes
from ketch.store.topics.archives import Announcement
from ketch.store.topics.topic import Topic, shown
from ketch.views.topics import ArchiveState, archive_state, named

PARTITIONS_MAX = 2_000  # of a page whose figures are looked up
_BUSY_LIST, _BUSY_PAGE = 16 << 20, 128 << 20  # bytes of large entries that Redis reads for a list, and for one topic
_HEAVY = 1 << 20  # bytes of an entry
_COUNTED_MAX = 1_000  # batches of one topic's page whose records are counted rather than estimated


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic in a list.

    Attributes:
        layout: "record" or "batch".
        ids: "time" or "dense".
        records: in Redis, about; None where the page has too many partitions to look them all up, or batches so large
            that it would keep Redis busy.
        bytes: of Redis's memory that they take, about; None where there are too many partitions.
        archived: as `views.topics.TopicFigures.archived`; None as `records`, also where records are large.
    """

    name: str
    partitions: int
    layout: str
    ids: str
    policy: str
    records: int | None
    bytes: int | None
    archived: ArchiveState | None


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition of a topic.

    Attributes:
        start, end: of the log in Redis, offsets; `end` exclusive. None, as `records`, where entries are so large that
            to look would keep Redis busy.
        first_id, last_id: of entries; empty where there are none.
        records: in Redis; `exact` says whether they were counted.
        bytes: of Redis's memory, about.
        through: the offset up to which it is archived; None where nothing is.
    """

    index: int
    start: int | None
    end: int | None
    first_id: str
    last_id: str
    records: int | None
    exact: bool
    bytes: int
    through: int | None


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """A config of a topic: its value, what it is by default, and what it says; `own`: the topic's hash has it."""

    name: str
    value: str
    default: str
    own: bool
    help: str
    idle: str


@dataclass(frozen=True, slots=True)
class TopicPage:
    """A topic, and some of its partitions.

    Attributes:
        heavy: entries are so large that the page should not be read again and again.
    """

    name: str
    id: str
    partitions: int
    created: int
    layout: str
    ids: str
    bits: int
    compression_seen: str
    rows: tuple[PartitionRow, ...]
    configs: tuple[ConfigRow, ...]
    archive: Announcement | None
    heavy: bool


def names(keys: Keyspace, search: str = "") -> Question[list[str]]:
    """The topics whose names contain all words of `search`, in any case; sorted."""
    return matching((yield from hashes.names(keys)), search)


def matching(of: Iterable[str], search: str) -> list[str]:
    """Those of some names that contain all words of `search`, in any case."""
    words = search.lower().split()
    return [name for name in of if all(word in name.lower() for word in words)]


def rows(keys: Keyspace, of: Sequence[str]) -> Question[list[TopicRow]]:
    """The figures of topics; those that are gone are left out."""
    topics = [each for each in (yield from hashes.lookup(keys, of, LazyDefaults())) if each is not None]
    chosen, left = [], PARTITIONS_MAX
    for topic in topics:
        left -= topic.partitions
        if left < 0:
            break
        chosen.append(topic)
    streams = [PartitionStream.of(topic, n, keys) for topic in chosen for n in range(topic.partitions)]
    found = yield from extents.bounded(streams, keys, _BUSY_LIST)
    sizes = yield from ranges.sizes([stream.key for stream in streams])
    lengths = yield from _lengths(streams, found)
    known = yield from archives.read_all(keys, [(topic.name, str(topic.id)) for topic in chosen])
    by_topic: dict[str, list[tuple[Extent | None, int]]] = {topic.name: [] for topic in chosen}
    for stream, extent, size in zip(streams, found, sizes, strict=True):
        by_topic[stream.topic.name].append((extent, size))
    archive = {topic.name: each for topic, each in zip(chosen, known, strict=True)}
    return [_row(topic, by_topic.get(topic.name), archive.get(topic.name), lengths.get(topic.name)) for topic in topics]


def _lengths(streams: Sequence[PartitionStream], found: Sequence[Extent | None]) -> Question[dict[str, int]]:
    """The records of topics with partitions that were too much to look at, where an entry is a record."""
    heavy = {each.topic.name for each, extent in zip(streams, found, strict=True) if extent is None}
    asked = [each for each in streams if each.topic.name in heavy and each.layout.entry_is_record]
    lengths: dict[str, int] = {}
    for stream, length in zip(asked, (yield from ranges.lengths(asked)), strict=True):
        lengths[stream.topic.name] = lengths.get(stream.topic.name, 0) + length
    return lengths


def _row(
    topic: Topic, of: list[tuple[Extent | None, int]] | None, archive: Announcement | None, length: int | None
) -> TopicRow:
    configs = topic.configs
    kind = (configs["storage.layout"], configs["offset.ids"], configs["cleanup.policy"])
    if of is None:
        return TopicRow(topic.name, topic.partitions, *kind, None, None, None)
    size, known = sum(size for _, size in of), [extent for extent, _ in of if extent is not None]
    if len(known) < len(of):
        return TopicRow(topic.name, topic.partitions, *kind, length, size, None)
    records = sum(about(extent) for extent in known)
    through = _through(archive)
    state = archive_state((through.get(extent.stream.index), extent.end) for extent in known)
    return TopicRow(topic.name, topic.partitions, *kind, records, size, state)


def _through(archive: Announcement | None) -> dict[int, int]:
    """By partition, the offset up to which it is archived."""
    return {} if archive is None else {n: each.through for n, each in archive.partitions.items()}


def about(extent: Extent) -> int:
    """About how many records Redis holds of a partition; exact where an entry is a record."""
    info, stream = extent.info, extent.stream
    if stream.layout.entry_is_record:
        return info.length
    first = stream.layout.start(info, stream.numbering)
    return extents.about_from(extent, extent.start if first is None else first)


def topic_page(keys: Keyspace, name: str, first: int, count: int, defaults: Mapping[str, str]) -> Question[TopicPage]:
    """A topic with `count` of its partitions from `first` on.

    Args:
        defaults: of topic configs, as this broker has them.

    Raises:
        ConfigError: there is no such topic.
    """
    topic = yield from named(keys, name, defaults)
    indexes = range(max(0, first), min(topic.partitions, max(0, first) + count))
    streams = [PartitionStream.of(topic, index, keys) for index in indexes]
    found = yield from extents.bounded(streams, keys, _BUSY_PAGE)
    sizes = yield from ranges.sizes([stream.key for stream in streams])
    archive = yield from archives.read(keys, name, str(topic.id))
    known = [each for each in found if each is not None]
    counts = dict(zip((each.stream.index for each in known), (yield from _counted(known)), strict=True))
    through = _through(archive)
    partitions = tuple(
        _partition(stream.index, each, size, counts.get(stream.index), through)
        for stream, each, size in zip(streams, found, sizes, strict=True)
    )
    return TopicPage(
        name,
        shown(topic.id),
        topic.partitions,
        topic.created,
        topic.configs["storage.layout"],
        topic.configs["offset.ids"],
        topic.numbering.bits,
        topic.compression_seen,
        partitions,
        _configs(topic, defaults),
        archive,
        any(each is None or each.info.entry_bytes > _HEAVY for each in found),
    )


def _counted(of: Sequence[Extent]) -> Question[list[int | None]]:
    """How many records there are, where that is known or soon counted; None where it is estimated."""
    found: list[int | None] = []
    left = _COUNTED_MAX
    for each in of:
        if each.stream.layout.entry_is_record:
            found.append(each.info.length)
        elif each.stream.numbering.dense and not each.stream.topic.compacts:
            found.append(about(each))
        elif each.info.length <= left:
            left -= each.info.length
            found.append((yield from counting.count(each.stream, each.start)))
        else:
            found.append(None)
    return found


def _partition(
    index: int, of: Extent | None, size: int, counted: int | None, through: Mapping[int, int]
) -> PartitionRow:
    if of is None:
        return PartitionRow(index, None, None, "", "", None, False, size, through.get(index))
    info, stream = of.info, of.stream
    id_of = stream.numbering.format_id
    return PartitionRow(
        stream.index,
        of.start,
        of.end,
        "" if info.first is None else id_of(*info.first).decode(),
        id_of(*info.last).decode() if info.exists else "",
        about(of) if counted is None else counted,
        counted is not None,
        size,
        through.get(stream.index),
    )


def _configs(topic: Topic, defaults: Mapping[str, str]) -> tuple[ConfigRow, ...]:
    own = topic.configs
    return tuple(
        ConfigRow(name, own[name], defaults[name], own[name] != defaults[name], key.documentation, key.idle)
        for name, key in sorted(CONFIGS.items())
        if name in own
    )
