"""What the broker learns of a topic from its batches and notes in the topic's hash, for later starts and other brokers.

`producerCompression`: the codec last produced with, which `compression.type=producer` fetches with, since entries hold
no codec. `timestampLead`: how far timestamps have run ahead of the clock, which a search by time has to allow for.
`messageBytes`: the running average of a record's size, a first guess for reads.
`largestRecord`: a power of two that no entry's payload has passed, by which a read bounds the reply it asks Redis for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ketch.errors import StorageUnavailable
from ketch.log.topic_cache import TopicCache
from ketch.store.layouts.layout import Payload
from ketch.store.topics.topic import Topic

CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
_CODEC_INTERVAL = 1.0  # seconds; two producers that use two codecs must not write the hash at every batch
_SIZE_INTERVAL = 60.0  # seconds between two writes of a topic's average, each only where it has moved by an eighth
_SIZE_OF = 1_000  # records that the average is about


@dataclass(slots=True)
class Noted:
    """What was seen of one topic's batches.

    Attributes:
        average: bytes of a record.
        size_due: when that may be written again, seconds of the monotonic clock; codec_due: the same of the codec.
    """

    average: float
    size_due: float = 0.0
    codec_due: float = 0.0


class TopicNotes:
    """Watches batches go by.

    Attributes:
        noted: what was seen of each topic's batches, by its name.
    """

    def __init__(self, topics: TopicCache) -> None:
        self._topics = topics
        self.noted: dict[str, Noted] = {}

    def news(self, topic: Topic, codec: int, latest: int, batch: Payload, now: int) -> dict[str, str | int]:
        """What is new in a batch that is about to be stored: fields for `write`, mostly none.

        Args:
            codec: Kafka's number of the compression that it came with.
            latest: the latest timestamp in it, ms.
            now: ms.
        """
        count, size = batch.count, batch.size
        noted = self.noted.get(topic.name)
        if noted is None:
            noted = self.noted[topic.name] = Noted(topic.message_bytes or size / count)
        noted.average += (size / count - noted.average) * min(1.0, count / _SIZE_OF)
        name, before = CODEC_NAMES[codec], topic.message_bytes
        average = round(noted.average)
        news: dict[str, str | int] = {}
        if latest - now > topic.timestamp_lead or size > topic.largest_record:
            news |= topic.notes(batch, latest, now)
        if abs(average - before) > before / 8 and (clock := time.monotonic()) >= noted.size_due:
            noted.size_due = clock + _SIZE_INTERVAL
            news["messageBytes"] = average
        if name != topic.compression_seen and topic.configs["compression.type"] == "producer":
            clock = time.monotonic()
            if clock >= noted.codec_due:
                noted.codec_due = clock + _CODEC_INTERVAL
                news["producerCompression"] = name
        return news

    async def write(self, topic: Topic, news: dict[str, str | int]) -> None:
        """Notes it.

        Raises:
            StorageUnavailable: Redis is gone; the batch that comes again is looked at anew.
        """
        try:
            for field, value in news.items():
                await self._topics.note(topic, field, value)
        except StorageUnavailable:
            noted = self.noted[topic.name]
            noted.size_due = noted.codec_due = 0.0
            raise


def fetch_codec(topic: Topic) -> int:
    """Kafka's number of the codec that a consumer of the topic gets."""
    wanted = topic.configs["compression.type"]
    if wanted == "producer":
        wanted = topic.compression_seen
    return CODEC_NAMES.index(wanted) if wanted in CODEC_NAMES else 0
