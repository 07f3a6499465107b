"""The topics as consumer groups see them: all of them at one moment, made anew only when one has come, gone or grown.

Each heartbeat of a consumer group brings them to the group (`coordinator.consumer`), which looks at its own again where
they are newer than the last. What the broker knows of topics is in `log.topic_cache`; this asks it at most every
`_EVERY_S`, and at once after a change of this broker's own.
"""

from __future__ import annotations

import time

from ketch.coordinator.consumer.topics import TopicInfo, Topics
from ketch.log.topic_cache import TopicCache

_EVERY_S = 1.0


class TopicImages:
    """Makes the topics of the moment."""

    def __init__(self, topics: TopicCache) -> None:
        self._topics = topics
        self._image = Topics({})
        self._next = 0.0  # when it is looked again
        self._changes = -1  # of the cache, as of the last look

    async def current(self) -> Topics:
        """All topics; the same object while they are the same.

        Raises:
            StorageUnavailable: Redis is gone.
        """
        changes, now = self._topics.changes, time.monotonic()
        if now >= self._next or changes != self._changes:
            every = await self._topics.all()
            found = {topic.name: TopicInfo(str(topic.id), topic.partitions) for topic in every}
            if found != self._image.by_name:
                self._image = Topics(found, self._image.serial + 1)
            self._next, self._changes = now + _EVERY_S, changes
        return self._image
