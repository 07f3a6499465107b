"""Share sessions: which partitions a member of a share group fetches from this broker (ShareSessionCache, KIP-932).

A session has the group and the member for its key, and belongs to the connection that opened it: when that closes, or
the session is closed, what the member holds is given back (SharePartitionManager). Membership itself is the
coordinator's, and is not asked here, as in Kafka. No I/O: the handlers give back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from kio.schema.errors import ErrorCode

from ketch.broker.coordination.readers import Reader
from ketch.broker.errors import Refused
from ketch.log.states import Waiter

FINAL_EPOCH = -1
INITIAL_EPOCH = 0

ShareKey = tuple[str, str]  # group and member
PartitionKey = tuple[UUID, int]


def not_found(key: ShareKey) -> Refused:
    return Refused(ErrorCode.share_session_not_found, f"no share session of member {key[1]} in group {key[0]}")


@dataclass(slots=True, eq=False)
class ShareSession:
    """One member's session.

    Attributes:
        waiter: is woken when there may be something in one of its partitions.
        reader: the connection that opened it.
        epoch: that its next request has.
        partitions: what it fetches; who was served longest ago comes first.
        touched: partitions of which the member may hold records: those that it has forgotten since, too.
        keys: the partition that a key which the waiter is told of stands for.
        full: this answer names all partitions.
    """

    key: ShareKey
    waiter: Waiter
    reader: Reader
    epoch: int = INITIAL_EPOCH + 1
    partitions: dict[PartitionKey, None] = field(default_factory=dict)
    touched: set[PartitionKey] = field(default_factory=set)
    keys: dict[bytes, PartitionKey] = field(default_factory=dict)
    full: bool = True

    def update(self, added: Iterable[PartitionKey], forgotten: Iterable[PartitionKey] = ()) -> None:
        for key in added:
            self.partitions.setdefault(key)
        for key in forgotten:
            self.partitions.pop(key, None)

    def watch(self, partition: PartitionKey, keys: Iterable[bytes]) -> None:
        """The waiter is told of changes of these keys."""
        for key in keys:
            self.keys[key] = partition

    def changed(self) -> list[PartitionKey]:
        """The partitions of which the waiter was told since the last call."""
        changed = dict.fromkeys(self.keys[key] for key in self.waiter.take() if key in self.keys)
        return [key for key in changed if key in self.partitions]

    def served(self, partition: PartitionKey) -> None:
        """The partition gave something: the others come first next time, so that none starves."""
        if partition in self.partitions:
            del self.partitions[partition]
            self.partitions[partition] = None


class ShareSessions:
    """The share sessions of this broker.

    Args:
        most: how many there may be (`group.share.max.share.sessions`).
        waiter: makes one for a session.
        lost: called with a session whose connection has closed.
    """

    def __init__(self, most: int, waiter: Callable[[], Waiter], lost: Callable[[ShareSession], None]) -> None:
        self._most, self._waiter, self._lost = most, waiter, lost
        self._sessions: dict[ShareKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, key: ShareKey, reader: Reader, partitions: Iterable[PartitionKey]) -> ShareSession:
        """A new session, in place of the one that the member has.

        Raises:
            Refused: SHARE_SESSION_LIMIT_REACHED, there are too many.
        """
        known = self._sessions.get(key)
        if known is None and len(self._sessions) >= self._most:
            raise Refused(ErrorCode.share_session_limit_reached, f"there are {self._most} share sessions already")
        session = ShareSession(key, self._waiter(), reader)
        session.update(partitions)
        if known is not None:
            known.waiter.close()
            session.touched |= known.touched
        self._sessions[key] = session
        reader.on_close = self._closing(reader)
        return session

    def next(self, key: ShareKey, epoch: int) -> ShareSession:
        """The session of a request that is neither the first nor the last one; its epoch moves on.

        Raises:
            Refused: SHARE_SESSION_NOT_FOUND; INVALID_SHARE_SESSION_EPOCH, a request was lost or came twice.
        """
        session = self.find(key)
        if epoch != session.epoch:
            wrong = f"epoch {epoch} of a share session, {session.epoch} is next"
            raise Refused(ErrorCode.invalid_share_session_epoch, wrong)
        session.epoch = 1 if epoch == 2**31 - 1 else epoch + 1
        session.full = False
        return session

    def find(self, key: ShareKey) -> ShareSession:
        """The member's session; raises Refused, SHARE_SESSION_NOT_FOUND."""
        session = self._sessions.get(key)
        if session is None:
            raise not_found(key)
        return session

    def close(self, session: ShareSession) -> None:
        """The session is over; what its member holds is to be given back."""
        if self._sessions.get(session.key) is session:
            del self._sessions[session.key]
        session.waiter.close()

    def _closing(self, reader: Reader) -> Callable[[], None]:
        def closed() -> None:
            for session in [each for each in self._sessions.values() if each.reader is reader]:
                self.close(session)
                self._lost(session)

        return closed
