"""What the broker learns of a topic from its batches and keeps in the topic's hash, for its own restarts and its peers.

`producerCompression`: the codec last produced with, which `compression.type=producer` fetches with, since entries hold
no codec. `timestampLead`: how far timestamps have run ahead of the clock, which a search by time has to allow for.
`largestRecord`: a power of two that no entry's payload has passed, by which a read bounds the reply it asks Redis for.
"""

from __future__ import annotations

import time

from ketch.records import BatchHeader
from ketch.store.layout import Payload
from ketch.store.topics import Catalog, Topic

CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
_CODEC_INTERVAL = 1.0  # seconds; two producers that use two codecs must not write the hash at every batch


class TopicNotes:
    """Watches batches go by."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._codec_noted: dict[str, float] = {}

    async def see(self, topic: Topic, header: BatchHeader, batch: Payload, now: int) -> None:
        """Notes what is new in a batch that is about to be stored; `now` in ms.

        Raises:
            StorageUnavailable: there is something to note and Redis is gone.
        """
        for field, value in topic.notes(batch, header.max_timestamp, now).items():
            await self._catalog.note(topic, field, value)
        codec = CODEC_NAMES[header.codec]
        if codec != topic.codec_seen and topic.configs["compression.type"] == "producer":
            await self._see_codec(topic, codec)

    async def _see_codec(self, topic: Topic, codec: str) -> None:
        now = time.monotonic()
        if now - self._codec_noted.get(topic.name, -_CODEC_INTERVAL) >= _CODEC_INTERVAL:
            self._codec_noted[topic.name] = now
            await self._catalog.note(topic, "producerCompression", codec)


def fetch_codec(topic: Topic) -> int:
    """Kafka's number of the codec that a consumer of the topic gets."""
    wanted = topic.configs["compression.type"]
    if wanted == "producer":
        wanted = topic.codec_seen
    return CODEC_NAMES.index(wanted) if wanted in CODEC_NAMES else 0
