"""Streaming queries of Spark that write, and the archive job, by what they leave in Redis. Questions to Redis alone.

Of a query that writes each task keeps the state of an idempotent producer beside the partition it writes to, named
`spark-<query>-<task>` (`spark.appender`). A query that reads leaves nothing in Redis: its position is in its
checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ketch.configs.topic_checks import LazyDefaults
from ketch.redis.question import Question
from ketch.store.append import producers
from ketch.store.append.producers import StoredProducer
from ketch.store.keys import Keyspace
from ketch.store.topics import archives, hashes
from ketch.store.topics.archives import Announcement

PARTITIONS_MAX = 2_000
_NAME = re.compile(r"spark-(.+)-(\d+)")


@dataclass(frozen=True, slots=True)
class SparkQuery:
    """A query that writes to a topic.

    Attributes:
        id: of the streaming query.
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
class ArchivedTopic:
    """A topic with an archive: what the job announced last."""

    name: str
    partitions: int
    archive: Announcement


def spark_queries(keys: Keyspace, names: Sequence[str]) -> Question[list[SparkQuery]]:
    """The queries that have written to these topics, of `PARTITIONS_MAX` partitions at most."""
    topics = [each for each in (yield from hashes.lookup(keys, names, LazyDefaults())) if each is not None]
    places = [(topic.name, n) for topic in topics for n in range(topic.partitions)][:PARTITIONS_MAX]
    writers = yield from producers.some_named([keys.producers(keys.stream(*place)) for place in places], "spark-")
    found: dict[tuple[str, str], list[tuple[int, StoredProducer]]] = {}
    for (topic, index), states in zip(places, writers, strict=True):
        for name, state in states.items():
            match = _NAME.fullmatch(name)
            if match is not None:
                found.setdefault((match[1], topic), []).append((index, state))
    return [_query(id, topic, states) for (id, topic), states in sorted(found.items())]


def _query(id: str, topic: str, states: Sequence[tuple[int, StoredProducer]]) -> SparkQuery:
    newest = max((state for _, state in states), key=lambda state: (state.epoch, state.updated))
    partitions = len({index for index, _ in states})
    return SparkQuery(id, topic, partitions, len(states), newest.epoch, max(state.updated for _, state in states))


def archived(keys: Keyspace, names: Sequence[str]) -> Question[list[str]]:
    """Those of the topics of which something was archived."""
    return (yield from archives.existing(keys, names))


def archives_of(keys: Keyspace, names: Sequence[str]) -> Question[list[ArchivedTopic]]:
    """What is announced of these topics."""
    topics = [each for each in (yield from hashes.lookup(keys, names, LazyDefaults())) if each is not None]
    found = yield from archives.read_all(keys, [(topic.name, str(topic.id)) for topic in topics])
    return [
        ArchivedTopic(topic.name, topic.partitions, each)
        for topic, each in zip(topics, found, strict=True)
        if each is not None
    ]
