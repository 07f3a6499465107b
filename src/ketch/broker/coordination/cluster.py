"""Which brokers share this Redis, and which of them leads a partition or coordinates a group.

Every broker announces itself (`broker.heartbeat.interval.ms`), and counts as live those that it has heard of within
`broker.session.timeout.ms`. Leaders and coordinators follow from the live node ids alone, by rendezvous hashing:
nothing is stored or agreed on, and when a broker comes or goes only its own share moves. For a moment two brokers may
count different brokers as live. That is harmless for partitions, which any broker can serve. For groups,
`store.coordination.terms` decides who may write.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from uuid import UUID

from ketch.complaints import Complaints
from ketch.configs.settings import Settings
from ketch.errors import KetchError, StorageUnavailable
from ketch.log.log import Log
from ketch.store.cluster import brokers
from ketch.store.cluster.brokers import Announced, Node, NodeIdTaken

log = logging.getLogger(__name__)

_FIRST_BEAT_S = 0.05
_BEATS_MIN = 3  # in a session timeout, whatever the interval is set to
_DRAINED_S = 0.1  # what came while this broker was paused has been read from the sockets by then
_RETRY_S = 0.25  # between two looks at a node id that may come free
_OWNERS_MAX = 100_000  # partitions and names whose owner is remembered: clients choose the names that they ask for


class Cluster:
    """The live brokers, as this one sees them. Before `join` and without Redis it is alone or as last seen.

    Args:
        log_: names the connection, the keys and this broker process.

    Attributes:
        interval: seconds from one announcement to the next.
    """

    def __init__(self, settings: Settings, log_: Log) -> None:
        self._settings = settings
        self._link, self._keys, self._session = log_.driver, log_.keys, log_.session
        self._timeout = settings.broker_session_timeout_ms / 1000
        # Seldomer, and each heartbeat would look as if Redis had been away before it: nobody would ever be given up.
        self.interval = min(settings.broker_heartbeat_interval_ms / 1000, self._timeout / _BEATS_MIN)
        self._own = Node.of(settings.node_id, settings.announced({}))
        self._nodes: dict[int, Node] = {self._own.id: self._own}
        self._heard: dict[int, tuple[int, float]] = {}  # node id -> what it said last, and when that came here
        self._updated = 0.0
        self._announced = -math.inf  # when this broker began its last announcement that Redis took
        self._leased_since = -math.inf  # requests that were received before may be older than the lease
        self._owners: dict[bytes, int] = {}
        self._told_of: dict[str, tuple[list[Node], frozenset[int]]] = {}  # by listener, see `reached_by`
        self._told = False  # that another broker has this node id
        self._complaints = Complaints()
        self._left = False  # nobody is to count it in again
        self._changed: list[Callable[[], None]] = []
        self._beats: list[Callable[[], Awaitable[None]]] = []

    def listen(self, changed: Callable[[], None], beat: Callable[[], Awaitable[None]]) -> None:
        """Adds callbacks.

        Args:
            changed: when brokers have come or gone.
            beat: after every heartbeat while there are other brokers.
        """
        self._changed.append(changed)
        self._beats.append(beat)

    @property
    def nodes(self) -> list[Node]:
        """The live brokers by node id, this one included."""
        return [self._nodes[node_id] for node_id in sorted(self._nodes)]

    def reached_by(self, listener: str) -> list[Node]:
        """The live brokers by node id as clients of a listener are told of them; those that lack it are left out."""
        return self._seen_through(listener)[0]

    def out_of_reach(self, listener: str) -> frozenset[int]:
        """The node ids of the live brokers that lack a listener."""
        return self._seen_through(listener)[1]

    def _seen_through(self, listener: str) -> tuple[list[Node], frozenset[int]]:
        found = self._told_of.get(listener)
        if found is None:
            told = [node for each in self.nodes if (node := each.at(listener)) is not None]
            found = self._told_of[listener] = told, frozenset(self._nodes) - {node.id for node in told}
        return found

    @property
    def lease(self) -> bool:
        """Whether others must still count this broker in: it has announced itself within the session timeout.

        A broker that was paused for longer, or cut off from Redis, may have been replaced without knowing it.
        """
        return time.monotonic() - self._announced <= self._timeout

    def leased_at(self, received: float) -> bool:
        """Whether the lease holds, and has held since a request was received (seconds of the monotonic clock).

        A request may have waited behind others of its connection while this broker got its lease back.
        """
        return self.lease and received >= self._leased_since

    @property
    def alone(self) -> bool:
        return len(self._nodes) == 1

    def leader(self, topic_id: UUID, index: int) -> int:
        """The node id of the broker that clients are to read and write this partition through."""
        return self._own.id if self.alone else self._owner(b"%b:%d" % (topic_id.bytes, index))

    def leader_node(self, topic_id: UUID, index: int) -> Node:
        """As `leader`, and where it is."""
        return self._nodes[self.leader(topic_id, index)]

    def leaders(self, topic_id: UUID, partitions: int) -> tuple[int, ...]:
        """The leaders of a topic's partitions, by index."""
        if self.alone:
            return (self._own.id,) * partitions
        return tuple(self.leader(topic_id, index) for index in range(partitions))

    def coordinator(self, kind: str, name: str) -> Node:
        """The broker that coordinates what has this name: a group, where `kind` is "group"."""
        return self._nodes[self._owner(f"{kind}:{name}".encode())]

    def coordinates(self, kind: str, name: str) -> bool:
        """Whether this broker is its `coordinator`."""
        return self.coordinator(kind, name).id == self._own.id

    def leads(self, topic_id: UUID, index: int) -> bool:
        """Whether clients come to this broker for the partition."""
        return self.leader(topic_id, index) == self._own.id

    def _owner(self, key: bytes) -> int:
        if self.alone:
            return self._own.id
        owner = self._owners.get(key)
        if owner is None:
            if len(self._owners) >= _OWNERS_MAX:
                self._owners.clear()
            owner = self._owners[key] = max(self._nodes, key=lambda node_id: _weight(node_id, key))
        return owner

    # -- coming, staying, going

    async def join(self, ports: Mapping[str, int], alone: bool) -> None:
        """Announces this broker.

        Args:
            ports: it listens on, by listener.
            alone: Redis was started by this broker, so no entry in it is of a live broker.

        Raises:
            KetchError: another broker has this node id.
            StorageUnavailable: Redis is gone.
        """
        self._own = Node.of(self._own.id, self._settings.announced(ports))
        self._nodes = {self._own.id: self._own}
        self._told_of.clear()
        if alone:
            await self._link.ask(brokers.clear(self._keys))
        first: Announced | None = None
        while True:
            try:
                await self._announce()
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
        """Heartbeats, until cancelled or until the broker leaves.

        The first ones come fast: brokers that start together find each other so.
        """
        pause = _FIRST_BEAT_S
        while True:
            await asyncio.sleep(min(pause, self.interval))
            if self._left:
                return
            pause *= 2
            try:
                await self._announce()
                self._told = False
            except NodeIdTaken as taken:
                if not self._told:
                    log.error("node id %d is also used by %s: stop one of them", self._own.id, _address(taken.holder))
                self._told = True
                continue
            except Exception as error:
                self._complain(error)
                continue
            for beat in () if self.alone else self._beats:
                try:
                    await beat()
                except Exception as error:  # the others' work goes on, and so does its own announcement
                    self._complain(error)

    def _complain(self, error: Exception) -> None:
        """A line for what a heartbeat met; the next one comes whatever it was."""
        if isinstance(error, StorageUnavailable):
            return  # the links say so themselves, and others can't be reached either
        if line := self._complaints.line(f"brokers: {error}", time.monotonic()):
            log.warning(line, exc_info=None if isinstance(error, KetchError) else error)

    async def leave(self) -> None:
        """Others take over at once. It announces itself no more, though it serves for a while what is in flight."""
        self._left = True
        with contextlib.suppress(KetchError):  # they will notice
            await self._link.ask(brokers.withdraw(self._keys, self._own.id, self._session))

    async def _announce(self) -> None:
        began = time.monotonic()
        timeout_ms = self._settings.broker_session_timeout_ms
        announced = await self._link.ask(brokers.announce(self._keys, self._own, self._session, timeout_ms))
        if -math.inf < self._announced < began - self._timeout:
            self._leased_since = time.monotonic() + _DRAINED_S
        self._announced = began
        self.update(announced, time.monotonic())

    def update(self, announced: list[Announced], now: float) -> None:
        """Counts in those brokers that have announced themselves within the session timeout, and this one.

        Args:
            announced: every broker's last announcement.
            now: a clock that only rises, seconds.
        """
        # While Redis could not be reached no broker could announce itself: the time of each begins again.
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
            self._told_of.clear()
            for changed in self._changed:
                changed()


def _weight(node_id: int, key: bytes) -> bytes:
    return blake2b(b"%d:%b" % (node_id, key), digest_size=8).digest()


def _address(entry: Announced) -> str:
    return f"{entry.node.host}:{entry.node.port}"
