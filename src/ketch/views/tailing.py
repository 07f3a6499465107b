"""The newest records of a topic, look by look: what `tail -f` would show. Questions to Redis alone, bound by bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ketch.configs.topic_checks import LazyDefaults
from ketch.redis.question import Question
from ketch.store.keys import Keyspace
from ketch.store.stream import extents, glances
from ketch.store.stream.extents import Extent
from ketch.store.stream.glances import Glimpse
from ketch.store.stream.ranges import PartitionStream
from ketch.views.records import SHOWN
from ketch.views.topics import named

PARTITIONS_MAX = 1_000  # of a topic that are followed, from the first on


@dataclass(frozen=True, slots=True)
class Seen:
    """What came since the look before.

    Attributes:
        records: with their partitions, in each partition's order.
        cut: whether more came than were asked for; the oldest of them are left out then.
        ends: by partition, for the next look.
    """

    records: list[tuple[int, Glimpse]]
    cut: bool
    ends: dict[int, int]


def ends(keys: Keyspace, topic: str) -> Question[dict[int, int]]:
    """Where each partition ends now; raises ConfigError where there is no such topic."""
    found = yield from _extents(keys, topic)
    return {each.stream.index: each.end for each in found}


def since(keys: Keyspace, topic: str, known: Mapping[int, int], most: int) -> Question[Seen]:
    """The newest records since offsets that are known by partition, `most` of each look.

    Raises:
        ConfigError: the topic is gone.
    """
    found = yield from _extents(keys, topic)
    moved = [each for each in found if each.end > known.get(each.stream.index, each.start)]
    records, cut = list[tuple[int, Glimpse]](), False
    for each in moved:
        index = each.stream.index
        left = max(1, most // len(moved))
        step = yield from glances.backward(each.stream, each.end, each.info.entry_bytes, left, SHOWN)
        begin = known.get(index, each.start)
        fresh = [record for record in reversed(step.found) if record.offset >= begin][-left:]
        cut |= len(fresh) == left and step.next is not None and fresh[0].offset > begin
        records += [(index, record) for record in fresh]
    return Seen(records, cut, {each.stream.index: each.end for each in found})


def _extents(keys: Keyspace, topic: str) -> Question[list[Extent]]:
    known = yield from named(keys, topic, LazyDefaults())
    indexes = range(min(known.partitions, PARTITIONS_MAX))
    return (yield from extents.lean([PartitionStream.of(known, index, keys) for index in indexes], keys))
