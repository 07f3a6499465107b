"""Questions about committed offsets in Redis.

A committed offset is the plain string `{ks}:commit:{stream}:{group}` and nothing else decides where a consumer goes on;
what Kafka keeps beside it (leader epoch, time, metadata) is in the hash `{ks}:offsets:{group}`, field
`topic:partition`, and counts only while it names the same offset. What a coordinator writes names its term and raises
Overtaken where a commit has a higher one, see `store.coordination.terms`. The hash has no term: it is written in the
same round trip as the commits, and again, as it was before, where one of them is refused.

Offset and hash lie in different slots, so either may be written, or read, first. Between the two writes a reader finds
the new offset with old details or the old offset with new ones. Details of another offset do not count, so it takes
the offset for one that was set by hand: an offset that was committed, without what lies beside it. If the second write
is lost, that stays so until the next commit. Details without a commit are none; a commit without details is listed
again, as one that was set by hand (`adopt`).
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from ketch.redis.question import Command, Question, call, calls, keyed
from ketch.store.coordination import native
from ketch.store.coordination.terms import Overtaken
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.scripts import remove_commit, store_commit

log = logging.getLogger(__name__)

T = TypeVar("T")
_GROUPS_AT_ONCE = 500  # in one round trip, where all groups are looked at
_COMPLAINTS_MAX = 1000
_complaints: dict[bytes, bytes] = {}  # commit keys whose value is no offset, and that value


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed offset.

    Attributes:
        time: when it was committed, ms since the epoch; 0 where the offset was set by hand.
        expires: when it is to go, ms since the epoch; -1: as `offsets_retention_minutes` says.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    time: int = 0
    expires: int = -1


# -- reading


def committed(
    keys: Keyspace, group: str, partitions: Iterable[TopicPartition]
) -> Question[dict[TopicPartition, Committed]]:
    """The committed offsets of those partitions that have one."""
    asked, beside = list(partitions), keys.offsets(group)
    commands = []
    for partition in asked:
        commands += [keyed("GET", _key(keys, group, partition)), keyed("HGET", beside, _field(partition))]
    replies = yield from calls(commands)
    found = {}
    for partition, offset, details in zip(asked, replies[::2], replies[1::2], strict=True):
        commit = None if offset is None else _read(offset, details)
        if commit is not None:
            found[partition] = commit
        elif offset is not None:
            _complain(_key(keys, group, partition), offset)
    return found


def partitions(keys: Keyspace, group: str) -> Question[list[TopicPartition]]:
    """Every partition that the group has committed for."""
    found = []
    for name in (yield from call(keys.offsets(group), "HKEYS", keys.offsets(group))):
        topic, _, index = name.decode(errors="replace").rpartition(":")
        if index.isdecimal():  # else another Redis client wrote the field
            found.append((topic, int(index)))
    return sorted(found)


# -- writing


def store(keys: Keyspace, group: str, commits: Mapping[TopicPartition, Committed], term: str) -> Question[None]:
    """Stores committed offsets in a term that `groups.hold` gave.

    Raises:
        Overtaken: a commit has a higher term; the others are stored.
    """
    if not commits:
        return
    key, fields = keys.offsets(group), [_field(partition) for partition in commits]
    scripts = [
        store_commit(*_commit_keys(keys, group, partition), term, commit.offset)
        for partition, commit in commits.items()
    ]
    *newer, before, _ = yield from calls([*scripts, keyed("HMGET", key, *fields), _details(key, commits)])
    refused = [field for field, later in zip(fields, newer, strict=True) if later is not None]
    if refused:  # the details of later commits have been overwritten
        known = dict(zip(fields, before, strict=True))
        yield from calls([keyed("HSET", key, field, known[field]) for field in refused if known[field] is not None])
    _check(group, newer)


def describe(keys: Keyspace, group: str, commits: Mapping[TopicPartition, Committed]) -> Question[None]:
    """Stores what lies beside the committed offsets."""
    if commits:
        yield from calls([_details(keys.offsets(group), commits)])


def _details(key: bytes, commits: Mapping[TopicPartition, Committed]) -> Command:
    return keyed("HSET", key, *(word for each, commit in commits.items() for word in (_field(each), _beside(commit))))


def remove(keys: Keyspace, group: str, partitions: Iterable[TopicPartition], term: str) -> Question[None]:
    """Removes committed offsets, with the native groups; raises Overtaken."""
    named = list(partitions)
    yield from forget(keys, group, named, term)
    yield from call(keys.offsets(group), "HDEL", keys.offsets(group), *map(_field, named))


def forget(keys: Keyspace, group: str, partitions: Iterable[TopicPartition], term: str) -> Question[None]:
    """As `remove`, without what lies beside the offsets."""
    named = list(partitions)
    _check(group, (yield from calls([remove_commit(*_commit_keys(keys, group, each), term) for each in named])))
    yield from native.destroy([keys.stream(*each) for each in named], group)


def forget_topic(keys: Keyspace, groups: Iterable[str], topic: str, partitions: int) -> Question[None]:
    """A topic is gone: removes what lies beside these groups' commits on it."""
    fields = [_field((topic, index)) for index in range(partitions)]
    yield from calls([keyed("HDEL", keys.offsets(group), *fields) for group in groups])


# -- commits that another Redis client has SET


def by_group(
    keys: Keyspace, commit_keys: Iterable[bytes], partitions: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """The groups that these commit keys name, and for which partitions.

    Args:
        partitions: how many each topic has; keys of others are left out.
    """
    groups: dict[str, list[TopicPartition]] = defaultdict(list)
    for key in commit_keys:
        group, topic, index = _parse_key(keys, key)
        if 0 <= index < partitions.get(topic, 0):
            groups[group].append((topic, index))
    return groups


def adopt(keys: Keyspace, groups: Mapping[str, list[TopicPartition]], now: int) -> Question[dict[str, int]]:
    """Lists those of the groups' commits that are not listed beside their group yet; how many of each group.

    Args:
        now: ms since the epoch. Nobody knows how old such a commit is; its retention begins now.
    """
    adopted: dict[str, int] = {}
    for some in _batches(groups.items()):
        missing = yield from _unlisted(keys, dict(some))
        for group, partitions in missing.items():
            adopted[group] = yield from _list(keys, group, partitions, now)
    return {group: count for group, count in adopted.items() if count}


def _unlisted(keys: Keyspace, groups: Mapping[str, list[TopicPartition]]) -> Question[dict[str, list[TopicPartition]]]:
    named = [(keys.offsets(group), partitions) for group, partitions in groups.items()]
    found = yield from calls([keyed("HMGET", key, *map(_field, partitions)) for key, partitions in named])
    missing = {}
    for (group, partitions), beside in zip(groups.items(), found, strict=True):
        if None in beside:
            missing[group] = [partition for partition, known in zip(partitions, beside, strict=True) if known is None]
    return missing


def _list(keys: Keyspace, group: str, partitions: list[TopicPartition], now: int) -> Question[int]:
    commits = yield from committed(keys, group, partitions)
    if commits:
        # First: by the fields beside the group its commits count as listed, and then nobody would list the group.
        yield from call(keys.groups, "SADD", keys.groups, group)
        key = keys.offsets(group)
        fields = {_field(each): _beside(Committed(commit.offset, time=now)) for each, commit in commits.items()}
        # A commit through a broker at this moment keeps what lies beside it.
        yield from calls([keyed("HSETNX", key, field, beside) for field, beside in fields.items()])
    return len(commits)


def _batches(groups: Iterable[T]) -> Iterator[list[T]]:
    left = iter(groups)
    while some := list(islice(left, _GROUPS_AT_ONCE)):
        yield some


# -- keys and values


def _commit_keys(keys: Keyspace, group: str, partition: TopicPartition) -> tuple[bytes, bytes]:
    commit = _key(keys, group, partition)
    return commit, keys.commit_term(commit)


def _key(keys: Keyspace, group: str, partition: TopicPartition) -> bytes:
    return keys.commit(keys.stream(*partition), group)


def _parse_key(keys: Keyspace, key: bytes) -> tuple[str, str, int]:
    """Group, topic and partition of a commit key; partition -1 where it is none."""
    topic, _, rest = key[len(keys.commit_prefix()) :].partition(b":")
    index, _, group = rest.partition(b":")
    try:
        return group.decode(), topic.decode(), int(index) if index.isdigit() else -1
    except UnicodeDecodeError:
        return "", "", -1


def _field(partition: TopicPartition) -> str:
    """The name of a commit's field in the hash `{ks}:offsets:{group}`."""
    return f"{partition[0]}:{partition[1]}"


def _check(group: str, newer: Iterable[bytes | None]) -> None:
    """Raises Overtaken where a commit has a higher term than that of the scripts that gave these replies."""
    if terms := [int(term) for term in newer if term is not None]:
        raise Overtaken(f"group {group}", term=max(terms))


def _beside(commit: Committed) -> str:
    fields = [commit.offset, commit.leader_epoch, commit.time, commit.metadata]
    return json.dumps(fields if commit.expires < 0 else [*fields, commit.expires])


def _read(text: bytes, beside: bytes | None) -> Committed | None:
    """The commit; None where another Redis client has set what is no offset."""
    try:
        offset = int(text)
    except ValueError:
        return None
    if not -(2**63) <= offset < 2**63:
        return None
    commit = _read_beside(beside) if beside is not None else None
    return commit if commit is not None and commit.offset == offset else Committed(offset)  # set by hand since


def _read_beside(beside: bytes) -> Committed | None:
    try:
        offset, epoch, time, metadata, *expires = json.loads(beside)
        return Committed(int(offset), int(epoch), str(metadata), int(time), *map(int, expires[:1]))
    except (ValueError, TypeError):
        return None


def _complain(key: bytes, value: bytes) -> None:
    """One line for each value of each key."""
    if _complaints.get(key) != value:
        if len(_complaints) >= _COMPLAINTS_MAX:
            _complaints.clear()
        _complaints[key] = value
        log.warning("%s: %r is no offset; it counts as no commit", key.decode(errors="replace"), value[:40])
