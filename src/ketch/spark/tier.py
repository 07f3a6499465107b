"""Reads ranges from the archive and from Redis.

A range that begins below the first entry in Redis is read from the archive up to that entry. If entries are trimmed
while a task reads them, they are in the archive by then: the task reads them there and then goes on in Redis.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ketch.errors import KetchError
from ketch.records import DecodedBatch
from ketch.records.arrow import to_arrow
from ketch.redis.blocking import Server, ask
from ketch.redis.driver import BlockingDriver
from ketch.spark.reader import GO_ON, DataLoss, StreamRange, read_batches
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.stream import ranges
from ketch.store.topics import archives
from ketch.store.topics.archives import Announcement
from ketch.store.topics.topic import Topic

if TYPE_CHECKING:
    from ketch.lake.cold import Cold

log = logging.getLogger(__name__)


class ArchiveUnavailable(KetchError):
    """Archived records cannot be read."""


@dataclass(frozen=True, slots=True)
class PartitionArchive:
    """One partition's part of an archive table, as it was announced: offsets `start` to below `through`.

    It has all that an executor needs to read it, and to look it up again after a compaction has replaced its files.
    """

    keyspace: str
    topic: str
    topic_id: str
    index: int
    properties: tuple[tuple[str, str], ...]  # of pyiceberg's FileIO
    metadata: str
    manifests: str | None  # the manifest list of the current snapshot
    start: int
    through: int

    def again(self, redis: BlockingDriver) -> PartitionArchive | None:
        """What is announced of it now."""
        announced = redis.ask(archives.read(Keyspace(self.keyspace), self.topic, self.topic_id))
        return _part(self.keyspace, self.topic, self.topic_id, self.index, self.properties, announced)

    def cold(self) -> Cold:
        """Its table, to be read from.

        Raises:
            ArchiveUnavailable: pyiceberg is missing, or the table is.
        """
        try:
            return _cold(self.metadata, self.properties, self.manifests)
        except ImportError as error:
            raise ArchiveUnavailable(f"Archived records need the extra ketch[spark]: {error}.") from None
        except OSError as error:
            raise ArchiveUnavailable(f"The archive at {self.metadata} cannot be read: {error}.") from None


def announced(
    redis: BlockingDriver, keys: Keyspace, topics: Iterable[Topic], catalog: str
) -> dict[TopicPartition, PartitionArchive]:
    """Each partition's archive, where it has one.

    Args:
        catalog: its name in pyiceberg's configuration.
    """
    topics = list(topics)
    found: dict[TopicPartition, PartitionArchive] = {}
    properties: tuple[tuple[str, str], ...] | None = None
    read = redis.ask(archives.read_all(keys, [(topic.name, str(topic.id)) for topic in topics]))
    for topic, announcement in zip(topics, read, strict=True):
        if announcement is None:
            continue
        properties = _properties(catalog) if properties is None else properties
        for index in announcement.partitions:
            archive = _part(keys.name, topic.name, str(topic.id), index, properties, announcement)
            if archive is not None:
                found[topic.name, index] = archive
    return found


def _part(
    keyspace: str,
    topic: str,
    topic_id: str,
    index: int,
    properties: tuple[tuple[str, str], ...],
    announcement: Announcement | None,
) -> PartitionArchive | None:
    """One partition's part of what is announced; None where the archive holds nothing of it."""
    held = announcement.partitions.get(index) if announcement is not None else None
    if announcement is None or held is None or held.start >= held.through:
        return None
    where = announcement.metadata, announcement.manifests
    return PartitionArchive(keyspace, topic, topic_id, index, properties, *where, held.start, held.through)


def _properties(catalog: str) -> tuple[tuple[str, str], ...]:
    try:
        from ketch.lake.parquet import io_properties
    except ImportError:
        return ()  # `PartitionArchive.cold` raises the error
    return tuple(sorted(io_properties(catalog).items()))


@lru_cache(maxsize=8)
def _cold(metadata: str, properties: tuple[tuple[str, str], ...], manifests: str | None) -> Cold:
    from ketch.lake.cold import Cold

    return Cold(metadata, dict(properties), manifests)


# -- in a task


def read_records(
    server: Server, span: StreamRange, archive: PartitionArchive | None, hot: bool, fail_on_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The records of a range (`records.arrow.SCHEMA`) from the archive and from Redis, in their order.

    Args:
        hot: whether Redis is read at all.

    Raises as `reader.read_batches`, and ArchiveUnavailable.
    """
    if archive is not None:
        first = span.stream.layout.start(span.info, span.stream.numbering) if hot else None
        seam = min(span.end, archive.through if first is None else first)
        if span.start < seam:
            yield from _archived(server, archive, span.start, seam, fail_on_loss)
            span = replace(span, start=seam)
    while hot and span.start < span.end:
        try:
            for batches in read_batches(server, span, fail_on_loss or archive is not None):
                yield within(batches, span.start, span.end)
            return
        except DataLoss as loss:
            newer = _newer(server, archive, loss) if archive is not None else None
            if newer is None and fail_on_loss:
                raise
            if newer is None:
                log.warning("%s", loss)
            else:
                yield from _archived(server, newer, loss.offset, loss.first, fail_on_loss)
            span = _from(server, span, loss.first)


def within(batches: list[DecodedBatch], start: int, end: int) -> pa.RecordBatch:
    """The records of batches with offsets from `start` to below `end`."""
    rows = to_arrow(batches)
    if batches[0].base_offset >= start and batches[-1].last_offset < end:
        return rows
    offsets = rows.column("offset")
    return rows.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end)))


def _newer(server: Server, archive: PartitionArchive, loss: DataLoss) -> PartitionArchive | None:
    """The archive, if it holds by now what was trimmed."""
    newer = ask(server, archive.again)
    return newer if newer is not None and newer.start <= loss.offset and loss.first <= newer.through else None


def _from(server: Server, span: StreamRange, offset: int) -> StreamRange:
    """The rest of a range, as it is now."""
    info = ask(server, lambda redis: redis.ask(ranges.info(span.stream)))
    return replace(span, start=offset, info=info)


def _archived(
    server: Server, archive: PartitionArchive, start: int, end: int, fail_on_loss: bool
) -> Iterator[pa.RecordBatch]:
    """Archived records, from the newest table should a compaction have replaced this one's files, or retention removed
    them.
    """
    offset = start
    try:
        for rows in archive.cold().rows(archive.index, start, end):
            yield rows
            offset = _last(rows) + 1
    except (OSError, ArchiveUnavailable) as error:
        newer = ask(server, archive.again)
        if newer is None or newer.metadata == archive.metadata:
            raise ArchiveUnavailable(f"The archive at {archive.metadata} cannot be read: {error}.") from None
        if offset < newer.start:
            lost = f"from offset {offset} to {min(end, newer.start)}"
            message = f"Archived records of {archive.topic}-{archive.index} {lost} were deleted before they were read"
            if fail_on_loss:
                raise DataLoss(f"{message}; {GO_ON}.") from None
            log.warning("%s.", message)
        yield from newer.cold().rows(newer.index, max(offset, newer.start), end)


def _last(rows: pa.RecordBatch) -> int:
    offset: Any = rows.column("offset")[-1].as_py()
    return int(offset)
