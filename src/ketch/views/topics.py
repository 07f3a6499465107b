"""Figures of topics: records and bytes that Redis holds, and whether all is archived. Questions to Redis alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from ketch.errors import ConfigError
from ketch.redis.question import Question
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.stream import extents
from ketch.store.stream.ranges import PartitionStream
from ketch.store.topics import hashes
from ketch.store.topics.topic import Topic
from ketch.views import partitions

ArchiveState = Literal["all", "behind", "no"]


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """What is kept of one topic.

    Attributes:
        records: in Redis, over all partitions.
        bytes: of Redis's memory that they take.
        archived: "no" where the topic has no archive, "behind" where records wait to be archived, else "all".
    """

    records: int
    bytes: int
    archived: ArchiveState


@dataclass(frozen=True, slots=True)
class Totals:
    """The same of several topics.

    Attributes:
        records: in Redis.
        bytes: of Redis's memory that they take.
        archived: how many topics are in each state, those with none included.
    """

    records: int
    bytes: int
    archived: Mapping[ArchiveState, int]


def named(keys: Keyspace, name: str, defaults: Mapping[str, str]) -> Question[Topic]:
    """The topic of this name.

    Args:
        defaults: configs of a topic whose hash does not say.

    Raises:
        ConfigError: there is none.
    """
    (found,) = yield from hashes.lookup(keys, [name], defaults)
    if found is None:
        raise ConfigError(f"There is no topic {name}.")
    return found


def figures(keys: Keyspace, topics: Iterable[tuple[str, int]]) -> Question[dict[str, TopicFigures]]:
    """The figures by topic.

    Args:
        topics: names and numbers of partitions.

    Raises:
        ConfigError: a topic is not in this Redis.
    """
    by_topic = {name: [(name, index) for index in range(count)] for name, count in topics}
    streams = yield from partitions.streams(keys, chain.from_iterable(by_topic.values()))
    held = yield from partitions.held_in(streams)
    archives = yield from partitions.archived_of(keys, streams)
    begun = {name for (name, _), archive in archives.items() if archive.through is not None}
    ends = yield from _ends(keys, [stream for (name, _), stream in streams.items() if name in begun])
    return {
        name: TopicFigures(
            sum(held[partition].records for partition in own),
            sum(held[partition].bytes for partition in own),
            archive_state((archives[partition].through, ends.get(partition, 0)) for partition in own),
        )
        for name, own in by_topic.items()
    }


def _ends(keys: Keyspace, streams: list[PartitionStream]) -> Question[dict[TopicPartition, int]]:
    """High watermarks. That of a partition with no stream left is below what is archived of it."""
    found = yield from extents.extents(streams, keys)
    return {(each.stream.topic.name, each.stream.index): each.end for each in found}


def archive_state(of: Iterable[tuple[int | None, int]]) -> ArchiveState:
    """A topic's state, see `TopicFigures`.

    Args:
        of: of each partition through which offset it is archived, None where nothing is, and its end. The end counts
            only where a partition of the topic is archived.
    """
    places = list(of)
    if all(through is None for through, _ in places):
        return "no"
    return "all" if all((through or 0) >= end for through, end in places) else "behind"


def totals(of: Mapping[str, TopicFigures]) -> Totals:
    """The figures of topics, added up."""
    states = Counter(topic.archived for topic in of.values())
    return Totals(
        sum(topic.records for topic in of.values()),
        sum(topic.bytes for topic in of.values()),
        {"all": states["all"], "behind": states["behind"], "no": states["no"]},
    )
