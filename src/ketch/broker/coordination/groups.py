"""The groups that this broker coordinates, of every kind, and their committed offsets.

`Groups` has the machines run by `broker.coordination.machines`, with Redis's side of them from
`store.coordination.groups`. It owns what all kinds of groups share: commits, which are stored in the term in which the
group admitted them, offsets of transactions, and which groups there are. What is particular to a kind is in
`broker.coordination.kinds`; a new kind is one more row in `Groups.__init__`. It may not look into a machine beyond what
handlers see.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from kio.schema.errors import ErrorCode

from ketch import metrics
from ketch.broker.coordination.cluster import Cluster
from ketch.broker.coordination.group_configs import GroupConfigs
from ketch.broker.coordination.kinds.classic import ClassicKind
from ketch.broker.coordination.kinds.consumer import ConsumerKind
from ketch.broker.coordination.kinds.kind import Kinds
from ketch.broker.coordination.kinds.share import ShareKind
from ketch.broker.coordination.machines import Machines, Token
from ketch.broker.coordination.native_groups import NativeGroups
from ketch.configs.settings import Settings
from ketch.coordinator.classic.events import Commit
from ketch.coordinator.classic.group import Group
from ketch.coordinator.consumer.group import ConsumerGroup
from ketch.coordinator.share.group import ShareGroup
from ketch.errors import NotInTransaction
from ketch.log.log import Log
from ketch.redis.question import Question
from ketch.store.coordination import groups, pending_offsets
from ketch.store.coordination.commits import Committed
from ketch.store.coordination.pending_offsets import Pending
from ketch.store.coordination.terms import Overtaken
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.scripts import Holder

AnyGroup = Group | ConsumerGroup | ShareGroup

_COMMIT_TRIES = 5  # where other commits of the group take a new term at the same time
_NONE_PENDING_MAX = 20_000  # groups of which that is remembered: clients choose their names


class Groups:
    """The groups that this broker coordinates.

    Args:
        native_groups: follow commits, assignments and members that go.

    Attributes:
        configs: those of single groups.
    """

    def __init__(self, settings: Settings, log_: Log, cluster: Cluster, native_groups: NativeGroups) -> None:
        self.configs = GroupConfigs(settings, log_)
        classic = ClassicKind(settings, native_groups)  # what is stored without a type
        policy = settings.group_consumer_migration_policy
        consumer = ConsumerKind(self.configs, native_groups, classic, policy)
        self._kinds = Kinds[AnyGroup](classic, consumer, ShareKind(self.configs))
        self._machines = Machines(GroupNamespace(log_.keys), self._kinds, settings.node_id, log_, cluster)
        self._log, self._cluster, self._native_groups = log_, cluster, native_groups
        self._link, self._keys, self._session = log_.driver, log_.keys, log_.session
        self._followed: bytes | None = None  # up to where this broker knows other brokers' changes
        self._doubtful: dict[str, int] = {}  # the highest term of a group in which a commit got no answer
        self._none_pending: set[str] = set()  # groups for which no transaction has offsets pending
        self._applying: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        cluster.listen(self.relinquish, self._follow)

    # -- asking a group: see the methods of these names of `Machines`

    async def submit(self, group_id: str, make: Callable[[Token], Any]) -> Any:
        """Feeds an event to a group and waits for its reply; see `Machines.submit`."""
        return await self._machines.submit(group_id, make)

    def require(self, group_id: str) -> None:
        """Raises NotCoordinator unless this broker coordinates the group."""
        self._machines.require(group_id)

    async def get(self, group_id: str) -> AnyGroup:
        """The group as it stands; one of which nothing is stored is a new one."""
        return await self._machines.get(group_id)

    def type_of(self, group: AnyGroup) -> str:
        """Kafka's name of its type, as ListGroups has it."""
        return self._kinds.of(group).name

    async def hold(self, group: AnyGroup, lease: bool) -> str:
        """The term in which the group's commits may be written; see `Machines.hold`."""
        return await self._machines.hold(group, lease)

    async def retire(self, group_id: str, remove: Callable[[str], Awaitable[None]]) -> bool:
        """Takes a group out of service while `remove` deletes what is stored of it; see `Machines.retire`."""
        return await self._machines.retire(group_id, remove)

    def stop(self) -> None:
        """Answers clients that wait; timers end."""
        self._machines.stop()

    # -- other brokers

    def relinquish(self) -> None:
        """Brokers have come or gone: drops the groups that are another's now."""
        self._machines.relinquish()
        self._none_pending.clear()

    async def _follow(self) -> None:
        """Looks at the groups that other brokers have changed: members of theirs may read from this broker."""
        changed, end = await self._link.ask(_changes(self._keys, self._followed))
        await self._machines.observe(changed)
        self._followed = end

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
        if commits:
            await self.apply_pending(group_id)  # what transactions have committed before counts before
        above, tries = self._doubtful.get(group_id, 0), _COMMIT_TRIES
        while True:
            error, group = await self._machines.submit_to(group_id, make)
            if error or not commits:
                return ErrorCode(error)
            try:
                # Asked for as late as here: this broker may have been paused since the request came.
                lease = self._cluster.leased_at(received)
                await self._store_commits(group_id, commits, await self._machines.hold(group, lease, above, received))
                return ErrorCode.none
            except Overtaken as newer:  # by another request of this broker, or the commits know of a higher term
                tries -= 1
                if not tries or (newer.session != self._session and newer.term <= above):
                    raise
                above = max(above, newer.term)

    async def _store_commits(self, group_id: str, commits: Mapping[TopicPartition, Committed], term: str) -> None:
        try:
            await self._log.commit(group_id, commits, term)
        except Overtaken:
            raise
        except BaseException:
            # It may be on its way still, in the buffers of a connection that was given up, and come to Redis when the
            # network is back. The commits after it take a higher term, so that it is refused then.
            self._doubtful[group_id] = max(int(term), self._doubtful.get(group_id, 0))
            raise
        if int(term) > self._doubtful.get(group_id, int(term)):
            del self._doubtful[group_id]  # terms rise
        for topic, count in Counter(topic for topic, _ in commits).items():
            metrics.committed(group_id, topic, count)
        self._native_groups.committed(group_id, commits)

    # -- offsets of transactions, see `store.coordination.pending_offsets`

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
            NotEnoughReplicas, NotEnoughReplicasAfterAppend: they lack the copies that commits have.
        """

        def pend() -> Awaitable[int]:
            asked = pending_offsets.pend(self._keys, group_id, transactional_id, producer, started, offsets)
            return self._link.ask(asked)

        for _ in range(_COMMIT_TRIES):
            self._none_pending.discard(group_id)
            kept = await self._log.copied(self._link, [self._keys.pending_offsets(group_id)], pend)
            if kept == 1:
                return
            if kept < 0:
                break
            await self.apply_pending(group_id, sure=True)
        raise NotInTransaction(f"group {group_id}: the transaction of producer {producer[0]} is over")

    async def apply_pending(self, group_id: str, sure: bool = False) -> list[Pending]:
        """Applies the offsets of committed transactions; what is pending still, of open ones.

        Only the group's coordinator may apply them. For another broker they are among what is returned.

        Args:
            sure: asks Redis even where nothing is known to be pending.
        """
        mine = self._machines.coordinates(group_id)
        # While there are other brokers, one of them may have taken itself for the coordinator a moment ago.
        if mine and group_id in self._none_pending and self._cluster.alone and not sure:
            return []
        async with self._applying.setdefault(group_id, asyncio.Lock()):
            pending = await self._link.ask(pending_offsets.load_all(self._keys, group_id))
            if not mine:
                return pending
            if any(each.committed for each in pending):
                pending = await self._apply_committed(group_id)
            left = [each for each in pending if not each.committed]
            if not left:
                if len(self._none_pending) >= _NONE_PENDING_MAX:
                    self._none_pending.clear()
                self._none_pending.add(group_id)
            return left

    async def _apply_committed(self, group_id: str) -> list[Pending]:
        """What was pending; what of it is committed has been applied."""
        above, tries = self._doubtful.get(group_id, 0), _COMMIT_TRIES
        while True:
            try:
                term = await self._machines.hold(await self.get(group_id), self._cluster.lease, above)
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

    # -- which there are

    async def names(self) -> list[str]:
        """Every group of this broker that is stored, or that a client joins for the first time."""
        stored = await self._link.ask(groups.names(self._keys))
        joined = (name for name, group in self._machines.in_memory.items() if not group.is_idle)
        return sorted(name for name in {*stored, *joined} if self._machines.coordinates(name))

    async def exists(self, group_id: str) -> bool:
        """Whether a client joins the group now, or it is stored."""
        group = await self.get(group_id)
        return not group.is_idle or await self._link.ask(groups.exists(self._keys, group_id))

    async def emptied(self, group_id: str) -> int:
        """When the group lost its last member, ms since the epoch; 0 where it never had any."""
        return await self._link.ask(groups.emptied(self._keys, group_id))

    async def delete(self, group_id: str) -> bool:
        """Deletes a group with all that is kept of it; False where it has members. Raises as `retire`."""
        return await self.retire(group_id, lambda term: self._log.delete_group(group_id, term))


class GroupNamespace:
    """How Redis keeps groups of every kind, see `broker.coordination.machines.Namespace`."""

    name = "group"
    shared = False

    def __init__(self, keys: Keyspace) -> None:
        self._keys = keys

    def copied(self, id: str, new: bool) -> Sequence[bytes]:
        return ()  # members join again where it is lost; their commits have copies

    def load(self, id: str) -> Question[dict[str, str]]:
        return groups.load(self._keys, id)

    def hold(self, id: str, holder: Holder, above: int) -> Question[str]:
        return groups.hold(self._keys, id, holder, above)

    def save(self, id: str, holder: Holder, fields: Mapping[str, str]) -> Question[str]:
        return groups.save(self._keys, id, holder, fields)

    def journal(self, id: str) -> Question[None]:
        return groups.journal(self._keys, id)


def _changes(keys: Keyspace, since: bytes | None) -> Question[tuple[list[str], bytes]]:
    """The groups that have changed since a journal entry, all of them for None; and the journal's last entry."""
    if since is not None:
        return (yield from groups.changed_since(keys, since))
    end = yield from groups.journal_end(keys)
    return (yield from groups.names(keys)), end
