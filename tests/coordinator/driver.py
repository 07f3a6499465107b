"""A group with a clock of its own, and a check of everything it says."""

from __future__ import annotations

import itertools
from types import MappingProxyType
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.coordinator.classic.events import (
    Assigned,
    Commit,
    Event,
    Heartbeat,
    Join,
    JoinResult,
    Leave,
    Removed,
    Sync,
)
from ketch.coordinator.classic.fields import from_fields, to_fields
from ketch.coordinator.classic.group import Group
from ketch.coordinator.classic.member import GroupConfig, State
from ketch.coordinator.machine import Persist, Reply, Tick

RANGE = (("range", b"r"),)
OK = ErrorCode.none


class Driver:
    """Feeds events and keeps the answers; every event is checked against what must hold always."""

    def __init__(self, **config: Any) -> None:
        self.ids = (f"m{n}" for n in itertools.count())
        self.group = Group("g", GroupConfig(**config), lambda prefix: f"{prefix}/{next(self.ids)}")
        self.now = 1000.0
        self.tokens = itertools.count()
        self.open: dict[int, Event] = {}
        self.answers: dict[int, Any] = {}
        self.removed: list[str] = []
        self.persisted = self.assigned = 0
        self.given: dict[int, dict[str, bytes]] = {}  # generation -> member id -> share

    def feed(self, event: Any) -> Any:
        """The answer, None while it is outstanding."""
        before = self.group.generation
        if not isinstance(event, Tick):
            self.open[event.token] = event
        for effect in self.group.handle(event, self.now):
            match effect:
                case Reply(token, result):
                    self._answered(int(str(token)), result)
                case Removed(member_id):
                    assert member_id not in self.removed, "removed twice"
                    assert member_id not in self.group.members
                    self.removed.append(member_id)
                case Persist():
                    self.persisted += 1
                case Assigned():
                    assert not [event for event in self.open.values() if isinstance(event, Sync)], "replies come first"
                    self.assigned += 1
        self.check(before)
        return None if isinstance(event, Tick) else self.answers.get(event.token)

    def _answered(self, token: int, result: Any) -> None:
        event = self.open.pop(token, None)
        assert event is not None, f"{token} answered twice, or never asked"
        self.answers[token] = result
        if isinstance(event, Sync) and result.error is OK:
            shares = self.given.setdefault(event.generation, {})
            assert shares.setdefault(event.member_id, result.assignment) == result.assignment, "two assignments"
        if isinstance(event, Join) and result.error is OK:
            self._welcomed(event, result)

    def _welcomed(self, event: Join, result: JoinResult) -> None:
        assert result.protocol in [name for name, _ in event.protocols]
        told = [member for member, _, _ in result.members]
        assert len(set(told)) == len(told)
        if result.members:
            assert result.leader == result.member_id
            assert result.member_id in told

    def check(self, before: int) -> None:
        group = self.group
        assert before <= group.generation <= before + 2  # members may leave a generation that has just begun
        assert (not group.members) <= (group.state not in (State.COMPLETING, State.STABLE))
        assert (group.state is State.EMPTY) <= (not group.members)
        if group.state in (State.COMPLETING, State.STABLE):
            assert group.leader in group.members
            assert all(group.protocol in dict(member.protocols) for member in group.members.values())
            assert all(member.join_token is None for member in group.members.values())
        if group.state is not State.COMPLETING:
            assert all(member.sync_token is None for member in group.members.values())
        assert group.static == {m.instance_id: m.id for m in group.members.values() if m.instance_id is not None}
        assert not set(group.pending) & set(group.members)
        waiting = [token for m in group.members.values() for token in (m.join_token, m.sync_token) if token is not None]
        assert sorted(waiting) == sorted(self.open), "whoever is not answered is waited for"
        assert not waiting or group.deadline is not None, "nothing would ever end the wait"
        assert group.is_idle == (group.deadline is None), "what is not idle is woken"

    # -- events in short

    def join(
        self,
        member: str = "",
        instance: str | None = None,
        protocols: Any = RANGE,
        kind: str = "consumer",
        **given: Any,
    ) -> Any:
        session, rebalance = given.pop("session", 10.0), given.pop("rebalance", 60.0)
        given.setdefault("id_required", False)
        return self.feed(
            Join(next(self.tokens), member, instance, "c", "/h", session, rebalance, kind, protocols, **given)
        )

    def sync(self, member: str, shares: Any = MappingProxyType({}), **given: Any) -> Any:
        instance, generation = given.get("instance"), given.get("generation", self.group.generation)
        kind, protocol = given.get("kind"), given.get("protocol")
        return self.feed(Sync(next(self.tokens), member, instance, generation, kind, protocol, shares))

    def heartbeat(self, member: str, instance: str | None = None, generation: int | None = None) -> Any:
        number = self.group.generation if generation is None else generation
        return self.feed(Heartbeat(next(self.tokens), member, instance, number))

    def commit(self, member: str = "", instance: str | None = None, generation: int | None = None) -> Any:
        number = self.group.generation if generation is None else generation
        return self.feed(Commit(next(self.tokens), member, instance, number))

    def leave(self, member: str = "", instance: str | None = None) -> Any:
        return self.feed(Leave(next(self.tokens), member, instance))

    def wait(self, seconds: float) -> None:
        """Lets time pass, with a Tick whenever one is due."""
        until = self.now + seconds
        while self.group.deadline is not None and self.group.deadline <= until:
            self.now = max(self.now, self.group.deadline)
            self.feed(Tick())
            assert self.group.deadline is None or self.group.deadline > self.now, "a Tick clears what is due"
        self.now = until

    def stable(self, *instances: str | None, **given: Any) -> list[str]:
        """Forms a stable group of as many members; their ids, the leader's first."""
        first = self.join(instance=instances[0], **given).member_id
        tokens = []
        for instance in instances[1:]:
            assert self.join(instance=instance, **given) is None
            tokens.append(max(self.open))
        if tokens:
            assert self.join(first, instances[0], **given).leader == first
        members = [first, *(self.answers[token].member_id for token in tokens)]
        for member, instance in zip(members[1:], instances[1:], strict=True):
            assert self.sync(member, instance=instance) is None
        assert self.sync(first, {m: m.encode() for m in members}, instance=instances[0]).error is OK
        assert self.group.state is State.STABLE
        return members

    def restored(self) -> Group:
        """The group as it comes back from what is stored of it."""
        fields = to_fields(self.group, 0)
        return from_fields("g", fields, self.group.config, self.group.new_member_id, self.now)
