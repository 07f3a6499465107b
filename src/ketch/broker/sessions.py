"""Incremental fetch sessions (KIP-227): a consumer names its partitions once, then only what changes. Sans-IO."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from ketch.errors import KetchError

FINAL_EPOCH = -1
INITIAL_EPOCH = 0

TopicKey = str | UUID  # a name up to Fetch v12, an id from v13 on


class SessionNotFound(KetchError):
    """Kafka's FETCH_SESSION_ID_NOT_FOUND (70)."""


class SessionTopicIds(KetchError):
    """Kafka's FETCH_SESSION_TOPIC_ID_ERROR (106)."""


class InvalidSessionEpoch(KetchError):
    """Kafka's INVALID_FETCH_SESSION_EPOCH (71)."""


@dataclass(slots=True)
class Target:
    """One partition that a fetch asks for, and what its session was last told of it."""

    topic: TopicKey
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int = -1  # that the consumer knows; -1 for none
    told: tuple[int, int] = (-1, -1)  # log start and high watermark


@dataclass(slots=True)
class Session:
    """`id` 0: none is kept, and every answer is full."""

    id: int = 0
    epoch: int = FINAL_EPOCH
    by_id: bool = False  # topics are ids
    targets: OrderedDict[tuple[TopicKey, int], Target] = field(default_factory=OrderedDict)
    incremental: bool = False  # this answer leaves out what has not changed

    def update(self, targets: Iterable[Target], forgotten: Iterable[tuple[TopicKey, int]] = ()) -> None:
        for target in targets:
            known = self.targets.get((target.topic, target.partition))
            if known is None:
                self.targets[target.topic, target.partition] = target
            else:
                known.offset, known.max_bytes = target.offset, target.max_bytes
                known.leader_epoch = target.leader_epoch
        for key in forgotten:
            self.targets.pop(key, None)

    def served(self, target: Target) -> None:
        """The partition gave records: the others come first next time, so that none starves."""
        if self.id:
            self.targets.move_to_end((target.topic, target.partition))


class Sessions:
    """The cache of sessions; beyond `slots` the one unused for longest goes.

    Args:
        slots: `max.incremental.fetch.session.cache.slots`.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: OrderedDict[int, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(
        self, session_id: int, epoch: int, targets: list[Target], forgotten: list[tuple[TopicKey, int]], by_id: bool
    ) -> Session:
        """The session that a fetch belongs to, its targets brought up to date.

        Raises:
            SessionNotFound: no such session, or it has been evicted.
            InvalidSessionEpoch: a request was lost or came twice.
            SessionTopicIds: it was made with topic names and is used with ids, or the other way round.
        """
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._sessions.pop(session_id, None)
            session = self._new(by_id) if epoch == INITIAL_EPOCH else Session()
            session.update(targets)
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
        self._sessions.move_to_end(session_id)
        session.epoch = 1 if epoch == 2**31 - 1 else epoch + 1
        session.incremental = True
        return session

    def _new(self, by_id: bool) -> Session:
        if not self._slots:
            return Session()
        while len(self._sessions) >= self._slots:
            self._sessions.popitem(last=False)
        session = Session(self._new_id(), INITIAL_EPOCH + 1, by_id)
        self._sessions[session.id] = session
        return session

    def _new_id(self) -> int:
        while True:
            session_id = secrets.randbelow(2**31 - 1) + 1
            if session_id not in self._sessions:
                return session_id
