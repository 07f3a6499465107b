"""Drives the coordinator: loads groups from Redis, carries out effects, keeps the timers."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from kio.schema.errors import ErrorCode

from ketch import metrics
from ketch.broker.cluster import Cluster
from ketch.clock import now_ms
from ketch.config import Settings
from ketch.coordinator.events import Commit, Effect, Event, Persist, Removed, Reply, Tick
from ketch.coordinator.group import Group
from ketch.coordinator.member import GroupConfig, State
from ketch.coordinator.snapshot import from_fields, to_fields
from ketch.errors import KetchError, NotCoordinator, StorageUnavailable
from ketch.store.groups import GroupStore

log = logging.getLogger(__name__)


class Groups:
    """The groups that this broker coordinates. A group is loaded when a client first speaks of it.

    The cluster says whose a group is. To look at another broker's group does not take it over, or its members, whose
    heartbeats go there, would expire here; only a member that speaks of it here does.

    Args:
        removed: told of every member that is gone, with its group.
        changed: told when a group's members or assignments have changed.
    """

    def __init__(
        self,
        settings: Settings,
        store: GroupStore,
        cluster: Cluster,
        removed: Callable[[Group, str], None],
        changed: Callable[[Group], None],
    ) -> None:
        self.store = store
        self._cluster = cluster
        self._config = GroupConfig(
            settings.group_min_session_timeout_ms / 1000,
            settings.group_max_session_timeout_ms / 1000,
            settings.group_max_size,
            settings.group_initial_rebalance_delay_ms / 1000,
        )
        self._removed, self._changed = removed, changed
        self._groups: dict[str, Group] = {}
        self._node = str(settings.node_id)
        self._loading: dict[tuple[str, bool], asyncio.Task[Group]] = {}
        self._timers: dict[str, tuple[float, asyncio.TimerHandle]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._saving: Counter[str] = Counter()
        self._waiting: dict[asyncio.Future[Any], str] = {}
        self._journal: bytes | None = None  # how far this broker knows what others changed

    async def submit(self, group_id: str, make: Callable[[asyncio.Future[Any]], Event]) -> Any:
        """Feeds an event to a group and waits for its reply.

        Args:
            make: the event from its token.

        Raises:
            NotCoordinator: it is another broker's.
            StorageUnavailable: the group can't be loaded now.
        """
        self.require(group_id)
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        event = make(reply)
        by_member = not (isinstance(event, Commit) and event.generation < 0)
        group = await self._get(group_id, by_member)
        if group.members and group_id not in self._groups:  # another broker's, and nobody of it asks
            self._carry_out(group, group.handle(event, time.monotonic()))
        else:
            self._handle(group, event)
        self._waiting[reply] = group_id
        try:
            return await reply
        finally:
            del self._waiting[reply]

    def require(self, group_id: str) -> None:
        """Raises NotCoordinator unless this broker coordinates the group."""
        if not self._cluster.coordinates(group_id):
            raise NotCoordinator(f"group {group_id} is broker {self._cluster.coordinator(group_id).id}'s")

    async def get(self, group_id: str) -> Group:
        """The group as it stands, loaded if need be; a group that never was is an empty one."""
        return await self._get(group_id, take=False)

    async def _get(self, group_id: str, take: bool) -> Group:
        group = self._groups.get(group_id)
        if group is not None:
            return group
        task = self._loading.get((group_id, take))
        if task is None:
            task = self._loading[group_id, take] = asyncio.get_running_loop().create_task(self._load(group_id, take))
            task.add_done_callback(lambda _: self._loading.pop((group_id, take), None))
        return await asyncio.shield(task)

    async def names(self) -> list[str]:
        """Every group of this broker that is stored, or that somebody joins for the first time."""
        joined = (name for name, group in self._groups.items() if group.members or group.pending)
        return sorted(name for name in {*await self.store.names(), *joined} if self._cluster.coordinates(name))

    async def exists(self, group_id: str) -> bool:
        """Whether somebody joins the group now, or it is stored."""
        group = await self.get(group_id)
        return bool(group.members or group.pending) or await self.store.exists(group_id)

    async def _load(self, group_id: str, take: bool) -> Group:
        fields = await self.store.load(group_id)
        if fields:
            try:
                group = from_fields(group_id, fields, self._config, _new_member_id, time.monotonic())
            except (ValueError, KeyError, TypeError) as error:
                log.error("group %s: what is stored of it is damaged (%r); it starts anew", group_id, error)
            else:
                if group.members and not take and fields.get("broker", self._node) != self._node:
                    return group
                group = self._groups.setdefault(group_id, group)
                self._changed(group)
                self._after(group)
                return group
        return Group(group_id, self._config, _new_member_id)  # it is kept once something happens to it

    async def retire(self, group_id: str, remove: Callable[[], Awaitable[None]]) -> bool:
        """Takes a group without members out of service while `remove` deletes what is stored; False if it has members.

        Raises:
            StorageUnavailable: Redis is gone; the group is there still, as far as it was not removed.
        """
        found = await self.get(group_id)
        group = self._groups.setdefault(group_id, found)
        if group.state is not State.EMPTY:
            return False
        group.state = State.DEAD  # who comes now comes again
        try:
            await remove()
        finally:
            del self._groups[group_id]
        return True

    # -- other brokers

    def relinquish(self) -> None:
        """Brokers have come or gone: lets go of the groups that are another's now; who waits is sent there."""
        for reply, group_id in self._waiting.items():
            if not self._cluster.coordinates(group_id) and not reply.done():
                reply.set_exception(NotCoordinator(f"group {group_id} has moved to another broker"))
        for group_id in [name for name in self._groups if not self._cluster.coordinates(name)]:
            del self._groups[group_id]
            if group_id in self._timers:
                self._timers.pop(group_id)[1].cancel()

    async def follow(self) -> None:
        """Learns what other brokers' groups were assigned: their members may read here."""
        if self._journal is None:
            end = await self.store.journal_end()
            names = await self.store.names()
        else:
            names, end = await self.store.changed_since(self._journal)
        for name in names:
            if not self._cluster.coordinates(name):
                self._changed(await self._load(name, take=False))
        self._journal = end

    def stop(self) -> None:
        """Answers whoever waits for a rebalance, so that it looks for the next coordinator; timers end."""
        for reply in self._waiting:
            if not reply.done():
                reply.set_exception(StorageUnavailable("the broker is stopping"))
        for _, timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()

    # -- events and effects

    def _handle(self, group: Group, event: Event) -> None:
        group = self._groups.setdefault(group.id, group)
        before, generation = group.state, group.generation
        effects = group.handle(event, time.monotonic())
        if group.state is not before:
            log.info(
                "group %s: %s, generation %d, %d members", group.id, group.state, group.generation, len(group.members)
            )
        if group.generation != generation:
            metrics.rebalanced(group.id)
        self._carry_out(group, effects)
        self._after(group)

    def _carry_out(self, group: Group, effects: list[Effect]) -> None:
        for n, effect in enumerate(effects):
            match effect:
                case Reply(token, result):
                    _set(token, result)
                case Removed(member_id):
                    self._removed(group, member_id)
                case Persist():
                    self._changed(group)
                    # As it is now: it may change meanwhile.
                    fields = to_fields(group, now_ms()) | {"broker": self._node}
                    task = asyncio.get_running_loop().create_task(self._persist(group, fields, effects[n + 1 :]))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                    return

    async def _persist(self, group: Group, fields: dict[str, str], rest: list[Effect]) -> None:
        """Stores the group, then does what was to wait for it. Without Redis the members are sent to join again."""
        self._saving[group.id] += 1
        try:
            await self.store.save(group.id, fields)
            if not self._cluster.alone:
                await self.store.journal(group.id)
        except KetchError as error:
            log.warning("group %s: cannot be stored: %s", group.id, error)
            rest = [
                Reply(effect.token, _failed(effect.result)) if isinstance(effect, Reply) else effect for effect in rest
            ]
        finally:
            self._saving[group.id] -= 1
        self._carry_out(group, rest)
        self._after(group)

    # -- timers

    def _after(self, group: Group) -> None:
        """Sets the timer for what is due next; a group that holds nothing is let go of."""
        due = group.deadline
        if due is None:
            if not self._saving[group.id]:
                del self._saving[group.id]
                if self._groups.get(group.id) is group and group.state is not State.DEAD:
                    del self._groups[group.id]
            return
        known = self._timers.get(group.id)
        if known is not None:
            if known[0] <= due:
                return  # it looks again then: a heartbeat costs no timer
            known[1].cancel()
        delay = max(0.0, due - time.monotonic())
        timer = asyncio.get_running_loop().call_later(delay, self._tick, group.id)
        self._timers[group.id] = (due, timer)

    def _tick(self, group_id: str) -> None:
        del self._timers[group_id]
        group = self._groups.get(group_id)  # perhaps not the one that the timer was set for
        if group is not None:
            self._handle(group, Tick())


def _set(token: Any, result: Any) -> None:
    if not token.done():  # its connection may be gone
        token.set_result(result)


def _failed(result: Any) -> Any:
    if isinstance(result, ErrorCode):
        return result
    return type(result)(ErrorCode.coordinator_not_available)


def _new_member_id(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4()}"
