"""Which brokers share this Redis, and which of them leads a partition or coordinates a group.

Every broker announces itself (`broker.heartbeat.interval.ms`) and counts those in that it has heard of within
`broker.session.timeout.ms`. Leaders and coordinators follow from the live node ids alone, by rendezvous hashing: no
broker has to be told, and when one comes or goes only its own share moves. For a moment two may differ in whom they
count in. That is harmless for partitions, which any broker can serve, and a group is stored with every change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from uuid import UUID

from ketch.config import Settings
from ketch.errors import KetchError, StorageUnavailable
from ketch.store.registry import Announced, Node, NodeIdTaken, Registry

log = logging.getLogger(__name__)

_FIRST_BEAT_S = 0.05
_RETRY_S = 0.25  # between two looks at a node id that may come free


class Cluster:
    """The live brokers, as this one sees them. Before `join` and without Redis it is alone or as last seen.

    Args:
        changed: called when brokers have come or gone.
        beat: called after every heartbeat while there are other brokers.
    """

    def __init__(
        self, settings: Settings, registry: Registry, changed: Callable[[], None], beat: Callable[[], Awaitable[None]]
    ) -> None:
        self._settings, self._registry, self._changed, self._beat = settings, registry, changed, beat
        self._interval = settings.broker_heartbeat_interval_ms / 1000
        self._timeout = settings.broker_session_timeout_ms / 1000
        self._own = Node(settings.node_id, *settings.advertised(settings.port))
        self._nodes: dict[int, Node] = {self._own.id: self._own}
        self._heard: dict[int, tuple[int, float]] = {}  # node id -> what it said last, and when that came here
        self._updated = 0.0
        self._owners: dict[bytes, int] = {}
        self._told = False  # that another broker has this node id

    @property
    def nodes(self) -> list[Node]:
        """The live brokers by node id, this one included."""
        return [self._nodes[node_id] for node_id in sorted(self._nodes)]

    @property
    def alone(self) -> bool:
        return len(self._nodes) == 1

    def leader(self, topic_id: UUID, index: int) -> int:
        """The node id of the broker that clients are to read and write this partition through."""
        return self._own.id if self.alone else self._owner(b"%b:%d" % (topic_id.bytes, index))

    def leaders(self, topic_id: UUID, partitions: int) -> tuple[int, ...]:
        """The leaders of a topic's partitions, by index."""
        if self.alone:
            return (self._own.id,) * partitions
        return tuple(self.leader(topic_id, index) for index in range(partitions))

    def coordinator(self, group: str) -> Node:
        """The broker that coordinates the group."""
        return self._nodes[self._owner(b"group:" + group.encode())]

    def coordinates(self, group: str) -> bool:
        """Whether this broker coordinates the group."""
        return self.coordinator(group).id == self._own.id

    def leads(self, topic_id: UUID, index: int) -> bool:
        """Whether clients come to this broker for the partition."""
        return self.leader(topic_id, index) == self._own.id

    def _owner(self, key: bytes) -> int:
        if self.alone:
            return self._own.id
        owner = self._owners.get(key)
        if owner is None:
            owner = self._owners[key] = max(self._nodes, key=lambda node_id: _weight(node_id, key))
        return owner

    # -- coming, staying, going

    async def join(self, port: int, alone: bool) -> None:
        """Announces this broker.

        Args:
            port: it listens on.
            alone: Redis was started by this broker, so whoever is said to be there is not.

        Raises:
            KetchError: another broker has this node id.
            StorageUnavailable: Redis is gone.
        """
        self._own = Node(self._own.id, *self._settings.advertised(port))
        self._nodes = {self._own.id: self._own}
        if alone:
            await self._registry.clear()
        first: Announced | None = None
        while True:
            try:
                self._take(await self._registry.announce(self._own))
                return
            except NodeIdTaken as taken:
                if first is None:
                    log.info("node id %d was %s's: waiting until that is gone", self._own.id, _address(taken.holder))
                    first = taken.holder
                elif taken.holder.seen != first.seen:
                    raise KetchError(
                        f"Node id {self._own.id} is the broker's at {_address(taken.holder)}: choose another --node-id."
                    ) from None
            await asyncio.sleep(_RETRY_S)

    async def stay(self) -> None:
        """Heartbeats, until cancelled. The first ones come fast: brokers that start together find each other so."""
        pause = _FIRST_BEAT_S
        while True:
            await asyncio.sleep(min(pause, self._interval))
            pause *= 2
            try:
                self._take(await self._registry.announce(self._own))
                self._told = False
                if not self.alone:
                    await self._beat()
            except NodeIdTaken as taken:
                if not self._told:
                    log.error("node id %d is also used by %s: stop one of them", self._own.id, _address(taken.holder))
                self._told = True
            except StorageUnavailable:
                pass  # the links say so themselves, and others can't be reached either
            except KetchError as error:
                log.warning("brokers: %s", error)

    async def leave(self) -> None:
        """Others take over at once."""
        with contextlib.suppress(KetchError):  # they will notice
            await self._registry.withdraw(self._own.id)

    def _take(self, announced: list[Announced]) -> None:
        now = time.monotonic()
        # While nobody could reach Redis nobody could speak: everybody's time begins anew.
        paused = self._updated and now - self._updated > self._timeout
        first, self._updated = not self._updated, now
        nodes = {self._own.id: self._own}
        for entry in announced:
            seen, at = self._heard.get(entry.node.id, (0, 0.0))
            if seen != entry.seen:
                at = now - entry.silent / 1000 if first else now
            elif paused:
                at = now
            self._heard[entry.node.id] = (entry.seen, at)
            if now - at < self._timeout and entry.node.id != self._own.id:
                nodes[entry.node.id] = entry.node
        if nodes != self._nodes:
            log.info("brokers: %s", ", ".join(f"{n.id} at {n.host}:{n.port}" for _, n in sorted(nodes.items())))
            self._nodes = nodes
            self._owners.clear()
            self._changed()


def _weight(node_id: int, key: bytes) -> bytes:
    return blake2b(b"%d:%b" % (node_id, key), digest_size=8).digest()


def _address(entry: Announced) -> str:
    return f"{entry.node.host}:{entry.node.port}"
