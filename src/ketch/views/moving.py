"""How topics and groups move: rates between two looks at Redis, for `ketch top`. A look asks Redis alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from ketch.configs.topic_checks import LazyDefaults
from ketch.errors import ConfigError
from ketch.redis.question import Question
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.stream import counting
from ketch.store.stream.ranges import PartitionStream
from ketch.store.topics import hashes
from ketch.views import figures, groups, standing
from ketch.views.figures import PartitionFigures
from ketch.views.groups import GroupPage

PARTITIONS_MAX = 2_000  # of topics, and as many of groups
_COUNT_MAX = 100_000  # records that came between two looks and are counted
_PIECE = 100


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one time.

    Attributes:
        at: s of the monotonic clock.
        came: records that came since the look before, by partition; none for the first look.
        left_out: partitions for which there was no room.
    """

    at: float
    partitions: Mapping[TopicPartition, PartitionFigures]
    groups: tuple[GroupPage, ...]
    came: Mapping[TopicPartition, int]
    left_out: int


@dataclass(frozen=True, slots=True)
class TopicRate:
    """A topic: records that come in per second, those that groups commit per second, and what Redis holds of it.

    Attributes:
        records, bytes: in Redis, about.
    """

    topic: str
    partitions: int
    in_per_s: float
    out_per_s: float
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class GroupRate:
    """A group: its lag in records, the age of the oldest of them in s, and what it commits per second.

    Attributes:
        lag, age: None where nothing is committed; `age` also where there is no lag.
    """

    group: str
    state: str
    members: int
    lag: int | None
    age: float | None
    out_per_s: float


def look(keys: Keyspace, before: Look | None = None) -> Question[Look]:
    """Topics and groups as they are now.

    Args:
        before: from which rates are to be told.
    """
    names = yield from hashes.names(keys)
    topics = [each for each in (yield from hashes.lookup(keys, names, LazyDefaults())) if each is not None]
    streams = [PartitionStream.of(topic, n, keys) for topic in topics for n in range(topic.partitions)]
    at, found, came = time.monotonic(), dict[TopicPartition, PartitionFigures](), dict[TopicPartition, int]()
    for first in range(0, min(len(streams), PARTITIONS_MAX), _PIECE):
        some = streams[first : first + _PIECE]
        known = (yield from figures.figures(keys, some)).partitions
        for stream, each in zip(some, known, strict=True):
            place = each.topic, each.partition
            found[place] = each
            old = None if before is None else before.partitions.get(place)
            if old is not None:
                came[place] = yield from _came(stream, old, each)
    pages = yield from _groups(keys)
    return Look(at, found, pages, came, max(0, len(streams) - PARTITIONS_MAX))


def _came(stream: PartitionStream, old: PartitionFigures, new: PartitionFigures) -> Question[int]:
    """How many records came between two looks at a partition."""
    if stream.layout.entry_is_record and old.added is not None and new.added is not None:
        return max(0, new.added - old.added)
    if stream.numbering.dense or new.end <= old.end:
        return max(0, new.end - old.end)
    return (yield from counting.count(stream, old.end, new.end, _COUNT_MAX))


def _groups(keys: Keyspace) -> Question[tuple[GroupPage, ...]]:
    room, budget, pages = PARTITIONS_MAX, standing.Budget(estimates=True), []
    for name in (yield from groups.names(keys)):
        try:
            page = yield from groups.page(keys, name, 0, max(0, room), budget)
        except ConfigError:  # it is gone
            continue
        room -= len(page.partitions)
        pages.append(page)
    return tuple(pages)


def rates(before: Look, now: Look) -> tuple[list[TopicRate], list[GroupRate]]:
    """What has moved between two looks, the second of which was told of the first."""
    passed = max(now.at - before.at, 1e-3)
    lags = {(page.name, each.topic, each.partition): each.lag for page in before.groups for each in page.partitions}
    out: dict[str, float] = {}
    found = []
    for page in now.groups:
        committed = 0
        for each in page.partitions:
            lag = lags.get((page.name, each.topic, each.partition))
            if lag is not None and each.lag is not None:
                taken = max(0, lag + now.came.get((each.topic, each.partition), 0) - each.lag)
                out[each.topic] = out.get(each.topic, 0.0) + taken / passed
                committed += taken
        known = [each.lag for each in page.partitions if each.lag is not None]
        ages = [each.age for each in page.partitions if each.age is not None]
        lag = sum(known) if known else None
        found.append(
            GroupRate(page.name, page.state, len(page.members), lag, max(ages, default=None), committed / passed)
        )
    return _topics(now, passed, out), found


def _topics(now: Look, passed: float, out: Mapping[str, float]) -> list[TopicRate]:
    by_topic: dict[str, list[PartitionFigures]] = {}
    for each in now.partitions.values():
        by_topic.setdefault(each.topic, []).append(each)
    return [
        TopicRate(
            name,
            len(own),
            sum(now.came.get((name, each.partition), 0) for each in own) / passed,
            out.get(name, 0.0),
            sum(each.records for each in own),
            sum(each.bytes for each in own),
        )
        for name, own in by_topic.items()
    ]
