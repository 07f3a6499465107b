"""Streaming queries of Spark, by what they leave in Redis beside the partitions that they write to or read from.

Of a query that writes, each task keeps the state of an idempotent producer, named `spark-<query>-<task>`
(`spark.appender`). Of one that reads there is how far its tasks have read (`spark.progress`). Questions to Redis alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ketch.configs.topic_checks import LazyDefaults
from ketch.redis.question import Question
from ketch.store.append import producers
from ketch.store.append.producers import READER, StoredProducer
from ketch.store.keys import Keyspace
from ketch.store.stream import extents
from ketch.store.stream.ranges import PartitionStream
from ketch.store.topics import hashes
from ketch.views import archives, topics

PARTITIONS_MAX = 2_000
_WRITER = re.compile(r"spark-(.+)-(\d+)")


@dataclass(frozen=True, slots=True)
class Writing:
    """A query that writes to a topic.

    Attributes:
        id: of the streaming query.
        partitions: to which it has written.
        tasks: how many of its tasks have written, over all partitions.
        batch: the newest micro-batch.
        updated: ms, when that was written.
    """

    id: str
    topic: str
    partitions: int
    tasks: int
    batch: int
    updated: int


@dataclass(frozen=True, slots=True)
class Reading:
    """A query that reads from a topic.

    Attributes:
        id: of the streaming query.
        partitions: of which it has read something, of `of`, which are all of the topic.
        batch: the newest micro-batch of which a task has read its records.
        updated: ms, when it had.
        lag: how many records lie behind what was read of these partitions.
        exact: whether that was counted rather than estimated.
    """

    id: str
    topic: str
    partitions: int
    of: int
    batch: int
    updated: int
    lag: int
    exact: bool


@dataclass(frozen=True, slots=True)
class ReadPartition:
    """How far a query has read one partition.

    Attributes:
        through: the offset behind what was read.
        end: of the log; the last stable offset.
        lag, exact, batch, updated: as those of `Reading`.
    """

    index: int
    through: int
    end: int
    lag: int
    exact: bool
    batch: int
    updated: int


@dataclass(frozen=True, slots=True)
class Queries:
    """The queries of some topics, each kind by id and topic.

    Attributes:
        left_out: partitions of these topics that were not looked at.
    """

    writing: tuple[Writing, ...]
    reading: tuple[Reading, ...]
    left_out: int


def queries(keys: Keyspace, names: Sequence[str]) -> Question[Queries]:
    """The queries that have written to these topics or read them, of `PARTITIONS_MAX` partitions at most."""
    found = [each for each in (yield from hashes.lookup(keys, names, LazyDefaults())) if each is not None]
    every = [PartitionStream.of(topic, n, keys) for topic in found for n in range(topic.partitions)]
    streams = every[:PARTITIONS_MAX]
    known = yield from producers.some_named([keys.producers(stream.key) for stream in streams], "spark-")
    writers: dict[tuple[str, str], list[tuple[int, StoredProducer]]] = {}
    readers: dict[tuple[str, str], list[tuple[PartitionStream, StoredProducer]]] = {}
    for stream, states in zip(streams, known, strict=True):
        for name, state in states.items():
            if name.startswith(READER):
                readers.setdefault((name.removeprefix(READER), stream.topic.name), []).append((stream, state))
            elif (match := _WRITER.fullmatch(name)) is not None:
                writers.setdefault((match[1], stream.topic.name), []).append((stream.index, state))
    read = iter((yield from _partitions(keys, [each for own in readers.values() for each in own])))
    by_reader = {key: [next(read) for _ in own] for key, own in readers.items()}
    partitions = {topic.name: topic.partitions for topic in found}
    return Queries(
        tuple(_writing(*key, own) for key, own in sorted(writers.items())),
        tuple(_reading(*key, partitions[key[1]], own) for key, own in sorted(by_reader.items())),
        len(every) - len(streams),
    )


def reading(keys: Keyspace, id: str, topic: str) -> Question[list[ReadPartition]]:
    """How far a query has read each partition of a topic; those that it has read nothing of are left out.

    Raises:
        ConfigError: there is no such topic.
    """
    found = yield from topics.named(keys, topic, LazyDefaults())
    streams = [PartitionStream.of(found, n, keys) for n in range(found.partitions)]
    states = yield from producers.of_reader([keys.producers(stream.key) for stream in streams], id)
    known = [(stream, state) for stream, state in zip(streams, states, strict=True) if state is not None]
    return list((yield from _partitions(keys, known)))


def _partitions(keys: Keyspace, of: Sequence[tuple[PartitionStream, StoredProducer]]) -> Question[list[ReadPartition]]:
    ends = yield from archives.ends([stream for stream, _ in of], keys)
    found = []
    for (stream, state), extent in zip(of, ends, strict=True):
        through = state.last_sequence
        lag = extents.about_from(extent, max(through, extent.start))
        exact = lag == 0 or (stream.numbering.dense and not stream.topic.compacts)
        found.append(ReadPartition(stream.index, through, extent.end, lag, exact, state.epoch, state.updated))
    return found


def _writing(id: str, topic: str, of: Sequence[tuple[int, StoredProducer]]) -> Writing:
    newest = max((state for _, state in of), key=lambda state: (state.epoch, state.updated))
    partitions = len({index for index, _ in of})
    return Writing(id, topic, partitions, len(of), newest.epoch, max(state.updated for _, state in of))


def _reading(id: str, topic: str, partitions: int, of: Sequence[ReadPartition]) -> Reading:
    batch, updated = max(each.batch for each in of), max(each.updated for each in of)
    lag, exact = sum(each.lag for each in of), all(each.exact for each in of)
    return Reading(id, topic, len(of), partitions, batch, updated, lag, exact)
