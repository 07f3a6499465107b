"""The topics as the broker knows them: what it read of their hashes in Redis, for at most `metadata_max_age_ms`.

It owns the cache and the order of questions and changes: a question that was sent before a change of this broker's own
never overwrites what the change made known. `store.topics.hashes` asks and writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from ketch.configs.topic_table import CONFIGS
from ketch.errors import KetchError
from ketch.redis.driver import Driver
from ketch.store.keys import Keyspace
from ketch.store.topics import hashes
from ketch.store.topics.hashes import Created
from ketch.store.topics.topic import Topic, TopicKey, legal_name
from ketch.tasks import lasting

_CACHE_MAX = 20_000  # names; a client that asks for ever new ones must not fill memory
_LOADED_AT_ONCE = 200  # topics whose hashes are parsed in one go, some 8 ms
_OTHERS_CREATION_S = 0.02  # between looks whether another broker has finished creating a topic


class TopicCache:
    """Reads and writes the topics. Every method raises StorageUnavailable where Redis is needed and gone.

    Args:
        max_age: s that an answer is held.
        defaults: configs of a topic whose hash does not say.

    Attributes:
        cached: by name, when it was read (monotonic seconds) and the topic, None where there is none. A change makes
            another tuple, or takes it away.
    """

    def __init__(self, keys: Keyspace, driver: Driver, max_age: float, defaults: Mapping[str, str]) -> None:
        self._keys, self._driver, self.max_age, self._defaults = keys, driver, max_age, defaults
        self.cached: dict[str, tuple[float, Topic | None]] = {}
        self._names: tuple[float, list[str]] | None = None
        self.changes = 0  # how often something was forgotten: a topic was made, changed or deleted here
        self._ids: dict[uuid.UUID, str] = {}
        self._loading: dict[str, asyncio.Task[dict[str, Topic | None]]] = {}  # the question that is on its way
        self._loads: list[set[str]] = []  # for each question on its way, what was forgotten meanwhile

    # -- asking

    def known(self, key: str | uuid.UUID) -> Topic | None:
        """The topic with this name or id, if the cache has it; None where only Redis knows whether there is one."""
        name = key if isinstance(key, str) else self._ids.get(key)
        cached = None if name is None else self._fresh(name)
        topic = None if cached is None else cached[1]
        return topic if topic is None or name is key or topic.id == key else None

    def recent(self, name: str, age: float) -> Topic | None:
        """The topic as it was read not more than `age` seconds ago; None where it was not."""
        read, topic = self.cached.get(name, (0.0, None))
        return topic if time.monotonic() - read < age else None

    def _fresh(self, name: str) -> tuple[float, Topic | None] | None:
        """What the cache has of a name, where it is not too old."""
        cached = self.cached.get(name)
        return cached if cached is not None and time.monotonic() - cached[0] < self.max_age else None

    def held(self, wire: bytes, by_id: bool) -> tuple[TopicKey, tuple[float, Topic | None] | None]:
        """What a request names, and what is cached of it, however old: None where that is no topic.

        Args:
            wire: the topic's name, or its id's bytes.
        """
        key = uuid.UUID(bytes=wire) if by_id else wire.decode(errors="replace")
        name = self._ids.get(key) if isinstance(key, uuid.UUID) else key
        cached = None if name is None or not legal_name(name) else self.cached.get(name)
        topic = None if cached is None else cached[1]
        return key, cached if topic is not None and key in (topic.id, topic.name) else None

    async def get(self, name: str) -> Topic | None:
        """The topic, or None where there is none."""
        cached = self._fresh(name)
        if cached is not None:
            return cached[1]
        return (await asyncio.shield(self._loading.get(name) or self._ask([name])))[name]

    async def prefetch(self, keys: Iterable[TopicKey]) -> None:
        """Has Redis asked at once for all that `get` or `by_id` would ask for one by one.

        Where that fails it says nothing: they will.
        """
        names = dict.fromkeys(key if isinstance(key, str) else self._ids.get(key, "") for key in keys)
        if self.max_age and len(names) > 1:
            with contextlib.suppress(KetchError):
                await self._refresh(names)

    async def reread(self, topic: Topic) -> Topic | None:
        """The topic as Redis has it now, whatever is cached; None where it is gone, or another one has its name."""
        now = (await self._load([topic.name]))[topic.name]
        return now if now is not None and now.id == topic.id else None

    async def by_id(self, topic_id: uuid.UUID) -> Topic | None:
        """The topic with this id, or None."""
        name = self._ids.get(topic_id) or await self._driver.ask(hashes.name_of(self._keys, topic_id))
        topic = None if name is None else await self.get(name)
        return topic if topic is not None and topic.id == topic_id else None

    def known_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic with this id, if the cache has it; the topic may be gone since."""
        return self._ids.get(topic_id)

    async def name_of(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic with this id, as Redis has it now."""
        return await self._driver.ask(hashes.name_of(self._keys, topic_id))

    async def all(self) -> list[Topic]:
        """Every topic, by name."""
        now = time.monotonic()
        known = self._names
        if known is None or now - known[0] >= self.max_age:
            known = self._names = (now, await self._driver.ask(hashes.names(self._keys)))
            await self._refresh(known[1])
        # `forget` may have dropped self._names meanwhile: a topic was made or deleted while this one waited.
        return [topic for name in known[1] if (topic := await self.get(name)) is not None]

    async def names(self) -> list[str]:
        """The names of all topics, as Redis has them now."""
        return await self._driver.ask(hashes.names(self._keys))

    # -- changing: each change goes on to its end even if the caller is cancelled

    async def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        """Makes a topic.

        Raises:
            TopicExists: it is there already, or another broker made it at this moment.
        """
        return await asyncio.shield(lasting(self._create(name, partitions, configs)))

    async def _create(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        # What has no effect is only in the hash where it was asked for.
        configs = {name: value for name, value in self._defaults.items() if not CONFIGS[name].idle} | dict(configs)
        while (created := await self._driver.ask(hashes.create(self._keys, name, partitions, configs))) != Created.DONE:
            if created is Created.REMAINS:
                await self._purge(name)
            else:
                await asyncio.sleep(_OTHERS_CREATION_S)
        self.forget(name)
        topic = await self.get(name)
        assert topic is not None
        return topic

    async def alter(self, topic: Topic, configs: Mapping[str, str | None]) -> None:
        """Changes configs; None stands for the broker's default. Other brokers see it when their cache is too old.

        Raises:
            UnknownTopicOrPartition: the topic is gone, or another one has its name.
        """
        try:
            await self._driver.ask(hashes.alter(self._keys, topic, configs))
        finally:  # the change is made even if the client that asked is gone
            self.forget(topic.name)

    async def grow(self, topic: Topic, partitions: int) -> bool:
        """Gives it that many partitions; False where it has as many already. Raises as `alter`."""
        try:
            return await self._driver.ask(hashes.grow(self._keys, topic, partitions))
        finally:
            self.forget(topic.name)

    async def note(self, topic: Topic, field: str, value: str | int) -> None:
        """Writes one field that Ketch itself keeps in the hash of a topic that exists."""
        await self._driver.ask(hashes.note(self._keys, topic, field, value))
        self.forget(topic.name)

    async def delete(self, topic: Topic) -> None:
        """Deletes a topic with its records, commits and producer states."""
        await asyncio.shield(lasting(self._delete(topic.name)))

    async def _delete(self, name: str) -> None:
        await self._driver.ask(hashes.unlist(self._keys, name))
        await self._purge(name)
        self.forget(name)

    async def _purge(self, name: str) -> None:
        commits = await self._driver.ask_each(lambda: hashes.scan(self._keys.commits(name)))
        await self._driver.ask(hashes.purge(self._keys, name, [key for found in commits for key in found]))

    # -- the cache

    def forget(self, name: str) -> None:
        """Drops what is cached of a topic, so that the next question goes to Redis."""
        self.changes += 1
        self.cached.pop(name, None)
        self._loading.pop(name, None)
        self._names = None
        for forgotten in self._loads:
            forgotten.add(name)

    def forget_all(self) -> None:
        """Drops what is cached of every topic."""
        for name in {*self.cached, *self._loading}:
            self.forget(name)

    async def _refresh(self, names: Iterable[str]) -> None:
        """Asks for those of which the answer is too old; requests are answered in between."""
        stale = [name for name in names if not self._fresh(name) and name not in self._loading and legal_name(name)]
        for first in range(0, len(stale), _LOADED_AT_ONCE):
            await asyncio.shield(self._ask(stale[first : first + _LOADED_AT_ONCE]))

    def _ask(self, names: Sequence[str]) -> asyncio.Task[dict[str, Topic | None]]:
        """Asks for these; all who find the answer too old meanwhile share the question."""
        loading = lasting(self._load(names))
        self._loading |= dict.fromkeys(names, loading)
        loading.add_done_callback(partial(self._loaded, names))
        return loading

    def _loaded(self, names: Sequence[str], task: asyncio.Task[dict[str, Topic | None]]) -> None:
        for name in names:
            if self._loading.get(name) is task:
                del self._loading[name]

    async def _load(self, names: Sequence[str]) -> dict[str, Topic | None]:
        forgotten = set[str]()
        self._loads.append(forgotten)
        try:
            topics = await self._driver.ask(hashes.lookup(self._keys, names, self._defaults))
        finally:
            self._loads = [each for each in self._loads if each is not forgotten]
        now = time.monotonic()
        if max(len(self.cached), len(self._ids)) > _CACHE_MAX:  # ids of deleted topics are among them
            self.cached.clear()
            self._ids.clear()
        found = dict(zip(names, topics, strict=True))
        for name, topic in found.items():
            if name not in forgotten:  # else it may say what was before a change of our own
                self.cached[name] = (now, topic)
            if topic is not None:
                self._ids[topic.id] = name
        return found
