"""A share group with a clock of its own, and clients that do what its answers say."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.coordinator.consumer.events import BeatResult
from ketch.coordinator.consumer.topics import Partition, Partitions, TopicInfo, Topics
from ketch.coordinator.machine import Persist, Reply, Tick
from ketch.coordinator.share.config import ShareConfig
from ketch.coordinator.share.events import ShareBeat, ShareDepart
from ketch.coordinator.share.fields import from_fields, to_fields
from ketch.coordinator.share.group import ShareGroup
from ketch.coordinator.share.member import State

OK = ErrorCode.none


@dataclass(slots=True)
class Client:
    """What a member knows of itself."""

    id: str
    names: frozenset[str]
    epoch: int = 0
    owned: Partitions = field(default_factory=frozenset)


class Sharers:
    """Feeds events, keeps what was stored before each reply, and checks what must hold always."""

    def __init__(self, topics: dict[str, int], **config: Any) -> None:
        self.group = ShareGroup("g", ShareConfig(**config))
        self.now, self.tokens, self.serials = 1000.0, itertools.count(), itertools.count(1)
        self.stored: dict[str, str] = {}
        self.clients: dict[str, Client] = {}
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
                    self.stored = self._kept()
                case Reply(token, result):
                    assert answer is None
                    assert token == event.token
                    answer = result
        assert before == self._kept() or self.stored == self._kept(), "a change is stored"
        assert (answer is None) == isinstance(event, Tick)
        self.check()
        return answer

    def _kept(self) -> dict[str, str]:
        return to_fields(self.group, 0)

    def check(self) -> None:
        group = self.group
        assert group.assignment_epoch <= group.epoch
        assert (group.state is State.STABLE) == (not group.is_idle) == (group.deadline is not None)
        for member in group.members.values():
            assert member.epoch <= group.assignment_epoch
            if member.epoch == group.assignment_epoch:
                assert member.assigned == member.target
        if group.epoch == group.assignment_epoch:
            self._check_targets()

    def _check_targets(self) -> None:
        """Each partition that somebody subscribes to has a reader, each member has as many as it can."""
        group = self.group
        for member in group.members.values():
            assert member.target <= self.of(member.names)
            assert bool(member.target) == bool(self.of(member.names))
        given = {partition for member in group.members.values() for partition in member.target}
        assert given == self.of(group.subscribed)

    def of(self, names: frozenset[str] | set[str]) -> set[Partition]:
        """The partitions of topics, as the group sees these."""
        infos = [self.group.topics[name] for name in names if name in self.group.topics]
        return {(info.id, index) for info in infos for index in range(info.partitions)}

    # -- clients

    def join(self, name: str, *topics: str) -> Client:
        client = Client(name, frozenset(topics))
        assert self.beat(client).error is OK
        self.clients[name] = client
        return client

    def beat(self, client: Client, full: bool = False, lost: bool = False, epoch: int | None = None) -> BeatResult:
        """One heartbeat of a client.

        Args:
            full: says everything, as after a lost answer.
            lost: the answer does not reach the client.
            epoch: in place of the client's own.
        """
        said = client.epoch if epoch is None else epoch
        names = client.names if full or said == 0 else None
        known = self.group.members.get(client.id)
        before = (known.epoch, known.assigned) if known else None
        event = ShareBeat(next(self.tokens), client.id, said, "c", "/h", self.topics, "r", names)
        result: BeatResult = self.feed(event)
        if result.error is OK:
            member = self.group.members[client.id]
            assert result.epoch == self.group.assignment_epoch
            assert member.names == (member.names if names is None else names)
            told = names is None and before == (said, member.assigned)
            assert (result.assignment is None) == told
        if not lost:
            self._heard(client, result)
        return result

    def _heard(self, client: Client, result: BeatResult) -> None:
        if result.error is not OK:
            client.epoch, client.owned = 0, frozenset()  # it joins anew
            return
        client.epoch = result.epoch
        if result.assignment is not None:
            client.owned = result.assignment
        assert client.owned == self.group.members[client.id].assigned

    def depart(self, client: Client) -> BeatResult:
        result: BeatResult = self.feed(ShareDepart(next(self.tokens), client.id))
        self.clients.pop(client.id, None)
        return result

    def wait(self, seconds: float) -> None:
        """Lets time pass, with a Tick whenever one is due."""
        until = self.now + seconds
        while self.group.deadline is not None and self.group.deadline <= until:
            self.now = max(self.now, self.group.deadline)
            self.feed(Tick())
        self.now = until

    def reload(self) -> None:
        """The broker dies, another one goes on with what was stored."""
        stored = json.loads(json.dumps(self.stored))
        self.group = from_fields("g", stored, self.group.config, self.now)
        assert to_fields(self.group, 0) == stored
