"""Kafka's assignor of share groups, `simple`: from subscriptions and the last target to the next one.

Several members may have the same partition, so the assignor has two aims. Each partition has a member that reads it.
And each member has partitions to read, also where there are more members than partitions:

    1. A hash of its id gives each member one of the partitions that it may have.
    2. It keeps what it had, as far as nobody was given that in step 1. Where all members subscribe to the same topics,
       it keeps no more than an equal part.
    3. Each partition that nobody has goes to the one of its readers that has the fewest.

Two things differ from SimpleAssignor in Kafka 4.1. In step 3 Kafka goes round the readers, whoever has the fewest. And
a partition whose only member no longer subscribes to it has no reader there until the next change; here it gets one.
Pure, like the assignors of consumer groups, whose types it takes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from ketch.coordinator.consumer.assignors import Counts, Subscriber, Targets
from ketch.coordinator.consumer.topics import Partition

NAME = "simple"
_HASH_BITS = 32

_Shares = list[set[Partition]]  # what each member is to have, in the order of the members


def assign_simply(members: Sequence[Subscriber], counts: Counts) -> Targets:
    """The assignor `simple`."""
    choices = {topics: _partitions(topics, counts) for topics in {member.topics for member in members}}
    shares = [_first(member.id, choices[member.topics]) for member in members]
    first = set().union(*shares)
    equal = len(choices) == 1
    most = math.ceil(len(choices[members[0].topics]) / len(members)) if equal else math.inf
    for member, share in zip(members, shares, strict=True):
        _keep(member, share, counts, first, most)
    _give(members, shares, counts)
    return {member.id: frozenset(share) for member, share in zip(members, shares, strict=True)}


def _partitions(topics: frozenset[str], counts: Counts) -> list[Partition]:
    return [(topic, index) for topic in sorted(topics) for index in range(counts.get(topic, 0))]


def _first(member_id: str, choices: list[Partition]) -> set[Partition]:
    return {choices[abs(_hash(member_id)) % len(choices)]} if choices else set()


def _hash(text: str) -> int:
    """Java's String.hashCode: so a member gets the partition that Kafka would give it."""
    value = 0
    units = text.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) % 2**_HASH_BITS
    return value - 2**_HASH_BITS if value >= 2 ** (_HASH_BITS - 1) else value


def _keep(member: Subscriber, share: set[Partition], counts: Counts, first: set[Partition], most: float) -> None:
    for partition in sorted(member.had - first):
        topic, index = partition
        if len(share) < most and topic in member.topics and index < counts.get(topic, 0):
            share.add(partition)


def _give(members: Sequence[Subscriber], shares: _Shares, counts: Counts) -> None:
    """Gives out what nobody has, topic by topic."""
    had = set().union(*shares)
    for topic in sorted(set().union(*(member.topics for member in members))):
        free = [(topic, index) for index in range(counts.get(topic, 0)) if (topic, index) not in had]
        readers = [(len(shares[n]), n) for n, member in enumerate(members) if free and topic in member.topics]
        heapq.heapify(readers)
        for partition in free:
            load, n = readers[0]
            shares[n].add(partition)
            heapq.heapreplace(readers, (load + 1, n))
