"""Committed offsets, for the broker: asks `store.coordination.commits` over one connection. Keeps nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from ketch.redis.driver import Driver
from ketch.store.coordination import commits, groups
from ketch.store.coordination.commits import Committed
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.topics import hashes

_AT_ONCE = 500  # partitions that are asked for in one go, some 12 ms; each command has the group's id, of up to 32 kB


class Commits:
    """Reads and writes committed offsets. Every method raises StorageUnavailable where Redis is gone.

    A `term` is what `store.coordination.groups.hold` gave; methods that take one raise Overtaken where a commit has a
    higher one.
    """

    def __init__(self, keys: Keyspace, driver: Driver) -> None:
        self._keys, self._driver = keys, driver

    async def of(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed]:
        """The committed offsets of those partitions that have one."""
        asked, found = list(partitions), dict[TopicPartition, Committed]()
        for first in range(0, len(asked), _AT_ONCE):  # requests are answered in between
            some = asked[first : first + _AT_ONCE]
            found |= await self._driver.ask(commits.committed(self._keys, group, some))
        return found

    async def partitions(self, group: str) -> list[TopicPartition]:
        """Every partition that the group has committed for."""
        return await self._driver.ask(commits.partitions(self._keys, group))

    async def store(self, group: str, made: Mapping[TopicPartition, Committed], term: str) -> None:
        """Stores committed offsets."""
        await self._driver.ask(commits.store(self._keys, group, made, term))

    async def describe(self, group: str, made: Mapping[TopicPartition, Committed]) -> None:
        """Stores what lies beside committed offsets."""
        await self._driver.ask(commits.describe(self._keys, group, made))

    async def remove(self, group: str, partitions: Iterable[TopicPartition], term: str) -> None:
        """Removes committed offsets, with the native groups."""
        await self._driver.ask(commits.remove(self._keys, group, partitions, term))

    async def forget_topic(self, topic: str, partitions: int) -> None:
        """A topic is gone: removes what lies beside every group's commits on it."""
        names = await self._driver.ask(groups.names(self._keys))
        await self._driver.ask(commits.forget_topic(self._keys, names, topic, partitions))

    async def adopt(self, partitions: Mapping[str, int], now: int) -> dict[str, int]:
        """Lists the commits of these topics that another Redis client has SET; how many of each group.

        Args:
            partitions: how many each topic has.
            now: ms since the epoch, when their retention begins.
        """
        found = await self._driver.ask_each(lambda: hashes.scan(self._keys.every_commit()))
        named = commits.by_group(self._keys, chain.from_iterable(found), partitions)
        return await self._driver.ask(commits.adopt(self._keys, named, now))
