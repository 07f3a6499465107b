"""Which replicas each node of Redis has, and how Kafka's clients are shown them.

It owns what is known of the nodes and asks each again after a second, and only when somebody wants to know: an answer
to Metadata, or an append that needs copies (`log.copies`). It may not touch what is stored.

What clients see. A partition's first replica is the broker that leads it: it stands for the node of Redis that has the
partition. The replicas of that node follow, each with an id of its own, made from its host and port. So the replication
factor, the number in sync and what `kafka-topics` finds by them (`--under-replicated-partitions`,
`--under-min-isr-partitions`, `--at-min-isr-partitions`) mean copies of the records, as in Kafka.

The ids of replicas are not among the brokers of Metadata, since no client may connect to them. Clients know this case:
a broker of Kafka that is down stays in the list of replicas. They show such an id without a host (Java:
`Node(id, "", -1)`) and ask nothing of it, as consumers fetch from leaders, which Produce and Fetch are sent to alone.
Other brokers in their place would be wrong: a broker holds no records, and there may be fewer brokers than copies.

In sync is what the master counts as such, see `store.append.copies`. A replica whose connection has ended is in no list
of its master's any more, so it is not shown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from ketch.errors import KetchError, StorageUnavailable
from ketch.redis.driver import Driver
from ketch.store.append import copies
from ketch.store.append.copies import Follower, Replication
from ketch.store.keys import Keyspace
from ketch.store.topics.topic import Topic
from ketch.tasks import lasting

_KNOWN_S = 1.0  # how long an answer is believed
_PATIENCE_S = 0.25  # to wait for Redis; then Metadata is answered by what was known before
_FIRST_ID = 1 << 30  # far above the node ids that people give to brokers


class Shown(NamedTuple):
    """The replicas of a partition beside its leader, as ids.

    Attributes:
        replicas: all of them.
        in_sync: those that are.
    """

    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


NONE = Shown((), ())


@dataclass(slots=True)
class _Known:
    """A node's answer, and when it came: seconds of the monotonic clock."""

    since: float
    found: Replication
    shown: Shown

    def old(self, now: float) -> bool:
        return now - self.since >= _KNOWN_S


_NOTHING = _Known(-_KNOWN_S, Replication(b"", ()), NONE)


class Followers:
    """The replicas of all nodes.

    Args:
        driver: that the nodes are asked through.
    """

    def __init__(self, driver: Driver, keys: Keyspace) -> None:
        self._driver, self._keys = driver, keys
        self._known: dict[Hashable, _Known] = {}  # by node
        self._looking: tuple[float, asyncio.Task[None]] | None = None  # the look at all nodes, and when it began
        self._looked = -_KNOWN_S
        self._everywhere: Shown | None = NONE  # the same for all partitions; None where it depends on their node
        self._topics: dict[tuple[str, int], tuple[Shown, ...]] = {}  # by name and partitions; since the last look

    async def at(self, key: bytes, least: int) -> Replication:
        """Who follows the node of a key.

        Args:
            least: with fewer in sync than this, what is known is not believed.

        Raises:
            StorageUnavailable: Redis is gone.
        """
        node = self._driver.node(key)
        known = self._known.get(node)
        if known is not None and known.found.in_sync >= least and not known.old(time.monotonic()):
            return known.found
        return await self._ask(node, key)

    def forget(self, node: Hashable) -> None:
        """Drops what is known of a node, so that the next append that needs copies asks it again."""
        self._known.pop(node, None)

    async def of(self, topic: Topic) -> tuple[Shown, ...]:
        """The replicas of each partition beside its leader, as far as they are known; empty where none has any."""
        if time.monotonic() - self._looked >= _KNOWN_S:
            await self._refresh()
        if self._everywhere is not None:
            return (self._everywhere,) * topic.partitions if self._everywhere.replicas else ()
        asked = topic.name, topic.partitions
        found = self._topics.get(asked)
        if found is None:
            found = self._topics[asked] = await self._by_node(topic)
        return found

    async def _refresh(self) -> None:
        if self._looking is None:
            self._looking = time.monotonic(), lasting(self._look())
        since, looking = self._looking
        await asyncio.wait([looking], timeout=max(0.0, since + _PATIENCE_S - time.monotonic()))

    async def _look(self) -> None:
        """Asks all nodes whether they have replicas at all, and sees whether there are several nodes."""
        try:
            found = await self._driver.ask_each(lambda: copies.replication(None))
            alike = len(found) == 1 or not any(each.followers for each in found)
            self._everywhere = shown(found[0].followers) if alike else None
        except KetchError:  # one of them is gone: the others can be asked one by one
            self._everywhere = None
        finally:
            self._looked, self._looking = time.monotonic(), None
            self._topics.clear()

    async def _by_node(self, topic: Topic) -> tuple[Shown, ...]:
        nodes: list[Hashable] = []
        asked: list[asyncio.Task[Replication]] = []
        for index in range(topic.partitions):
            key = self._keys.stream(topic.name, index)
            nodes.append(node := self._node(key))
            known, now = self._known.get(node, _NOTHING), time.monotonic()
            if node is not None and known.old(now):
                # It counts as asked now: one that hangs is waited for once, not by each topic.
                self._known[node] = _Known(now, known.found, known.shown)
                asked.append(lasting(self._ask(node, key)))
        if asked:
            await asyncio.wait(asked, timeout=_PATIENCE_S)
        found = tuple(self._known.get(node, _NOTHING).shown for node in nodes)
        return found if any(each.replicas for each in found) else ()

    async def _ask(self, node: Hashable, key: bytes) -> Replication:
        now, found = time.monotonic(), await self._driver.ask(copies.replication(key))
        self._known[node] = _Known(now, found, shown(found.followers))
        return found

    def _node(self, key: bytes) -> Hashable:
        try:
            return self._driver.node(key)
        except StorageUnavailable:
            return None


def shown(followers: Sequence[Follower]) -> Shown:
    """A node's replicas as ids, in the same order wherever their master lists them."""
    if not followers:
        return NONE
    by_id = {_id(each): each.in_sync for each in followers}
    return Shown(tuple(sorted(by_id)), tuple(sorted(id_ for id_, in_sync in by_id.items() if in_sync)))


def _id(follower: Follower) -> int:
    """The id of a replica, by its address alone: the same in all brokers and at all times."""
    digest = blake2b(f"{follower.host}:{follower.port}".encode(), digest_size=4).digest()
    return _FIRST_ID + int.from_bytes(digest, "big") % _FIRST_ID
