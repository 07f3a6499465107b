"""Which member of a consumer group a connection fetches for, where its client id and host fit several members.

A Fetch names no group. A member fits a connection if it has the connection's client id and host and was assigned the
partitions that the connection fetches. If several fit, the connection's member is known in these cases:

1. The connection also brings the heartbeats or SyncGroups of one of them: the client uses one connection for all.
2. One alone fitted all partitions of an earlier fetch: the other group was not there yet, or its members had other
   partitions.
3. The connection was known for a member of the same group before, which has joined again under a new id.
4. Of the others, each one has a connection of its own, which has fetched since this one began to. A consumer fetches
   from a broker through one connection.

What is known of a connection is forgotten when its member leaves the group, when it fetches a partition that the member
was not assigned, and when a group is learned of that may have been reading before (one loaded from Redis, or another
broker's). A fenced consumer may go on fetching for a while, so a group that lately had a partition still counts as one
that may fetch it. Where more connections fetch than members fit (a consumer that assigned itself partitions, say), any
of them may be the one that is no member's: of their client id and host, only case 1 counts until the surplus connection
closes.

Pure: it owns what is known of each connection and does no I/O. `broker.coordination.assignments` says which members
there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Set
from dataclasses import dataclass
from functools import reduce
from weakref import WeakSet

_NAMES = 100  # client ids and hosts that are kept without a look at whether they have connections

Name = tuple[str, str]  # client id and host
Identity = tuple[str, str]  # group id and member id


@dataclass(slots=True, eq=False, weakref_slot=True)
class Reader:
    """One connection, as far as its fetches are concerned.

    Attributes:
        began: when its first fetch was received (monotonic seconds).
        asked: when its last fetch was received.
        member: whose it is, where that is known.
        group: that of the last member it was known for.
        fits: the members that it may be of, as long as it is not known.
        spoken: members whose heartbeats and SyncGroups it brought.
        software: name and version of the client's, as its ApiVersions said (KIP-511).
        on_close: called when the connection closes.
    """

    began: float = math.inf
    asked: float = -math.inf
    member: Identity | None = None
    group: str | None = None
    fits: Set[Identity] = frozenset()
    spoken: frozenset[Identity] = frozenset()
    closed: bool = False
    software: tuple[str, str] = ("", "")
    on_close: Callable[[], None] | None = None

    def close(self) -> None:
        """The connection is closed."""
        self.closed = True
        if self.on_close is not None:
            self.on_close()

    def ask(self, now: float) -> None:
        """A fetch has been received."""
        self.asked = now
        self.began = min(self.began, now)


@dataclass(frozen=True, slots=True)
class Fitting:
    """Who may fetch one partition, among the members of one client id and host.

    Attributes:
        members: those that it is assigned to; of each group one at most.
        former: groups that had such a member until lately.
    """

    members: Collection[Identity]
    former: Collection[str] = ()

    @property
    def groups(self) -> set[str]:
        return {group for group, _ in self.members}.union(self.former)


class Readers:
    """What is known of all connections."""

    def __init__(self) -> None:
        self._by_name: dict[Name, WeakSet[Reader]] = {}
        self._names_max = _NAMES  # with more of them it is looked which have no connection any more
        self._owners: dict[Identity, Reader] = {}  # the connection that was last known for a member
        self._surplus: dict[Name, Reader] = {}  # a connection that is one too many
        self._speakers: dict[Identity, Reader] = {}  # the connection that last brought a member's heartbeats

    # -- what happens to members

    def gone(self, member: Identity) -> None:
        """The member has left its group."""
        owner = self._owners.pop(member, None)
        if owner is not None and owner.member == member:
            owner.member = None
        speaker = self._speakers.pop(member, None)
        if speaker is not None:
            speaker.spoken -= {member}

    def doubt(self, name: Name) -> None:
        """A group that may have been reading before is learned of: it was left out of account until now."""
        for reader in self._by_name.pop(name, ()):
            if reader.member not in reader.spoken:
                self._forget(reader)

    # -- what connections do

    def speak(self, reader: Reader, member: Identity) -> None:
        """A connection brought a heartbeat or a SyncGroup of the member."""
        if member not in reader.spoken:
            reader.spoken |= {member}
            self._speakers[member] = reader
            self._forget(reader)

    def meet(self, reader: Reader, name: Name, partitions: Iterable[Fitting]) -> None:
        """A connection that is not known fetches these partitions: looks whose it can be."""
        self._enter(reader, name)
        if self._surplus.get(name) is reader:
            del self._surplus[name]
        reader.fits, may = _common(partitions)
        if reader.spoken:
            if len(reader.spoken) == 1 and reader.spoken <= reader.fits:  # else it is several consumers'
                self._bind(reader, *reader.spoken)
            return
        if reader.group not in may:
            reader.group = None
        if not reader.fits or len(may) > len(reader.fits):
            return
        free = {member for member in reader.fits if not self._held(member, reader)}
        own = {member for member in reader.fits if reader.group in (None, member[0])}
        if len(free) < len(reader.fits) and (self._rivals(reader, name) >= len(free) or not free & own):
            self._surplus[name] = reader
        elif len(free & own) == 1 and not self._suspended(name):
            self._bind(reader, *free & own)

    def _enter(self, reader: Reader, name: Name) -> None:
        if name not in self._by_name and len(self._by_name) >= self._names_max:  # clients may have random ids
            self._by_name = {known: readers for known, readers in self._by_name.items() if readers}
            self._surplus = {known: surplus for known, surplus in self._surplus.items() if not surplus.closed}
            self._names_max = 2 * len(self._by_name) + _NAMES
        self._by_name.setdefault(name, WeakSet()).add(reader)

    def _rivals(self, reader: Reader, name: Name) -> int:
        """How many other unknown connections fetch at the same time, and may be of no other members than this one."""
        return sum(
            other.member is None
            and not other.closed
            and other is not reader
            and other.asked > reader.began
            and bool(other.fits)
            and other.fits <= reader.fits
            for other in self._by_name[name]
        )

    def find(self, reader: Reader, name: Name, members: Collection[Identity], changed: float) -> Identity | None:
        """The member that a partition is read for; None where that is not known.

        Args:
            members: those that the partition is assigned to, of the connection's client id and host.
            changed: when assignments last changed. A fetch received before is no evidence against them.
        """
        known = reader.member
        if known is not None and known not in members:
            if reader.asked > changed:
                self._forget(reader)
            return None
        if len(members) == 1:
            return next(iter(members))
        return known if known is not None and self.knows(name, known) else None

    def knows(self, name: Name, member: Identity) -> bool:
        """Whether the member's connection is known."""
        owner = self._owners.get(member)
        return owner is not None and not owner.closed and (member in owner.spoken or not self._suspended(name))

    def _held(self, member: Identity, reader: Reader) -> bool:
        """Whether the member has another connection that fetches at the same time as this one."""
        owner = self._owners.get(member)
        return owner is not None and owner is not reader and not owner.closed and owner.asked > reader.began

    def _suspended(self, name: Name) -> bool:
        """Whether there is a connection too many, so that any of them may be no member's."""
        surplus = self._surplus.get(name)
        return surplus is not None and not surplus.closed and surplus.member is None

    def _bind(self, reader: Reader, member: Identity) -> None:
        before = self._owners.get(member)
        if before is not None and before is not reader:
            before.member = None
        self._owners[member] = reader
        reader.member, reader.group = member, member[0]

    def _forget(self, reader: Reader) -> None:
        if reader.member is not None and self._owners.get(reader.member) is reader:
            del self._owners[reader.member]
        reader.member = reader.group = None


def _common(partitions: Iterable[Fitting]) -> tuple[set[Identity], set[str]]:
    """The members that fit every partition, and the groups that may fetch every one of them."""
    listed = list(partitions)
    if not listed:
        return set(), set()
    members = reduce(set.intersection, (set(partition.members) for partition in listed))
    return members, reduce(set.intersection, (partition.groups for partition in listed))
