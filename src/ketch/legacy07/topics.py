"""All topics of this Redis, kept up to date for ZooKeeper without asking again for those that have not changed.

It owns what it has read: the names, and the hash of each topic. Both are read over the connection that has client
tracking (`log.watcher`), so Redis pushes the first change of each, whoever makes it: this broker, another one, or a
person by redis-cli. What was pushed is read again, and is tracked again by that. The cases:

- Nothing has changed. One question is asked all the same, how many topics there are. It finds out whether the
  connection still answers, and whether names are gone for which there was no push (FLUSHALL).
- A key is changed while it is being read. Its waiter was added before the question, so the key is read once more.
- The connection is lost, and pushes with it. The watcher then wakes its waiters for every key, so all is read again.
- A question fails. What was to be read is read the next time.
- A default of topic configs is changed (`Log.configure`). All hashes are read again, because they need not say that
  config themselves.

It serves no requests: these go by `log.topic_cache`, which holds topics for a short time and has none of them tracked.
"""

from __future__ import annotations

from collections.abc import Sequence

from ketch.log.log import Log
from ketch.store.topics import hashes
from ketch.store.topics.topic import Topic

_AT_ONCE = 500  # hashes in one question: appends share the connection


class WatchedTopics:
    """The topics, for one task that asks for them again and again."""

    def __init__(self, log: Log) -> None:
        self._log, self._waiter = log, log.watcher.waiter()
        self._topics: dict[str, Topic | None] = {}  # by name; None: the hash is damaged, or went while it was read
        self._names_stale = True
        self._stale = set[str]()  # names whose hashes are to be read
        self._defaults = dict(log.defaults)
        self._listed: list[Topic] | None = None

    async def changed(self, timeout: float) -> bool:
        """Until Redis says that a topic was made, deleted or changed; False if it does not within `timeout` seconds."""
        return await self._waiter.wait(timeout)

    async def all(self) -> list[Topic]:
        """Every topic, by name; the same list as long as none has changed.

        Raises:
            StorageUnavailable: Redis is gone.
        """
        self._note_changes()
        if self._names_stale or await self._log.watcher.ask(hashes.count(self._log.keys)) != len(self._topics):
            await self._read_names()
        stale = sorted(self._stale)
        for start in range(0, len(stale), _AT_ONCE):
            await self._read(stale[start : start + _AT_ONCE])
        if self._listed is None:
            self._listed = [topic for _, topic in sorted(self._topics.items()) if topic is not None]
        return self._listed

    def _note_changes(self) -> None:
        keys, changed = self._log.keys, self._waiter.take()
        self._names_stale = self._names_stale or keys.topics in changed
        if self._defaults != self._log.defaults:
            self._defaults = dict(self._log.defaults)
            self._stale |= self._topics.keys()
        elif changed:
            self._stale |= {name for name in self._topics if keys.topic(name) in changed}

    async def _read_names(self) -> None:
        self._names_stale = True
        self._waiter.add_key(self._log.keys.topics)
        names = set(await self._log.watcher.ask(hashes.names(self._log.keys)))
        self._stale = (self._stale | (names - self._topics.keys())) & names
        self._topics = {name: self._topics.get(name) for name in names}
        self._names_stale, self._listed = False, None

    async def _read(self, names: Sequence[str]) -> None:
        for name in names:
            self._waiter.add_key(self._log.keys.topic(name))
        found = await self._log.watcher.ask(hashes.lookup(self._log.keys, names, self._defaults))
        self._topics |= zip(names, found, strict=True)
        self._stale -= set(names)
        self._listed = None
