"""Groups as Redis has them: members, committed offsets, lag, pending deliveries, and what a reset would do.
Questions to Redis alone.

A share group commits nothing: what stands for its commit is the first offset that it has not settled.

A group's state is that which its coordinator has stored last. A rebalance that goes on is not stored: it shows once it
is over. `views.kafka.groups` asks the coordinator itself, through the Kafka protocol.

Lag in records may have to be counted. A view counts to about `standing.COUNT_MAX` over all that it shows, and says of
which partitions it has not counted all.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ketch.configs.topic_checks import LazyDefaults
from ketch.coordinator.classic.payload import read_assignment
from ketch.errors import ConfigError
from ketch.redis.question import Question
from ketch.store.coordination import commits, groups
from ketch.store.coordination.commits import Committed
from ketch.store.coordination.native import NativeGroup
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.stream import counting
from ketch.store.stream.extents import Extent
from ketch.views import listing, records, standing
from ketch.views.topics import named

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
    found, budget, left = [], standing.Budget(), _LISTED_MAX
    for name in of:
        fields = yield from groups.load(keys, name)
        listed = yield from standing.partitions_of(keys, name, fields)
        left -= len(listed)
        measured: dict[TopicPartition, standing.Measured] | None = None
        if left >= 0:
            there = yield from standing.extents_of(keys, listed)
            committed = yield from standing.committed_of(keys, name, fields, there)
            natives = yield from standing.natives_of(name, there)
            measured = yield from standing.measured(there, committed, natives, budget)
        found.append(_row(name, fields, len(listed), measured))
    return found


def _row(
    name: str, fields: Mapping[str, str], partitions: int, measured: Mapping[TopicPartition, standing.Measured] | None
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


def page(
    keys: Keyspace, name: str, first: int, count: int, budget: standing.Budget | None = None
) -> Question[GroupPage]:
    """A group with `count` of its partitions from the one at `first` on.

    Args:
        budget: how much is counted for it, and others.

    Raises:
        ConfigError: there is no such group.
    """
    fields = yield from groups.load(keys, name)
    if not fields and not (yield from groups.exists(keys, name)):
        raise ConfigError(f"There is no group {name}.")
    members = _members(fields)
    alone = () if standing.shares(fields) else members  # each is the only one that reads its partitions
    owners = {partition: member.id for member in alone for partition in member.partitions}
    listed = sorted({*owners, *(yield from standing.partitions_of(keys, name, fields))})
    there = yield from standing.extents_of(keys, listed[max(0, first) : max(0, first) + count])
    committed = yield from standing.committed_of(keys, name, fields, there)
    natives = yield from standing.natives_of(name, there)
    measured = yield from standing.measured(there, committed, natives, budget or standing.Budget())
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
    of: TopicPartition, found: standing.Measured, commit: Committed | None, known: NativeGroup | None, owner: str
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
    found = yield from standing.extents_of(keys, wanted)
    natives = yield from standing.natives_of(group, found)
    result, budget = [], standing.Budget()
    for each, extent in found.items():
        commit = committed.get(each)
        offset = None if commit is None else commit.offset
        target = yield from _target(keys, extent, offset, to, number)
        known = natives.get(each)
        before, whole = (None, True) if offset is None else (yield from standing.behind(extent, known, offset, budget))
        after, counted = yield from standing.behind(extent, known, target, budget)
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
