"""Incremental fetch sessions (KIP-227): a consumer names its partitions once, then only what changes.

A session also knows which of its partitions may have news: those that were not read to their end, and those whose
streams have changed since (`log.watcher`). It asks Redis nothing: the Fetch handler does. The lane (`ketch.lane`) reads
and changes sessions as the handler does, on the event loop's thread.
"""

from __future__ import annotations

import math
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ketch.errors import KetchError
from ketch.log.states import Waiter
from ketch.store.topics.topic import TopicKey

FINAL_EPOCH = -1
INITIAL_EPOCH = 0

PartitionKey = tuple[TopicKey, int]
# What moves a log's start without a write to its stream is found out so: an archive that expires, a topic of which
# nothing was ever written and that another broker deletes.
_LOOK_AGAIN_S = 30.0


class SessionNotFound(KetchError):
    """Kafka's FETCH_SESSION_ID_NOT_FOUND (70)."""


class SessionTopicIds(KetchError):
    """Kafka's FETCH_SESSION_TOPIC_ID_ERROR (106)."""


class InvalidSessionEpoch(KetchError):
    """Kafka's INVALID_FETCH_SESSION_EPOCH (71)."""


@dataclass(slots=True)
class Target:
    """One partition that a fetch asks for, and what its session was last answered about it."""

    topic: TopicKey
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int = -1  # that the consumer knows; -1 for none
    answered: tuple[int, int] = (-1, -1)  # log start and high watermark
    key: PartitionKey = field(init=False)
    seat: object = field(default=None, init=False, repr=False, compare=False)  # what the lane keeps of it

    def __post_init__(self) -> None:
        self.key = (self.topic, self.partition)


@dataclass(slots=True)
class Session:
    """The partitions that a consumer reads, and which of them have to be looked at.

    `id` 0: none is kept, and every answer is full.
    """

    waiter: Waiter
    id: int = 0
    epoch: int = FINAL_EPOCH
    by_id: bool = False  # topics are ids
    targets: dict[PartitionKey, Target] = field(default_factory=dict)
    incremental: bool = False  # this answer leaves out what has not changed
    # All but those at their end; who waited longest is first.
    behind: dict[PartitionKey, Target] = field(default_factory=dict)
    keys: dict[bytes, PartitionKey] = field(default_factory=dict)  # by stream
    looked: float = -math.inf  # when all of them were due
    authorized: tuple[object, ...] = ()  # by what they were allowed then

    def update(self, targets: Iterable[Target], forgotten: Iterable[PartitionKey] = ()) -> None:
        for target in targets:
            known = self.targets.setdefault(target.key, target)
            known.offset, known.max_bytes, known.leader_epoch = target.offset, target.max_bytes, target.leader_epoch
            self.behind.setdefault(target.key, known)
        for key in forgotten:
            self.targets.pop(key, None)
            self.behind.pop(key, None)

    def isolate(self, committed: bool) -> None:
        """Takes a fetch's isolation level. Where the one before wanted committed records only and this one wants all,
        every partition is due: the waiter was not woken by records of open transactions."""
        if self.waiter.committed and not committed:
            self.looked = -math.inf
        self.waiter.committed = committed

    def authorize(self, by: tuple[object, ...]) -> None:
        """Takes by what its targets are allowed: where that is something else than before, every partition is due."""
        if by != self.authorized:
            self.authorized, self.looked = by, -math.inf

    def is_all_due(self, now: float) -> bool:
        """Whether every partition is to be looked at, as that was too long ago."""
        return now - self.looked >= _LOOK_AGAIN_S

    def due(self, now: float) -> list[Target]:
        """The partitions that may have something to say."""
        if self.is_all_due(now):
            self.looked = now
            self.behind |= {key: target for key, target in self.targets.items() if key not in self.behind}
        for stream in self.waiter.take():
            key = self.keys.get(stream)
            if key in self.targets:
                self.behind.setdefault(key, self.targets[key])
            else:
                self.keys.pop(stream, None)
        return list(self.behind.values())

    def watch(self, target: Target, stream: bytes) -> None:
        """The partition is due when its stream changes; to be called before it is looked at."""
        self.keys[stream] = target.key
        self.waiter.add(stream)

    def reached_end(self, target: Target) -> None:
        """The partition is at its end: it is due no more until it changes."""
        self.behind.pop(target.key, None)

    def served(self, target: Target) -> None:
        """The partition gave records: the others come first next time, so that none starves."""
        if self.behind.pop(target.key, None):
            self.behind[target.key] = target

    def close(self) -> None:
        self.waiter.close()


class Sessions:
    """The cache of sessions; beyond `slots` the one unused for longest goes.

    Args:
        slots: `max.incremental.fetch.session.cache.slots`.
        waiter: makes one for a session.
    """

    def __init__(self, slots: int, waiter: Callable[[], Waiter]) -> None:
        self._slots = slots
        self._waiter = waiter
        self._sessions: OrderedDict[int, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def passing(self, targets: Iterable[Target]) -> Session:
        """A session for a single fetch, to be closed after it."""
        session = Session(self._waiter())
        session.update(targets)
        return session

    def passing_by(self, wanted: Iterable[tuple[TopicKey, int, int, int]], committed: bool, now: float) -> Session:
        """As `passing`, for the lane, which looks at all of them now.

        Args:
            wanted: of each partition topic, index, offset and greatest number of bytes.
        """
        session = self.passing(Target(*each) for each in wanted)
        session.waiter.committed, session.looked = committed, now
        return session

    def get(self, session_id: int) -> Session | None:
        """The session of this id, if there is one."""
        return self._sessions.get(session_id)

    def advance(self, session: Session) -> None:
        """The session's next fetch has come."""
        self._sessions.move_to_end(session.id)
        session.epoch = 1 if session.epoch == 2**31 - 1 else session.epoch + 1
        session.incremental = True

    def resolve(
        self, session_id: int, epoch: int, targets: list[Target], forgotten: list[PartitionKey], by_id: bool
    ) -> Session:
        """The session that a fetch belongs to, its targets brought up to date.

        Raises:
            SessionNotFound: no such session, or it has been evicted.
            InvalidSessionEpoch: a request was lost or came twice.
            SessionTopicIds: it was made with topic names and is used with ids, or the other way round.
        """
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._drop(session_id)
            session = self.passing(targets)
            if epoch == INITIAL_EPOCH and self._slots:
                self._keep(session, by_id)
            return session
        session = self._continued(session_id, epoch, by_id)
        session.update(targets, forgotten)
        return session

    def _continued(self, session_id: int, epoch: int, by_id: bool) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionNotFound(f"no fetch session {session_id}")
        if session.by_id != by_id:
            raise SessionTopicIds(f"fetch session {session_id} is one of topic {'ids' if session.by_id else 'names'}")
        if epoch != session.epoch:
            raise InvalidSessionEpoch(f"epoch {epoch} of fetch session {session_id}, {session.epoch} is next")
        self.advance(session)
        return session

    def _keep(self, session: Session, by_id: bool) -> None:
        while len(self._sessions) >= self._slots:
            self._drop(next(iter(self._sessions)))
        session.id, session.epoch, session.by_id = self._new_id(), INITIAL_EPOCH + 1, by_id
        self._sessions[session.id] = session

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _new_id(self) -> int:
        while True:
            session_id = secrets.randbelow(2**31 - 1) + 1
            if session_id not in self._sessions:
                return session_id
