"""The hash `{ks}:archive:{topic}`: what the archive job announces of a topic's table, and what was deleted since.

This module alone knows its fields (docs/redis-layout.md). The archive job writes them (`announce`), and the broker
raises the start of a partition when records are deleted (`raise_start`). Broker, Spark and the command line read them
(`read`). The table's own properties are the truth (`lake.table`): the hash can be lost and is announced again. A number
that cannot be read counts as 0, so nothing is taken for archived that is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ketch.redis.question import Question, Word, ask, call, calls, keyed
from ketch.store import scripts
from ketch.store.keys import Keyspace
from ketch.store.topics.handwritten import number_or, read_id

_START, _THROUGH, _DELETED = "start:", "through:", "deleted:"  # each followed by the partition's number


@dataclass(frozen=True, slots=True)
class ArchivedRange:
    """The offsets of one partition that the archive answers for: from `start` up to `through`, exclusive.

    `start` is not below `through` where it holds nothing any more.
    """

    start: int
    through: int


@dataclass(frozen=True, slots=True)
class Announcement:
    """What is known of a topic's archive.

    Attributes:
        table: its name in the catalog.
        metadata: where its metadata file is, a URL.
        manifests: where the manifest list of its current snapshot is, empty where it has no snapshot; None where the
            announcement does not say.
        updated: ms; of two announcements the one with the larger number is the later.
        records: how many the table holds.
        partitions: by number. As read, `start` takes deletions into account; as announced, it is the table's.
        deleted: offsets below which records of a partition were deleted since.
    """

    table: str
    metadata: str
    manifests: str | None
    updated: int
    records: int
    partitions: Mapping[int, ArchivedRange]
    deleted: Mapping[int, int] = field(default_factory=dict)


def read(keys: Keyspace, topic: str, topic_id: str) -> Question[Announcement | None]:
    """What is announced of a topic; None where nothing is, or where it is of an earlier topic of that name."""
    (found,) = yield from read_all(keys, [(topic, topic_id)])
    return found


def read_all(keys: Keyspace, topics: Sequence[tuple[str, str]]) -> Question[list[Announcement | None]]:
    """As `read`, of many topics, each given with its id, in one round trip."""
    replies = yield from calls([keyed("HGETALL", keys.archive(name)) for name, _ in topics])
    return [_parse(name, topic_id, reply) for reply, (name, topic_id) in zip(replies, topics, strict=True)]


def existing(keys: Keyspace, topics: Sequence[str]) -> Question[list[str]]:
    """Those of the topics of which anything is announced, or was deleted; in one round trip."""
    sizes = yield from calls([keyed("HLEN", keys.archive(name)) for name in topics])
    return [name for name, size in zip(topics, sizes, strict=True) if size]


def announce(keys: Keyspace, topic: str, topic_id: str, what: Announcement) -> Question[bool]:
    """Announces what a topic's table holds. An announcement never replaces a later one.

    Returns:
        Whether it did: not for a topic that was deleted, or when a later announcement is there.
    """
    known = yield from call(keys.topic(topic), "HGET", keys.topic(topic), "id")
    if known is None or not _is_id(known, topic_id):
        return False
    fields: list[Word] = ["table", what.table, "metadata", what.metadata, "manifests", what.manifests or ""]
    fields += ["records", what.records]
    for partition, held in what.partitions.items():
        fields += [f"{_START}{partition}", held.start, f"{_THROUGH}{partition}", held.through]
    done = yield from ask(scripts.announce_archive(keys.archive(topic), what.updated, topic_id, *fields))
    return bool(done)


def raise_start(keys: Keyspace, topic: str, partition: int, offset: int) -> Question[bool]:
    """Notes that records of a partition below `offset` were deleted; False where the topic has no archive."""
    done = yield from ask(scripts.raise_archive_start(keys.archive(topic), f"{_DELETED}{partition}", offset))
    return bool(done)


def forget(keys: Keyspace, topic: str) -> Question[None]:
    """Takes back what was announced: brokers look for nothing in the archive from then on."""
    yield from call(keys.archive(topic), "DEL", keys.archive(topic))


def _is_id(text: bytes, topic_id: str) -> bool:
    """Whether this is the topic's id, in whatever form its hash has it."""
    try:
        return str(read_id(text.decode(errors="replace"))) == topic_id
    except ValueError:
        return False


def _parse(topic: str, topic_id: str, reply: list[bytes]) -> Announcement | None:
    words = (word.decode(errors="replace") for word in reply)
    fields = dict(zip(words, words, strict=True))
    if "metadata" not in fields or fields.get("topic-id", topic_id) != topic_id:
        return None

    def number(name: str) -> int:
        return number_or(0, f"archive of {topic}: {name}", fields.get(name))

    def by_partition(prefix: str) -> dict[int, int]:
        names = (name for name in fields if name.startswith(prefix) and name[len(prefix) :].isdecimal())
        return {int(name[len(prefix) :]): number(name) for name in names}

    starts, deleted = by_partition(_START), by_partition(_DELETED)
    return Announcement(
        table=fields.get("table", ""),
        metadata=fields["metadata"],
        manifests=fields.get("manifests"),
        updated=number("updated"),
        records=number("records"),
        partitions={
            partition: ArchivedRange(max(starts.get(partition, 0), deleted.get(partition, 0)), through)
            for partition, through in by_partition(_THROUGH).items()
        },
        deleted=deleted,
    )
