"""Groups as Redis has them: members, committed offsets, lag, pending deliveries, and what a reset would do.
Questions to Redis alone.

A share group commits nothing: what stands for its commit is the first offset that it has not settled.

A group's state is that which its coordinator has stored last. A rebalance that goes on is not stored: it shows once it
is over. `views.kafka.groups` asks the coordinator itself, through the Kafka protocol.

Lag in records may have to be counted. A view counts to about `COUNT_MAX` over all that it shows, and says of which
partitions it has not counted all.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ketch.clock import now_ms
from ketch.configs.topic_checks import LazyDefaults
from ketch.coordinator.classic.payload import read_assignment
from ketch.errors import ConfigError
from ketch.redis.question import Question
from ketch.store.coordination import commits, groups, native
from ketch.store.coordination.commits import Committed
from ketch.store.coordination.native import NativeGroup
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.stream import counting, extents, glances
from ketch.store.stream.extents import Extent
from ketch.store.stream.ranges import PartitionStream
from ketch.store.topics import hashes
from ketch.views import lag, listing, records, share_groups
from ketch.views.topics import named

COUNT_MAX = 100_000  # records that one view counts
_COUNT_LEAST = 1_000  # of one partition, whatever was counted before
_LISTED_MAX = 500  # partitions of a list's groups whose lag is looked up
_MEMBER = "member:"


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in a list.

    Attributes:
        kind: "classic", "consumer" (KIP-848) or "share" (KIP-932).
        state: as it was stored last; "Empty" for one that only commits.
        lag: records over all its partitions; `counted` says whether that is all of them. None for the last groups of a
            list that have too many partitions together.
        age: s since the oldest record that waits for it was written; None where none waits.
    """

    name: str
    kind: str
    state: str
    members: int
    partitions: int
    lag: int | None
    counted: bool
    age: float | None


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member, as its coordinator stored it."""

    id: str
    instance: str
    client: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """One partition that a group has committed for, or reads.

    Attributes:
        committed: an offset, None where nothing is committed; of a share group the first one that is not settled.
        time: when that was committed, ms; 0 where it is not known.
        lag, counted, age: see `GroupRow`; lag is None where nothing is committed.
        pending: deliveries of the native group that are not acknowledged; None where there is no such group.
        member: id of the member that has it; empty where none has, or where several may share it.
    """

    topic: str
    partition: int
    committed: int | None
    time: int
    start: int
    end: int
    lag: int | None
    counted: bool
    age: float | None
    pending: int | None
    member: str


@dataclass(frozen=True, slots=True)
class GroupPage:
    """A group with some of its partitions, of which it has `total`."""

    name: str
    kind: str
    state: str
    assignor: str
    members: tuple[GroupMember, ...]
    partitions: tuple[GroupPartition, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Move:
    """What a reset does to one partition: from the committed offset, None for none, to another one."""

    topic: str
    partition: int
    committed: int | None
    to: int
    lag_before: int | None
    lag_after: int
    counted: bool


To = Literal["earliest", "latest", "time", "offset", "back", "forward"]


def names(keys: Keyspace, search: str = "") -> Question[list[str]]:
    """The groups whose names contain all words of `search`, in any case; sorted."""
    return listing.matching((yield from groups.names(keys)), search)


def rows(keys: Keyspace, of: Sequence[str]) -> Question[list[GroupRow]]:
    """The groups of a page."""
    found, budget, left = [], _Budget(), _LISTED_MAX
    for name in of:
        fields = yield from groups.load(keys, name)
        listed = yield from _partitions(keys, name, fields)
        left -= len(listed)
        measured: dict[TopicPartition, _Measured] | None = None
        if left >= 0:
            there = yield from _extents(keys, listed)
            committed = yield from _committed(keys, name, fields, there)
            natives = yield from _natives(name, there)
            measured = yield from _measured(there, committed, natives, budget)
        found.append(_row(name, fields, len(listed), measured))
    return found


def _row(
    name: str, fields: Mapping[str, str], partitions: int, measured: Mapping[TopicPartition, _Measured] | None
) -> GroupRow:
    lags = [each for each in (measured or {}).values() if each.lag is not None]
    ages = [each.age for each in lags if each.age is not None]
    return GroupRow(
        name,
        fields.get("type", "classic"),
        fields.get("state", "Empty"),
        sum(field.startswith(_MEMBER) for field in fields),
        partitions,
        None if measured is None else sum(each.lag or 0 for each in lags),
        all(each.counted for each in lags),
        max(ages, default=None),
    )


def page(keys: Keyspace, name: str, first: int, count: int) -> Question[GroupPage]:
    """A group with `count` of its partitions from the one at `first` on.

    Raises:
        ConfigError: there is no such group.
    """
    fields = yield from groups.load(keys, name)
    if not fields and not (yield from groups.exists(keys, name)):
        raise ConfigError(f"There is no group {name}.")
    members = _members(fields)
    alone = () if _shares(fields) else members  # each is the only one that reads its partitions
    owners = {partition: member.id for member in alone for partition in member.partitions}
    listed = sorted({*owners, *(yield from _partitions(keys, name, fields))})
    there = yield from _extents(keys, listed[max(0, first) : max(0, first) + count])
    committed = yield from _committed(keys, name, fields, there)
    natives = yield from _natives(name, there)
    measured = yield from _measured(there, committed, natives, _Budget())
    return GroupPage(
        name,
        fields.get("type", "classic"),
        fields.get("state", "Empty"),
        fields.get("protocol") or fields.get("assignor") or "",
        members,
        tuple(
            _partition(each, measured[each], committed.get(each), natives.get(each), owners.get(each, ""))
            for each in there
        ),
        len(listed),
    )


def _partition(
    of: TopicPartition, found: _Measured, commit: Committed | None, known: NativeGroup | None, owner: str
) -> GroupPartition:
    offset, time = (None, 0) if commit is None else (commit.offset, commit.time)
    place, pending = (found.start, found.end), None if known is None else known.pending
    return GroupPartition(*of, offset, time, *place, found.lag, found.counted, found.age, pending, owner)


# -- members


def _members(fields: Mapping[str, str]) -> tuple[GroupMember, ...]:
    found = []
    for name, value in sorted(fields.items()):
        if name.startswith(_MEMBER):
            try:
                found.append(_member(name.removeprefix(_MEMBER), json.loads(value)))
            except (ValueError, TypeError, AttributeError):  # another client wrote it
                found.append(GroupMember(name.removeprefix(_MEMBER), "", "?", "?", ()))
    return tuple(found)


def _member(id: str, said: Mapping[str, Any]) -> GroupMember:
    if isinstance(said.get("assignment"), str):  # of a classic group
        assignment = read_assignment(b64decode(said["assignment"]))
        partitions = [] if assignment is None else list(assignment.places)
    else:
        partitions = [(topic, n) for topic, indexes in (said.get("assigned") or {}).items() for n in indexes]
    host = str(said.get("host") or "").removeprefix("/")
    return GroupMember(
        id, str(said.get("instanceId") or ""), str(said.get("clientId") or ""), host, tuple(sorted(partitions))
    )


# -- commits and lag


@dataclass(slots=True)
class _Budget:
    """How many records a view may count yet."""

    left: int = COUNT_MAX

    @property
    def most(self) -> int:
        """How many of the next partition."""
        return max(_COUNT_LEAST, self.left)


@dataclass(frozen=True, slots=True)
class _Measured:
    start: int
    end: int
    lag: int | None
    counted: bool
    age: float | None


def _shares(fields: Mapping[str, str]) -> bool:
    return fields.get("type") == share_groups.TYPE


def _partitions(keys: Keyspace, name: str, fields: Mapping[str, str]) -> Question[list[TopicPartition]]:
    """Those that the group has committed for; of a share group those that it has begun to read."""
    if not _shares(fields):
        return (yield from commits.partitions(keys, name))
    try:
        group = share_groups.read(name, fields)
    except (ValueError, KeyError, TypeError):  # another client wrote it
        return []
    return [(stream.topic.name, stream.index) for stream in (yield from share_groups.begun(keys, group))]


def _committed(
    keys: Keyspace, name: str, fields: Mapping[str, str], of: Mapping[TopicPartition, Extent]
) -> Question[dict[TopicPartition, Committed]]:
    """What the group has committed for these partitions, see `GroupPartition.committed`."""
    if not _shares(fields):
        return (yield from commits.committed(keys, name, of))
    found = {}
    for partition, extent in of.items():
        start = yield from share_groups.first_unsettled(keys, extent.stream, name)
        if start is not None:
            found[partition] = Committed(start)
    return found


def _extents(keys: Keyspace, partitions: Iterable[TopicPartition]) -> Question[dict[TopicPartition, Extent]]:
    """Those of partitions that exist; a topic that is gone leaves commits behind for a while."""
    wanted = list(partitions)
    topics = yield from hashes.lookup(keys, list(dict.fromkeys(topic for topic, _ in wanted)), LazyDefaults())
    known = {topic.name: topic for topic in topics if topic is not None}
    there = [(name, n) for name, n in wanted if name in known and n < known[name].partitions]
    found = yield from extents.extents([PartitionStream.of(known[name], n, keys) for name, n in there], keys)
    return dict(zip(there, found, strict=True))


def _natives(group: str, of: Mapping[TopicPartition, Extent]) -> Question[dict[TopicPartition, NativeGroup]]:
    """The native groups of those partitions that have one."""
    found = yield from native.named([extent.stream.key for extent in of.values()], group)
    return {partition: known for partition, known in zip(of, found, strict=True) if known is not None}


def _measured(
    of: Mapping[TopicPartition, Extent],
    committed: Mapping[TopicPartition, Committed],
    natives: Mapping[TopicPartition, NativeGroup],
    budget: _Budget,
) -> Question[dict[TopicPartition, _Measured]]:
    measured = {}
    for partition, extent in of.items():
        commit = committed.get(partition)
        if commit is None:
            measured[partition] = _Measured(extent.start, extent.end, None, True, None)
            continue
        behind, counted = yield from _lag(extent, natives.get(partition), commit.offset, budget)
        age = (yield from _age(extent, commit.offset)) if behind else None
        measured[partition] = _Measured(extent.start, extent.end, behind, counted, age)
    return measured


def _lag(of: Extent, known: NativeGroup | None, offset: int, budget: _Budget) -> Question[tuple[int, bool]]:
    """Records from an offset on, and whether that is all; no question where the log itself has the answer."""
    if offset >= of.end:
        return 0, True
    if of.stream.numbering.dense:
        return lag.dense_lag(offset, of.start, of.end), True
    if of.stream.layout.entry_is_record and offset <= of.start:
        return of.info.length, True
    most = budget.most
    counted = yield from lag.lag(of.stream, known, offset, most)
    budget.left -= counted
    return counted, counted < most


def _age(of: Extent, offset: int) -> Question[float | None]:
    """How old the first record from an offset on is, by its timestamp, s."""
    step = yield from glances.forward(of.stream, offset, of.info.entry_bytes, 1, 1)
    stamps = [record.timestamp for record in step.found if record.timestamp >= 0]
    return None if not stamps else max(0.0, (now_ms() - stamps[0]) / 1000)


# -- resetting


def moves(
    keys: Keyspace, group: str, to: To, number: int = 0, topic: str = "", partition: int | None = None
) -> Question[list[Move]]:
    """What a reset would do to the partitions that the group has committed for; nothing is changed.

    Args:
        number: ms of "time", an offset, or how many records "back" or "forward".
        topic: only this one; it may be one for which nothing is committed yet, then all its partitions.
        partition: only this one of `topic`.

    Raises:
        ConfigError: there is no such topic.
    """
    wanted = yield from _concerned(keys, group, topic, partition)
    committed = yield from commits.committed(keys, group, wanted)
    found = yield from _extents(keys, wanted)
    natives = yield from _natives(group, found)
    result, budget = [], _Budget()
    for each, extent in found.items():
        commit = committed.get(each)
        offset = None if commit is None else commit.offset
        target = yield from _target(keys, extent, offset, to, number)
        known = natives.get(each)
        before, whole = (None, True) if offset is None else (yield from _lag(extent, known, offset, budget))
        after, counted = yield from _lag(extent, known, target, budget)
        result.append(Move(*each, offset, target, before, after, whole and counted))
    return result


def _concerned(keys: Keyspace, group: str, topic: str, partition: int | None) -> Question[list[TopicPartition]]:
    """The partitions that a reset is about, see `moves`."""
    listed = yield from commits.partitions(keys, group)
    wanted = [each for each in listed if not topic or each[0] == topic]
    if topic and not wanted:
        known = yield from named(keys, topic, LazyDefaults())
        wanted = [(topic, n) for n in range(known.partitions)]
    return [each for each in wanted if partition is None or each[1] == partition]


def _target(keys: Keyspace, of: Extent, committed: int | None, to: To, number: int) -> Question[int]:
    stream = of.stream
    if to == "earliest":
        return of.start
    if to == "latest":
        return of.end
    if to == "offset":
        return min(max(number, of.start), of.end)
    if to == "time":
        found = yield from records.at_time(keys, stream.topic.name, stream.index, number)
        return of.end if found is None else found
    begin = of.end if committed is None else min(max(committed, of.start), of.end)
    by = -number if to == "back" else number
    moved = yield from counting.shifted(stream, begin, by)
    return moved if moved is not None else (of.start if by < 0 else of.end)
