"""A consumer group with a clock of its own, and clients that do what its answers say."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.coordinator.classic.events import Assigned, Commit, Removed
from ketch.coordinator.consumer.events import Beat, BeatResult, Depart
from ketch.coordinator.consumer.fields import from_fields, to_fields
from ketch.coordinator.consumer.group import ConsumerGroup
from ketch.coordinator.consumer.member import ConsumerConfig, State
from ketch.coordinator.consumer.topics import Partitions, TopicInfo, Topics
from ketch.coordinator.machine import Persist, Reply, Tick

OK = ErrorCode.none


@dataclass(slots=True)
class Client:
    """What a member knows of itself."""

    id: str
    names: frozenset[str]
    regex: str = ""
    instance: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: Partitions = field(default_factory=frozenset)
    obeys: bool = True  # gives up at once what it has to
    hides: Callable[[str], bool] = lambda name: False  # topics that it may not describe


class Consumers:
    """Feeds events, keeps what was stored before each reply, and checks what must hold always."""

    def __init__(self, topics: dict[str, int], **config: Any) -> None:
        self.group = ConsumerGroup("g", ConsumerConfig(**config))
        self.now, self.tokens, self.serials = 1000.0, itertools.count(), itertools.count(1)
        self.stored: dict[str, str] = {}
        self.clients: dict[str, Client] = {}
        self.gone: list[str] = []
        self.assigned = 0
        self.set_topics(topics)

    def set_topics(self, topics: dict[str, int]) -> None:
        infos = {name: TopicInfo(f"id-{name}", count) for name, count in topics.items()}
        self.topics = Topics(infos, next(self.serials))

    def feed(self, event: Any) -> Any:
        """The reply; None for a Tick."""
        answer, before = None, self._kept()
        for effect in self.group.handle(event, self.now):
            match effect:
                case Persist():
                    self.stored = to_fields(self.group, 0)
                case Reply(token, result):
                    assert answer is None
                    assert token == event.token
                    answer = result
                case Removed(member_id):
                    assert member_id not in self.group.members
                    self.gone.append(member_id)
                    self.clients.pop(member_id, None)
                case Assigned():
                    self.assigned += 1
        assert before == self._kept() or self.stored == to_fields(self.group, 0), "a change is stored"
        assert (answer is None) == isinstance(event, Tick)
        self.check()
        return answer

    def _kept(self) -> dict[str, str]:
        return to_fields(self.group, 0)

    def check(self) -> None:
        group = self.group
        having = [each for member in group.members.values() for each in member.assigned | member.revoking]
        assert len(having) == len(set(having)), "a partition has one owner"
        assert {each: m.id for m in group.members.values() for each in m.assigned | m.revoking} == group.owners
        for member in group.members.values():
            assert member.assigned.isdisjoint(member.revoking)
        targets = [each for member in group.members.values() for each in member.target]
        assert len(targets) == len(set(targets)), "a partition is meant for one member"
        assert group.static == {m.instance_id: m.id for m in group.members.values() if m.instance_id is not None}
        assert group.assignment_epoch <= group.epoch
        assert (group.state in (State.EMPTY, State.DEAD)) == group.is_idle == (group.deadline is None)
        reading = [each for client in self.clients.values() for each in client.owned]
        assert len(reading) == len(set(reading)), "two clients read a partition"

    # -- clients

    def join(self, name: str, *topics: str, **given: Any) -> Client:
        client = Client(name, frozenset(topics), **given)
        result = self.beat(client)
        assert result.error is OK
        self.clients[name] = client
        return client

    def beat(self, client: Client, full: bool = False, lost: bool = False, **changes: Any) -> BeatResult:
        """One heartbeat of a client.

        Args:
            full: says everything, as after a lost answer.
            lost: the answer does not reach the client.
            changes: fields of the event in place of the client's own.
        """
        all_ = full or client.epoch == 0
        said: dict[str, Any] = {"owned": client.owned, "instance_id": client.instance, "hides": client.hides}
        if all_:
            said |= {"rebalance_timeout": 60.0, "names": client.names, "regex": client.regex}
            said |= {"assignor": client.assignor, "rack_id": "r"}
        said |= changes
        epoch = said.pop("epoch", client.epoch)
        event = Beat(next(self.tokens), client.id, epoch, "c", "/h", self.topics, **said)
        result: BeatResult = self.feed(event)
        if not lost:
            self._heard(client, result)
        self.check()
        return result

    def _heard(self, client: Client, result: BeatResult) -> None:
        if result.error is not OK:
            if client.epoch:  # it is fenced: it gives up everything and joins anew
                client.epoch, client.owned = 0, frozenset()
            return
        client.epoch = result.epoch
        if result.assignment is None:
            return
        lost = client.owned - result.assignment
        if lost:
            member = self.group.members[client.id]  # what it has still to give up, it may be meant to have again
            assert lost.isdisjoint(member.target - member.revoking), "it gives up what it could have kept"
        client.owned = client.owned if lost and not client.obeys else result.assignment

    def depart(self, client: Client, epoch: int = -1) -> BeatResult:
        result: BeatResult = self.feed(Depart(next(self.tokens), client.id, client.instance, epoch))
        if result.error is OK:
            self.clients.pop(client.id, None)
        return result

    def commit(self, member: str, epoch: int, **given: Any) -> ErrorCode:
        result: ErrorCode = self.feed(Commit(next(self.tokens), member, None, epoch, **given))
        return result

    def wait(self, seconds: float) -> None:
        """Lets time pass, with a Tick whenever one is due."""
        until = self.now + seconds
        while self.group.deadline is not None and self.group.deadline <= until:
            self.now = max(self.now, self.group.deadline)
            self.feed(Tick())
        self.now = until

    def settle(self) -> int:
        """Heartbeats of everybody until nothing changes; how many rounds that took."""
        for rounds in range(1, 50):
            before = self._kept()
            for client in list(self.clients.values()):
                self.beat(client)
            if self._kept() == before:
                return rounds
        raise AssertionError("it never settles")

    def reload(self) -> None:
        """The broker dies, another one goes on with what was stored."""
        stored = json.loads(json.dumps(self.stored))
        self.group = from_fields("g", stored, self.group.config, self.now)
        assert to_fields(self.group, 0) == stored

    def shares(self) -> list[int]:
        return sorted(len(client.owned) for client in self.clients.values())
