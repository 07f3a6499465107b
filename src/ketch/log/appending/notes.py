"""What the broker learns of a topic from its batches and notes in the topic's hash, for later starts and other brokers.

`producerCompression`: the codec last produced with, which `compression.type=producer` fetches with, since entries hold
no codec. `timestampLead`: how far timestamps have run ahead of the clock, which a search by time has to allow for.
`messageBytes`: the running average of a record's size, a first guess for reads.
`largestRecord`: a power of two that no entry's payload has passed, by which a read bounds the reply it asks Redis for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ketch.log.topic_cache import TopicCache
from ketch.store.layouts.layout import Payload
from ketch.store.topics.topic import Topic

CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
_CODEC_INTERVAL = 1.0  # seconds; two producers that use two codecs must not write the hash at every batch
_SIZE_INTERVAL = 60.0  # seconds between two writes of a topic's average, each only where it has moved by an eighth
_SIZE_OF = 1_000  # records that the average is about


@dataclass(slots=True)
class _Size:
    average: float  # bytes of a record
    next: float = 0.0  # when it may be written again


class TopicNotes:
    """Watches batches go by."""

    def __init__(self, topics: TopicCache) -> None:
        self._topics = topics
        self._codec_noted: dict[str, float] = {}
        self._sizes: dict[str, _Size] = {}

    def news(self, topic: Topic, codec: int, latest: int, batch: Payload, now: int) -> dict[str, str | int]:
        """What is new in a batch that is about to be stored: fields for `write`, mostly none.

        Args:
            codec: Kafka's number of the compression that it came with.
            latest: the latest timestamp in it, ms.
            now: ms.
        """
        news: dict[str, str | int] = dict(topic.notes(batch, latest, now))
        size = self._new_size(topic, batch)
        if size is not None:
            news["messageBytes"] = size
        name = CODEC_NAMES[codec]
        if name != topic.compression_seen and topic.configs["compression.type"] == "producer" and self._due(topic):
            news["producerCompression"] = name
        return news

    async def write(self, topic: Topic, news: dict[str, str | int]) -> None:
        """Notes it; raises StorageUnavailable where Redis is gone."""
        for field, value in news.items():
            await self._topics.note(topic, field, value)

    def _new_size(self, topic: Topic, batch: Payload) -> int | None:
        size = batch.size / batch.count
        known = self._sizes.get(topic.name)
        if known is None:
            known = self._sizes[topic.name] = _Size(topic.message_bytes or size)
        known.average += (size - known.average) * min(1.0, batch.count / _SIZE_OF)
        average, now = round(known.average), time.monotonic()
        if now < known.next or abs(average - topic.message_bytes) <= topic.message_bytes / 8:
            return None
        known.next = now + _SIZE_INTERVAL
        return average

    def _due(self, topic: Topic) -> bool:
        """Whether the codec may be written again; True counts as written now."""
        now = time.monotonic()
        due = now - self._codec_noted.get(topic.name, -_CODEC_INTERVAL) >= _CODEC_INTERVAL
        if due:
            self._codec_noted[topic.name] = now
        return due


def fetch_codec(topic: Topic) -> int:
    """Kafka's number of the codec that a consumer of the topic gets."""
    wanted = topic.configs["compression.type"]
    if wanted == "producer":
        wanted = topic.compression_seen
    return CODEC_NAMES.index(wanted) if wanted in CODEC_NAMES else 0
