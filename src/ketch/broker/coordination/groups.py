"""The classic consumer groups that this broker coordinates, and their committed offsets.

`broker.coordination.machines` runs them; this tells it how Redis keeps a group (`store.coordination.groups`), what its
effects have native groups do, and what of it metrics and log lines say. Commits are stored in the term in which the
group admitted them.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from ketch import metrics
from ketch.broker.coordination.cluster import Cluster
from ketch.broker.coordination.machines import Machines, Token
from ketch.broker.coordination.native_groups import NativeGroups
from ketch.clock import now_ms
from ketch.configs.settings import Settings
from ketch.coordinator.classic.events import Commit, Effect, Event, Removed
from ketch.coordinator.classic.fields import from_fields, to_fields
from ketch.coordinator.classic.group import Group
from ketch.coordinator.classic.member import GroupConfig
from ketch.errors import NotInTransaction
from ketch.log.log import Log
from ketch.redis.question import Question
from ketch.store.coordination import groups, pending_offsets
from ketch.store.coordination.commits import Committed
from ketch.store.coordination.pending_offsets import Pending
from ketch.store.coordination.terms import Overtaken
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.scripts import Holder

log = logging.getLogger(__name__)

_COMMIT_TRIES = 5  # where other commits of the group take a new term at the same time


class Groups(Machines[Group]):
    """The groups that this broker coordinates.

    Args:
        native_groups: follow commits, assignments and members that go.
    """

    def __init__(self, settings: Settings, log_: Log, cluster: Cluster, native_groups: NativeGroups) -> None:
        super().__init__(GroupKind(settings, log_.keys, native_groups), settings.node_id, log_, cluster)
        self._log, self._keys, self._native_groups = log_, log_.keys, native_groups
        self._settled: set[str] = set()  # groups for which no transaction has offsets pending
        self._settling: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    # -- committing

    async def commit(
        self,
        group_id: str,
        make: Callable[[Token], Commit],
        received: float,
        commits: Mapping[TopicPartition, Committed],
    ) -> ErrorCode:
        """Asks the group whether commits may be stored, and stores them.

        Args:
            make: the event from its token.
            received: when the request was, s of the monotonic clock.
            commits: may be none, then the group is asked alone.

        Raises:
            NotCoordinator: it is another broker's, or another one has written it since it was loaded here.
            StorageUnavailable: Redis is gone; the commits may be stored or not.
        """
        lease = self._cluster.leased_at(received)
        if commits:
            await self.settle(group_id)  # what transactions have committed before counts before
        above, tries = 0, _COMMIT_TRIES
        while True:
            error, group = await self._submit(group_id, make)
            if error or not commits:
                return ErrorCode(error)
            try:
                await self._store_commits(group_id, commits, await self.hold(group, lease, above, received))
                return ErrorCode.none
            except Overtaken as newer:  # by another request of this broker, or the commits know of a higher term
                tries -= 1
                if not tries or (newer.session != self._session and newer.term <= above):
                    raise
                above = max(above, newer.term)

    async def _store_commits(self, group_id: str, commits: Mapping[TopicPartition, Committed], term: str) -> None:
        await self._log.commits.store(group_id, commits, term)
        for topic, count in Counter(topic for topic, _ in commits).items():
            metrics.committed(group_id, topic, count)
        self._native_groups.committed(group_id, commits)

    # -- offsets of transactions (store.pending_offsets)

    async def pend(
        self,
        group_id: str,
        transactional_id: str,
        producer: tuple[int, int],
        started: int,
        offsets: Mapping[TopicPartition, Committed],
    ) -> None:
        """Keeps offsets that an open transaction commits until it is decided.

        Args:
            producer: its id and epoch.
            started: ms, when the transaction began.

        Raises:
            NotInTransaction: the transaction is over.
        """
        for _ in range(_COMMIT_TRIES):
            self._settled.discard(group_id)
            question = pending_offsets.pend(self._keys, group_id, transactional_id, producer, started, offsets)
            kept = await self._link.ask(question)
            if kept == 1:
                return
            if kept < 0:
                break
            await self.settle(group_id, sure=True)
        raise NotInTransaction(f"group {group_id}: the transaction of producer {producer[0]} is over")

    async def settle(self, group_id: str, sure: bool = False) -> list[Pending]:
        """Applies the offsets of committed transactions; what is pending still, of open ones.

        Only the group's coordinator may apply them. For another broker they are among what is returned.

        Args:
            sure: asks Redis even where nothing is known to be pending.
        """
        mine = self._coordinates(group_id)
        # While there are other brokers, one of them may have taken itself for the coordinator a moment ago.
        if mine and group_id in self._settled and self._cluster.alone and not sure:
            return []
        async with self._settling[group_id]:
            pending = await self._link.ask(pending_offsets.load_all(self._keys, group_id))
            if not mine:
                return pending
            if any(each.committed for each in pending):
                pending = await self._apply(group_id)
            left = [each for each in pending if not each.committed]
            if not left:
                self._settled.add(group_id)
            return left

    async def _apply(self, group_id: str) -> list[Pending]:
        """What was pending; what of it is committed has been applied."""
        above, tries = 0, _COMMIT_TRIES
        while True:
            try:
                term = await self.hold(await self.get(group_id), self._cluster.lease, above)
                # Read in the term that it is applied in: what was read before, another coordinator may have applied
                # since, and later commits with it.
                pending = await self._link.ask(pending_offsets.load_all(self._keys, group_id))
                committed = [each for each in pending if each.committed]
                for each in committed:
                    await self._store_commits(group_id, each.offsets, term)
                break
            except Overtaken as newer:
                tries -= 1
                if not tries:
                    raise
                above = max(above, newer.term)
        for each in committed:
            await self._link.ask(pending_offsets.applied(self._keys, group_id, each))
        return pending

    def relinquish(self) -> None:
        super().relinquish()
        self._settled.clear()

    # -- which there are

    async def names(self) -> list[str]:
        """Every group of this broker that is stored, or that a client joins for the first time."""
        joined = (name for name, group in self._machines.items() if group.members or group.pending)
        stored = await self._link.ask(groups.names(self._keys))
        return sorted(name for name in {*stored, *joined} if self._coordinates(name))

    async def exists(self, group_id: str) -> bool:
        """Whether a client joins the group now, or it is stored."""
        group = await self.get(group_id)
        return bool(group.members or group.pending) or await self._link.ask(groups.exists(self._keys, group_id))

    async def emptied(self, group_id: str) -> int:
        """When the group lost its last member, ms since the epoch; 0 where it never had any."""
        return await self._link.ask(groups.emptied(self._keys, group_id))

    async def delete(self, group_id: str) -> bool:
        """Deletes a group with all that is kept of it; False where it has members. Raises as `retire`."""
        return await self.retire(group_id, lambda term: self._log.delete_group(group_id, term))


class GroupKind:
    """What is particular to classic groups, see `broker.coordination.machines.Kind`."""

    name = "group"
    shared = False

    def __init__(self, settings: Settings, keys: Keyspace, native_groups: NativeGroups) -> None:
        self._keys, self._native_groups = keys, native_groups
        self._config = GroupConfig(
            settings.group_min_session_timeout_ms / 1000,
            settings.group_max_session_timeout_ms / 1000,
            settings.group_max_size,
            settings.group_initial_rebalance_delay_ms / 1000,
        )

    # -- in Redis

    def load(self, id: str) -> Question[dict[str, str]]:
        return groups.load(self._keys, id)

    def hold(self, id: str, holder: Holder, above: int) -> Question[str]:
        return groups.hold(self._keys, id, holder, above)

    def save(self, id: str, holder: Holder, fields: Mapping[str, str]) -> Question[str]:
        return groups.save(self._keys, id, holder, fields)

    def journal(self, id: str) -> Question[None]:
        return groups.journal(self._keys, id)

    def changes(self, since: bytes | None) -> Question[tuple[list[str], bytes]]:
        """Groups' members may read from this broker, so it has to know their assignments."""
        if since is not None:
            return (yield from groups.changed_since(self._keys, since))
        end = yield from groups.journal_end(self._keys)
        return (yield from groups.names(self._keys)), end

    # -- machines

    def new(self, id: str) -> Group:
        return Group(id, self._config, _new_member_id)

    def from_fields(self, id: str, fields: Mapping[str, str], now: float) -> Group | None:
        if "state" not in fields:  # it never had members
            return None
        return from_fields(id, fields, self._config, _new_member_id, now)

    def to_fields(self, machine: Group) -> dict[str, str]:
        return to_fields(machine, now_ms())

    # -- events and effects

    def takes_over(self, event: Event) -> bool:
        """A commit without a generation is not a member's."""
        return not (isinstance(event, Commit) and event.generation < 0)

    def handle(self, machine: Group, event: Event, now: float) -> list[Effect]:
        state, generation = machine.state, machine.generation
        effects = machine.handle(event, now)
        if machine.state is not state:
            members = len(machine.members)
            log.info("group %s: %s, generation %d, %d members", machine.id, machine.state, machine.generation, members)
        if machine.generation != generation:
            metrics.rebalanced(machine.id)
        return effects

    def carry_out(self, machine: Group, effect: Removed) -> None:
        self._native_groups.member_left(machine.id, effect.member_id)

    def changed(self, machine: Group) -> None:
        self._native_groups.reassigned(machine)

    def unstored(self, result: Any) -> Any:
        """Members join again; an answer that is an error code stays as it is."""
        return result if isinstance(result, ErrorCode) else type(result)(ErrorCode.coordinator_not_available)


def _new_member_id(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4()}"
