"""The archive as the source sees it: what is announced of it, and reads of what Redis no longer holds.

A range that begins below the first entry in Redis is read from the archive up to there. Entries that are trimmed while
a task reads them are in the archive by then, so the task goes on there and comes back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ketch.errors import KetchError
from ketch.records import DecodedBatch
from ketch.records.arrow import to_arrow
from ketch.spark.connection import Connection, Server, connected
from ketch.spark.reader import DataLoss, Span, read_batches
from ketch.store import streams
from ketch.store.keys import Keyspace
from ketch.store.pipe import parse
from ketch.store.topics import Topic

if TYPE_CHECKING:
    from ketch.lake.cold import Cold

log = logging.getLogger(__name__)


class ArchiveUnavailable(KetchError):
    """Archived records cannot be read."""


@dataclass(frozen=True, slots=True)
class Archive:
    """One partition's part of an archive table, as it was announced: offsets `start` to below `through`.

    Whatever an executor needs to read it, and to ask again where a compaction has replaced its files.
    """

    key: bytes  # of the announcement
    topic_id: str
    index: int
    properties: tuple[tuple[str, str], ...]  # of pyiceberg's FileIO
    metadata: str
    manifests: str | None  # the manifest list of the current snapshot
    start: int
    through: int

    def again(self, connection: Connection) -> Archive | None:
        """What is announced of it now."""
        fields = _fields(connection.call("HGETALL", self.key))
        return _archives(self.key, self.topic_id, self.properties, fields).get(self.index)

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
    connection: Connection, keys: Keyspace, topics: Iterable[Topic], catalog: str
) -> dict[tuple[str, int], Archive]:
    """Each partition's archive, where it has one.

    Args:
        catalog: its name in pyiceberg's configuration.
    """
    topics = list(topics)
    replies = connection.calls([("HGETALL", keys.archive(topic.name)) for topic in topics]) if topics else []
    found: dict[tuple[str, int], Archive] = {}
    properties: tuple[tuple[str, str], ...] | None = None
    for topic, reply in zip(topics, replies, strict=True):
        if not reply:
            continue
        properties = _properties(catalog) if properties is None else properties
        archives = _archives(keys.archive(topic.name), str(topic.id), properties, _fields(reply))
        found |= {(topic.name, index): archive for index, archive in archives.items()}
    return found


def _fields(reply: list[bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}


def _archives(
    key: bytes, topic_id: str, properties: tuple[tuple[str, str], ...], fields: Mapping[str, str]
) -> dict[int, Archive]:
    if "metadata" not in fields or fields.get("topic-id", topic_id) != topic_id:
        return {}  # of a topic of that name before
    archives = {}
    for name, through in fields.items():
        if name.startswith("through:"):
            index = name.removeprefix("through:")
            start = max(int(fields.get(f"start:{index}", 0)), int(fields.get(f"deleted:{index}", 0)))
            archives[int(index)] = Archive(
                key, topic_id, int(index), properties, fields["metadata"], fields.get("manifests"), start, int(through)
            )
    return {index: archive for index, archive in archives.items() if archive.start < archive.through}


def _properties(catalog: str) -> tuple[tuple[str, str], ...]:
    try:
        from ketch.lake.parquet import io_properties
    except ImportError:
        return ()  # said when it is read from
    return tuple(sorted(io_properties(catalog).items()))


@lru_cache(maxsize=8)
def _cold(metadata: str, properties: tuple[tuple[str, str], ...], manifests: str | None) -> Cold:
    from ketch.lake.cold import Cold

    return Cold(metadata, dict(properties), manifests)


# -- in a task


def read_records(
    server: Server, span: Span, archive: Archive | None, hot: bool, fail_on_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The records of a range (`records.arrow.SCHEMA`) from the archive and from Redis, in their order.

    Args:
        hot: whether Redis is read at all.

    Raises as `reader.read_batches`, and ArchiveUnavailable.
    """
    if archive is not None:
        first = span.layout.start(span.info, span.codec) if hot else None
        seam = min(span.end, archive.through if first is None else first)
        if span.start < seam:
            yield from _archived(server, archive, span.start, seam)
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
                yield from _archived(server, newer, loss.offset, loss.first)
            span = _from(server, span, loss.first)


def within(batches: list[DecodedBatch], start: int, end: int) -> pa.RecordBatch:
    """The records of batches with offsets from `start` to below `end`."""
    rows = to_arrow(batches)
    if batches[0][0] >= start and batches[-1][0] + batches[-1][1] < end:
        return rows
    offsets = rows.column("offset")
    return rows.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end)))


def _newer(server: Server, archive: Archive, loss: DataLoss) -> Archive | None:
    """The archive, if it holds by now what was trimmed."""
    with connected(server) as connection:
        newer = archive.again(connection)
    return newer if newer is not None and newer.start <= loss.offset and loss.first <= newer.through else None


def _from(server: Server, span: Span, offset: int) -> Span:
    """The rest of a range, as it is now."""
    with connected(server) as connection:
        connection.send(span.layout.info_command(span.stream))
        info = streams.parse_info(parse(connection.reply()))
    return replace(span, start=offset, info=info)


def _archived(server: Server, archive: Archive, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Archived records, from the newest table should a compaction have replaced this one's files."""
    offset = start
    try:
        for rows in archive.cold().rows(archive.index, start, end):
            yield rows
            offset = _last(rows) + 1
    except (OSError, ArchiveUnavailable) as error:
        with connected(server) as connection:
            newer = archive.again(connection)
        if newer is None or newer.metadata == archive.metadata:
            raise ArchiveUnavailable(f"The archive at {archive.metadata} cannot be read: {error}.") from None
        yield from newer.cold().rows(newer.index, offset, end)


def _last(rows: pa.RecordBatch) -> int:
    offset: Any = rows.column("offset")[-1].as_py()
    return int(offset)
