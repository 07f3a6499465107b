"""A group in which clients of both protocols come and go, without Redis: the real kinds, and clients as real ones are.

It is a shell like `broker.coordination.machines` in small: it knows what was stored before each reply, and goes on from
that where the broker dies. After each step it checks that no two clients read one partition.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.coordination.assignments import Assignments
from ketch.broker.coordination.cluster import Cluster
from ketch.broker.coordination.group_configs import GroupConfigs
from ketch.broker.coordination.kinds.classic import ClassicKind
from ketch.broker.coordination.kinds.consumer import ConsumerKind
from ketch.broker.coordination.kinds.kind import Kinds
from ketch.broker.coordination.native_groups import NativeGroups
from ketch.configs.settings import Settings
from ketch.coordinator.classic.events import Heartbeat, Join, JoinResult, Leave, Removed, Sync, SyncResult
from ketch.coordinator.classic.group import Group
from ketch.coordinator.classic.payload import CONSUMER, read_assignment, read_subscription, write_assignment
from ketch.coordinator.consumer.events import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, Beat, BeatResult, Depart
from ketch.coordinator.consumer.group import ConsumerGroup
from ketch.coordinator.consumer.topics import TopicInfo, Topics
from ketch.coordinator.machine import Heir, Persist, Reply, Tick
from ketch.log.log import Log
from ketch.redis.links import links
from ketch.redis.url import RedisAddress

OK, REBALANCE = ErrorCode.none, ErrorCode.rebalance_in_progress
TOPIC, PARTITIONS = "t", 5
TOPICS = Topics({TOPIC: TopicInfo("id-t", PARTITIONS)}, 1)
SESSION_S, REBALANCE_S = 10.0, 30.0


def subscription(owned: Iterable[int]) -> bytes:
    """Version 1, with what the client reads."""
    indexes = sorted(owned)
    topic = len(TOPIC).to_bytes(2) + TOPIC.encode()
    head = b"\0\1" + (1).to_bytes(4) + topic + (-1).to_bytes(4, signed=True)
    return head + (1).to_bytes(4) + topic + len(indexes).to_bytes(4) + b"".join(n.to_bytes(4) for n in indexes)


@dataclass(eq=False)
class NewClient:
    """A client that sends ConsumerGroupHeartbeat."""

    group: MixedGroup
    id: str
    instance: str | None = None
    epoch: int = 0
    owned: frozenset[int] = frozenset()

    def step(self) -> None:
        joins = {"rebalance_timeout": REBALANCE_S, "names": frozenset({TOPIC})} if self.epoch == 0 else {}
        owned = frozenset(("id-t", index) for index in self.owned)
        result: BeatResult = self.group.ask(
            Beat(self.group.token(), self.id, self.epoch, "c", "/h", TOPICS, self.instance, owned=owned, **joins)
        )
        if result.error is not OK:
            self.epoch, self.owned = 0, frozenset()
            return
        self.epoch = result.epoch
        if result.assignment is not None:
            self.owned = frozenset(index for _, index in result.assignment)

    def goes(self, back: bool) -> None:
        epoch = LEAVE_STATIC_EPOCH if back and self.instance else LEAVE_EPOCH
        self.owned = frozenset()
        self.group.ask(Depart(self.group.token(), self.id, self.instance, epoch))

    @property
    def is_settled(self) -> bool:
        return self.epoch > 0


@dataclass(eq=False)
class ClassicClient:
    """A client of the classic protocol.

    Args:
        eager: it gives up everything before it joins; else what it has to (KIP-429).
    """

    group: MixedGroup
    id: str = ""
    instance: str | None = None
    eager: bool = False
    generation: int = -1
    owned: frozenset[int] = frozenset()
    phase: str = "out"  # then "joining", "joined", "syncing", "in"
    led: tuple[tuple[str, str | None, bytes], ...] = ()  # the members, for the leader
    token: Any = None

    def step(self) -> None:
        match self.phase:
            case "out":
                self._join()
            case "joined":
                self._sync()
            case "in":
                token = self.group.token()
                self.hears_of(self.group.ask(Heartbeat(token, self.id, self.instance, self.generation)))

    def hears_of(self, error: ErrorCode) -> None:
        """What an error makes it do."""
        if error is OK:
            return
        self.phase = "out"
        if error in (ErrorCode.illegal_generation, ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            self.owned = frozenset()
        if error in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            self.id = ""

    def _join(self) -> None:
        if self.eager:
            self.owned = frozenset()
        self.phase, self.token = "joining", self.group.token()
        protocols = (("range" if self.eager else "cooperative", subscription(self.owned)),)
        self.group.feed(
            Join(
                self.token, self.id, self.instance, "c", "/h", SESSION_S, REBALANCE_S, CONSUMER, protocols,
                topics=TOPICS, new_id=f"new-{self.token}",
            )
        )  # fmt: skip

    def _sync(self) -> None:
        shares = self._shares() if self.led else {}
        self.phase, self.token = "syncing", self.group.token()
        self.group.feed(Sync(self.token, self.id, self.instance, self.generation, None, None, shares))

    def _shares(self) -> Mapping[str, bytes]:
        """The leader's assignment: even; a cooperative one gives nobody what another member has still."""
        claims: dict[str, set[int]] = {}
        for member, _, metadata in self.led:
            said = read_subscription(metadata)
            assert said is not None
            claims[member] = {index for _, index in said.owned}
        claimed = [index for each in claims.values() for index in each]
        free = [index for index in range(PARTITIONS) if index not in claimed]
        shares: dict[str, list[int]] = {}
        for n, (member, mine) in enumerate(sorted(claims.items())):
            quota = PARTITIONS // len(claims) + (n < PARTITIONS % len(claims))
            shares[member] = sorted(index for index in mine if claimed.count(index) == 1)[:quota]
            while len(shares[member]) < quota and free:
                shares[member].append(free.pop())
        return {member: write_assignment(1, {TOPIC: share}) for member, share in shares.items()}

    def hears(self, result: JoinResult | SyncResult) -> None:
        """The answer to its last JoinGroup or SyncGroup."""
        if result.error is not OK:
            if isinstance(result, JoinResult) and result.error is ErrorCode.member_id_required:
                self.id = result.member_id
            self.hears_of(result.error)
        elif isinstance(result, JoinResult):
            self.id, self.generation, self.phase = result.member_id, result.generation, "joined"
            self.led = result.members if result.leader == self.id else ()
        else:
            found = read_assignment(result.assignment)
            assigned = frozenset(index for _, index in found.places) if found is not None else frozenset()
            lost, self.owned = self.owned - assigned, assigned
            self.phase = "out" if lost and not self.eager else "in"

    def goes(self, back: bool) -> None:
        self.owned = frozenset()
        if self.id and not (back and self.instance):
            self.group.ask(Leave(self.group.token(), self.id, self.instance))

    @property
    def is_settled(self) -> bool:
        return self.phase == "in"


Client = NewClient | ClassicClient


@dataclass
class MixedGroup:
    """One group, its clients and its coordinator."""

    now: float = 1000.0
    clients: list[Client] = field(default_factory=list)
    stored: dict[str, str] = field(default_factory=dict)
    conversions: int = 0

    def __post_init__(self) -> None:
        settings = Settings()
        log = Log(settings, links(RedisAddress.parse("redis://127.0.0.1:1"), 1))  # which nobody asks
        native = NativeGroups(log, Cluster(settings, log), Assignments(), set().add)
        classic = ClassicKind(settings, native)
        self.kinds = Kinds[Any](classic, ConsumerKind(GroupConfigs(settings, log), native, classic, "bidirectional"))
        self.machine: Any = self.kinds.new("g")
        self._tokens, self._answers = itertools.count(1), dict[Any, Any]()

    def token(self) -> int:
        return next(self._tokens)

    def ask(self, event: Any) -> Any:
        """Feeds an event that is answered at once."""
        self.feed(event)
        return self._answers.pop(event.token)

    def feed(self, event: Any) -> None:
        met = self.kinds.meet(self.machine, event) if not isinstance(event, Tick) else self.machine
        if met is None:
            effects = self.kinds.asking(event).convert(self.machine, event, self.now)
        else:
            self.machine = met
            effects = self.kinds.of(met).handle(met, event, self.now)
        for effect in effects:
            match effect:
                case Heir(heir):
                    self.machine, self.conversions = heir, self.conversions + 1
                case Persist():
                    self.stored = self.kinds.to_fields(self.machine)
                case Reply(token, result):
                    self._answer(token, result)
                case Removed(member_id):
                    self.clients = [client for client in self.clients if client.id != member_id]

    def _answer(self, token: Any, result: Any) -> None:
        self._answers[token] = result
        for client in self.clients:
            if isinstance(client, ClassicClient) and client.token == token and client.phase in ("joining", "syncing"):
                client.hears(self._answers.pop(token))
                return

    def wait(self, seconds: float) -> None:
        """Lets time pass, with a Tick whenever one is due."""
        until = self.now + seconds
        while self.machine.deadline is not None and self.machine.deadline <= until:
            self.now = max(self.now, self.machine.deadline)
            self.feed(Tick())
        self.now = until

    def dies(self) -> None:
        """The broker dies, another one goes on with what was stored; requests that wait are sent again."""
        loaded = self.kinds.from_fields("g", self.stored, self.now) if self.stored else None
        self.machine = self.kinds.new("g") if loaded is None else loaded
        for client in self.clients:
            if isinstance(client, ClassicClient) and client.phase in ("joining", "syncing"):
                client.phase = "out" if client.phase == "joining" else "joined"

    def check(self) -> None:
        reading = [index for client in self.clients for index in client.owned]
        assert len(reading) == len(set(reading)), "two clients read a partition"
        machine = self.machine
        if isinstance(machine, ConsumerGroup):
            having = {each: m.id for m in machine.members.values() for each in m.assigned | m.revoking}
            assert having == machine.owners
            assert len(having) == sum(len(m.assigned | m.revoking) for m in machine.members.values())
        else:
            assert isinstance(machine, Group)
        assert machine.static == {m.instance_id: m.id for m in machine.members.values() if m.instance_id is not None}
