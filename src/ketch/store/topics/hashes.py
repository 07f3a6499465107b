"""Questions about topics in Redis: which topics exist, and each one's hash.

A topic is created as hash (HSETNX on `id` decides a race), id map, then the set, which is the moment it exists. It is
deleted in reverse, streams between. A broker that dies on the way leaves a hash that no set names: the next creation of
that name purges it. No two of these keys lie in one slot of a cluster: the order of writes is all that makes it safe.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ketch.clock import now_ms
from ketch.configs.topic_table import CONFIGS
from ketch.errors import TopicExists, UnknownTopicOrPartition
from ketch.redis.question import Command, Question, ask, call, calls, command, keyed
from ketch.redis.resp import checked, parse
from ketch.store import scripts
from ketch.store.keys import Keyspace
from ketch.store.layouts.layout import Payload
from ketch.store.topics.handwritten import complain
from ketch.store.topics.topic import Topic, parse_topic, shown

_TO_HASH = {"uncompressed": "none"}  # the layout's word for compression.type=uncompressed
_ABANDONED_MS = 5_000  # a creation that takes longer has died on the way


class Created(enum.Enum):
    """What became of an attempt to create a topic."""

    DONE = enum.auto()
    WAIT = enum.auto()  # another broker is creating it: to be tried again
    REMAINS = enum.auto()  # a creation or deletion was cut off: to be tried again after `purge`


def lookup(keys: Keyspace, names: Sequence[str], defaults: Mapping[str, str]) -> Question[list[Topic | None]]:
    """The topics with these names; None for each that does not exist or whose hash is damaged.

    Args:
        defaults: configs of a topic whose hash does not say.
    """
    # Which are listed comes first: a hash that is read before that may be none yet, or that of a creation that was
    # cut off, whose name another topic has taken when the list is read.
    listed = yield from calls([keyed("SISMEMBER", keys.topics, name) for name in names])
    there = [name for name, is_listed in zip(names, listed, strict=True) if is_listed]
    replies = (yield [keyed("HGETALL", keys.topic(name)) for name in there]) if there else []
    found = {name: _topic(name, reply, keys, defaults) for name, reply in zip(there, replies, strict=True)}
    return [found.get(name) for name in names]


def _topic(name: str, reply: bytes, keys: Keyspace, defaults: Mapping[str, str]) -> Topic | None:
    if reply.startswith(b"-WRONGTYPE"):
        complain(f"topic {name}: {keys.topic(name).decode()} is no hash")
        return None
    return parse_topic(name, _words(checked(parse(reply))), keys, defaults)


def _words(reply: list[bytes] | dict[bytes, bytes]) -> list[bytes]:
    """The reply of HGETALL as RESP2 has it; a connection with tracking talks RESP3."""
    return [word for pair in reply.items() for word in pair] if isinstance(reply, dict) else reply


def names(keys: Keyspace) -> Question[list[str]]:
    """Every topic's name, sorted."""
    found = yield from call(keys.topics, "SMEMBERS", keys.topics)
    return sorted(name.decode() for name in found)


def count(keys: Keyspace) -> Question[int]:
    """How many topics there are."""
    found: int = yield from call(keys.topics, "SCARD", keys.topics)
    return found


def name_of(keys: Keyspace, topic_id: uuid.UUID) -> Question[str | None]:
    """The name of the topic with this id, written in either form; None where there is none."""
    found: bytes | None = yield from call(keys.topic_ids, "HGET", keys.topic_ids, str(topic_id))
    if found is None:
        found = yield from call(keys.topic_ids, "HGET", keys.topic_ids, shown(topic_id))
    return None if found is None else found.decode()


def create(keys: Keyspace, name: str, partitions: int, configs: Mapping[str, str]) -> Question[Created]:
    """Makes a topic.

    Args:
        configs: those that the hash is to hold, by Kafka's names.

    Raises:
        TopicExists: it is there already.
    """
    topic_id = str(uuid.uuid4())
    fields: list[str | int] = ["id", topic_id, "name", name, "partitions", partitions, "created", now_ms()]
    for config, value in configs.items():
        fields += [CONFIGS[config].field, _in_hash(value)]
    if not (yield from ask(scripts.create_topic(keys.topic(name), *fields))):
        return (yield from _others_creation(keys, name))
    yield from call(keys.topic_ids, "HSET", keys.topic_ids, topic_id, name)
    yield from call(keys.topics, "SADD", keys.topics, name)
    return Created.DONE


def _others_creation(keys: Keyspace, name: str) -> Question[Created]:
    """The hash is there already; raises TopicExists if the topic is."""
    if (yield from call(keys.topics, "SISMEMBER", keys.topics, name)):
        raise TopicExists(f"Topic '{name}' already exists.")
    created = yield from call(keys.topic(name), "HGET", keys.topic(name), "created")
    abandoned = created is None or now_ms() - int(created) > _ABANDONED_MS
    return Created.REMAINS if abandoned else Created.WAIT


def alter(keys: Keyspace, topic: Topic, configs: Mapping[str, str | None]) -> Question[None]:
    """Changes configs; None stands for the broker's default.

    Raises:
        UnknownTopicOrPartition: the topic is gone, or another one has its name.
    """
    fields: list[str] = []
    for name, value in configs.items():
        fields += [CONFIGS[name].field, "" if value is None else _in_hash(value)]
    yield from _change(topic, scripts.alter_topic(keys.topic(topic.name), topic.hash_id, *fields))


def grow(keys: Keyspace, topic: Topic, partitions: int) -> Question[bool]:
    """Gives a topic that many partitions; False where it has as many already. Raises as `alter`."""
    changed = yield from _change(topic, scripts.grow_topic(keys.topic(topic.name), topic.hash_id, partitions))
    return changed == 1


def _change(topic: Topic, change: Command) -> Question[int]:
    changed: int = yield from ask(change)
    if not changed:
        raise UnknownTopicOrPartition(f"topic {topic.name} was deleted")
    return changed


def note(keys: Keyspace, topic: Topic, field: str, value: str | int) -> Question[None]:
    """Writes a field that Ketch itself keeps in the hash of a topic; nothing where the topic is gone."""
    yield from ask(scripts.note_topic(keys.topic(topic.name), topic.hash_id, field, value))


def raise_bounds(keys: Keyspace, topic: Topic, batch: Payload, latest: int, now: int) -> Question[Topic]:
    """Writes the bounds that a batch exceeds, and gives the topic with them. To be asked before the batch is sent: a
    reader that finds its records has to find the bounds, too.

    A topic's records exceed them a few times in its life; else this asks nothing. The bounds lie in another slot than
    the records.

    Args:
        latest, now: see `Topic.notes`.
    """
    raised = topic.notes(batch, latest, now)
    if not raised:
        return topic
    key = keys.topic(topic.name)
    yield from calls([scripts.note_topic(key, topic.hash_id, field, value) for field, value in raised.items()])
    return replace(
        topic,
        timestamp_lead=raised.get("timestampLead", topic.timestamp_lead),
        largest_record=raised.get("largestRecord", topic.largest_record),
    )


def unlist(keys: Keyspace, name: str) -> Question[None]:
    """The first step of a deletion: the topic exists no more."""
    yield from call(keys.topics, "SREM", keys.topics, name)


def purge(keys: Keyspace, name: str, commits: Iterable[bytes]) -> Question[None]:
    """Deletes what is kept of a topic that is not listed: records, producer states, transactions, archive,
    commits, id and hash.

    Args:
        commits: keys of committed offsets on its streams, see `scan`.
    """
    hash_ = keys.topic(name)
    topic_id, partitions = yield from call(hash_, "HMGET", hash_, "id", "partitions")
    streams = [keys.stream(name, index) for index in range(int(partitions or 0))]
    kinds = (keys.producers, keys.transactions, keys.aborted, keys.positions, keys.compaction, keys.shares)
    beside = [kind(stream) for stream in streams for kind in kinds]
    beside += [key for commit in commits for key in (commit, keys.commit_term(commit))]
    gone = [*streams, *beside, keys.archive(name), keys.legacy_brokers(name)]
    yield from calls([keyed("UNLINK", key) for key in gone])  # one key each: a cluster has slots
    if topic_id is not None:
        yield from call(keys.topic_ids, "HDEL", keys.topic_ids, topic_id)
    yield from call(hash_, "DEL", hash_)


def scan(pattern: bytes) -> Question[list[bytes]]:
    """The keys that match a glob pattern, on one node: a driver asks every node that it has (`ask_each`)."""
    found: list[bytes] = []
    cursor: Any = b"0"
    while True:
        (reply,) = yield from calls([command(None, "SCAN", cursor, "MATCH", pattern, "COUNT", 1000)])
        cursor, keys = reply
        found += keys
        if cursor == b"0":
            return found


def _in_hash(value: str) -> str:
    return _TO_HASH.get(value, value)
