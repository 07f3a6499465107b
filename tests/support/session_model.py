"""Fetch sessions as Kafka's FetchManager and FetchSessionCache keep them, in plain dicts and lists: no waiters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

LAST_EPOCH = 2**31 - 1
LOOK_AGAIN_S = 30


@dataclass
class SessionModel:
    """One session.

    Attributes:
        targets: by partition what was asked last.
        due: the partitions that have to be looked at, longest waiting first.
        watched: the partitions whose next change will be noticed.
        changed: those that have changed since they were watched, first come first.
        looked: when all of them were due.
    """

    by_id: bool = False
    epoch: int = 1
    targets: dict[Any, tuple[int, int, int]] = field(default_factory=dict)
    due: list[Any] = field(default_factory=list)
    watched: set[Any] = field(default_factory=set)
    changed: list[Any] = field(default_factory=list)
    looked: float | None = None
    committed: bool = False

    def update(self, asked: dict[Any, tuple[int, int, int]], forgotten: list[Any]) -> None:
        """Partitions are added or changed first, and forgotten after that, as in FetchSession.update."""
        self.targets |= asked
        self.due += [key for key in asked if key not in self.due]
        for key in forgotten:
            self.targets.pop(key, None)
            self.due = [each for each in self.due if each != key]

    def look(self, now: float) -> list[Any]:
        """What is due now: what was due before, and behind it what has changed."""
        if self.looked is None or now - self.looked >= LOOK_AGAIN_S:
            self.looked = now
            self.due += [key for key in self.targets if key not in self.due]
        self.due += [key for key in self.changed if key in self.targets and key not in self.due]
        self.changed = []
        return self.due


class SessionsModel:
    """The cache: at most `slots` sessions, in the order of their last use."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.kept: dict[int, SessionModel] = {}

    def full(self, session_id: int) -> None:
        """A full fetch ends the session that it names."""
        self.kept.pop(session_id, None)

    def keep(self, session_id: int, session: SessionModel) -> None:
        while len(self.kept) >= self.slots:
            del self.kept[next(iter(self.kept))]
        self.kept[session_id] = session

    def incremental(self, session_id: int, epoch: int, by_id: bool) -> SessionModel | int:
        """The session, used now; or Kafka's error code."""
        session = self.kept.get(session_id)
        if session is None:
            return 70
        if session.by_id != by_id:
            return 106
        if session.epoch != epoch:
            return 71
        self.kept[session_id] = self.kept.pop(session_id)
        session.epoch = 1 if epoch == LAST_EPOCH else epoch + 1
        return session
