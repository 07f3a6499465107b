"""Kafka's two assignors on the coordinator's side: from subscriptions and the last target to the next one.

`uniform` gives every member as many partitions as the others, give or take one, and moves no more than that takes.
Where members subscribe to different topics, no move of one partition makes two members more even. `range` gives each
topic's partitions in ranges, in the order of the members. As in Kafka 4.1 neither looks at racks; a
partition of Ketch has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ketch.coordinator.consumer.topics import Partition, Partitions


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member in an assignor's eyes: the ids of the topics that it subscribes to, and its last target."""

    id: str
    instance_id: str | None
    topics: frozenset[str]
    had: Partitions = frozenset()


Counts = Mapping[str, int]  # topic id -> how many partitions it has
Targets = dict[str, Partitions]  # by member id
Assignor = Callable[[Sequence[Subscriber], Counts], Targets]


def assign_ranges(members: Sequence[Subscriber], counts: Counts) -> Targets:
    """The assignor `range` (Kafka's RangeAssignor): static members first, by instance id, then others by member id."""
    ordered = sorted(members, key=lambda member: (member.instance_id is None, member.instance_id or member.id))
    targets: dict[str, set[Partition]] = {member.id: set() for member in members}
    for topic, count in counts.items():
        readers = [member.id for member in ordered if topic in member.topics]
        least, more = divmod(count, len(readers)) if readers else (0, 0)
        start = 0
        for n, reader in enumerate(readers):
            end = start + least + (n < more)
            targets[reader].update((topic, index) for index in range(start, end))
            start = end
    return {member: frozenset(partitions) for member, partitions in targets.items()}


def assign_uniformly(members: Sequence[Subscriber], counts: Counts) -> Targets:
    """The assignor `uniform`: even, and as near to the last target as that allows."""
    shares = _kept(members, counts)
    owned = {partition for share in shares for partition in share.partitions}
    readers = _readers(shares)
    free = [(topic, n) for topic in readers for n in range(counts.get(topic, 0)) if (topic, n) not in owned]
    if len({member.topics for member in members}) == 1:
        _divide(shares, free)
    else:
        # Whoever has the fewest to choose from chooses first.
        for topic, index in sorted(free, key=lambda each: (len(readers[each[0]]), each)):
            min(readers[topic], key=_load).partitions.add((topic, index))
        _even_out(readers)
    return {share.member.id: frozenset(share.partitions) for share in shares}


@dataclass(slots=True, eq=False)
class _Share:
    """What a member is to get."""

    member: Subscriber
    partitions: set[Partition] = field(default_factory=set)


def _load(share: _Share) -> tuple[int, str]:
    return len(share.partitions), share.member.id


def _kept(members: Sequence[Subscriber], counts: Counts) -> list[_Share]:
    """Everybody keeps what there still is and it still subscribes to. Of two who had a partition one keeps it."""
    taken: set[Partition] = set()
    shares = []
    for member in members:
        keeps = {each for each in member.had if each[0] in member.topics and each[1] < counts.get(each[0], 0)} - taken
        taken |= keeps
        shares.append(_Share(member, keeps))
    return shares


def _divide(shares: list[_Share], free: list[Partition]) -> None:
    """Everybody gets the same part, where all read the same; the larger parts go to those who have the most."""
    least, more = divmod(len(free) + sum(len(share.partitions) for share in shares), len(shares))
    ordered = sorted(shares, key=lambda share: (-len(share.partitions), share.member.id))
    loose: list[Partition] = []
    for n, share in enumerate(ordered):
        surplus = sorted(share.partitions)[least + (n < more) :]
        share.partitions.difference_update(surplus)
        loose += surplus
    loose = sorted([*loose, *free], reverse=True)
    for n, share in enumerate(ordered):
        while len(share.partitions) < least + (n < more):
            share.partitions.add(loose.pop())


def _readers(shares: list[_Share]) -> dict[str, list[_Share]]:
    """Who reads each topic."""
    readers: dict[str, list[_Share]] = {}
    for share in shares:
        for topic in sorted(share.member.topics):
            readers.setdefault(topic, []).append(share)
    return readers


def _even_out(readers: dict[str, list[_Share]]) -> None:
    """Moves partitions from members with more to those with fewer, until no move makes two members more even.

    Each move makes the sum of the squares of all loads smaller, so there is an end.
    """
    while sum(_even_out_topic(topic, sharing) for topic, sharing in readers.items() if len(sharing) > 1):
        pass


def _even_out_topic(topic: str, sharing: list[_Share]) -> bool:
    """Whether a partition of the topic has moved."""
    moved = False
    while True:
        poorest = min(sharing, key=_load)
        limit = len(poorest.partitions) + 1
        for richest in sorted(sharing, key=_load, reverse=True):
            if len(richest.partitions) <= limit:
                return moved
            mine = [partition for partition in richest.partitions if partition[0] == topic]
            if mine:
                richest.partitions.remove(given := max(mine))
                poorest.partitions.add(given)
                moved = True
                break
        else:
            return moved


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
