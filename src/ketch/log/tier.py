"""The cold tier: what the broker knows of a topic's archive, and reads of records that Redis no longer holds.

It owns the cache of announcements, the open tables and the threads that read them. It writes nothing but the start of a
partition when records are deleted. No read misses a record that moves from Redis to the archive:

- The archive job announces what it has committed (`store.topics.archives`).
- Retention removes an entry no sooner than `SETTLED_S` after its archiving was announced (`Tier.settled`).
- A cached announcement is at most `_AGE_S` old, which is less.
- So a reader that looks at the announcement after a read of Redis knows of every entry that was missing in that read:
  see `PartitionReader.read`.

Reading the archive blocks and costs processor time, so it is done in threads. They are few, because consumers of the
tail share the process. pyiceberg and pyarrow are imported by the first cold read. Where they are missing, or storage
cannot be reached, the read fails with KAFKA_STORAGE_ERROR (56), as in a Kafka broker whose remote storage is away:
clients try again.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ketch import metrics
from ketch.errors import StorageUnavailable
from ketch.records import DecodedBatch
from ketch.redis.driver import Driver
from ketch.store.keys import Keyspace
from ketch.store.stream.search import Found
from ketch.store.topics import archives
from ketch.store.topics.archives import Announcement, ArchivedRange
from ketch.store.topics.topic import Topic
from ketch.tasks import lasting
from ketch.wire.pieces import Pieces

if TYPE_CHECKING:
    from ketch.lake.cold import Cold
    from ketch.lake.parquet import Parquet

log = logging.getLogger(__name__)
T = TypeVar("T")

_AGE_S = 0.5  # how old a cached announcement may be
SETTLED_S = 1.0  # how old one must be before hot entries go: more than any cached one is
_THREADS = 2
_SWITCH_S = 0.0005  # what the event loop waits for Python's lock while such a thread computes; 0.005 without
_KNOWN_MAX = 20_000  # topics whose announcement is cached
_TABLES_MAX = 64  # whose files are known at a time
_AGAIN_S = 3600.0  # from one warning of a topic to the next


@dataclass(slots=True)
class _Known:
    asked: float
    archive: Announcement | None


@dataclass(slots=True)
class _Table:
    """An archive's files as of an announcement."""

    cold: Cold
    archive: Announcement


class Archives:
    """The archives of all topics.

    Args:
        catalog: its name in pyiceberg's configuration, which says how its files are reached.
        stall_s: how long an archive may stand still while records wait for it, before that is logged.
    """

    def __init__(self, keys: Keyspace, driver: Driver, catalog: str, stall_s: float) -> None:
        self._keys, self._driver, self._catalog = keys, driver, catalog
        self.stall_s = stall_s
        self._stalled: dict[str, float] = {}  # topics, when it was last said
        self._known: dict[str, _Known] = {}
        self._asking: dict[str, asyncio.Future[Announcement | None]] = {}
        self._tables: dict[uuid.UUID, _Table] = {}
        self._parquet: Parquet | None = None
        self._threads = ThreadPoolExecutor(_THREADS, "cold", sys.setswitchinterval, (_SWITCH_S,))
        self._warned = self._imported = False

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def warn_stalled(self, topic: str, still_s: float) -> None:
        """Says that a topic's archive stands still, once in a while."""
        now = time.monotonic()
        if now - self._stalled.get(topic, -_AGAIN_S) < _AGAIN_S:
            return
        self._stalled[topic] = now
        log.warning(
            "%s: nothing was archived for %d minutes, so Redis keeps records past local.retention.*:"
            " does `ketch archive run` run?", topic, still_s // 60,
        )  # fmt: skip

    async def get(self, topic: Topic) -> Announcement | None:
        """What was last announced, half a second ago at most; None where nothing ever was.

        Raises:
            StorageUnavailable: Redis is gone.
        """
        known = self._held(topic)
        return known.archive if known is not None else await asyncio.shield(self.asking(topic))

    def asking(self, topic: Topic) -> asyncio.Future[Announcement | None]:
        """The answer to `ask`, which is on its way: one question for all partitions. It is not to be cancelled."""
        asking = self._asking.get(topic.name)
        if asking is None:
            asking = self._asking[topic.name] = lasting(self.ask(topic))
            asking.add_done_callback(lambda _: self._asking.pop(topic.name))
        return asking

    def is_known(self, topic: Topic) -> bool:
        """Whether `get` asks nothing."""
        return self._held(topic) is not None

    def is_known_missing(self, topic: Topic, partition: int) -> bool:
        """Whether a partition has no archive, as far as that is known without a question to Redis."""
        known = self._held(topic)
        return known is not None and (known.archive is None or partition not in known.archive.partitions)

    def _held(self, topic: Topic) -> _Known | None:
        """What Redis has said of a topic's archive, if that is not too old."""
        known = self._known.get(topic.name)
        return known if known is not None and time.monotonic() - known.asked < _AGE_S else None

    async def ask(self, topic: Topic) -> Announcement | None:
        """As `get`, but as it is now."""
        asked = time.monotonic()
        if len(self._known) > _KNOWN_MAX:
            self._known.clear()
        archive = await self._driver.ask(archives.read(self._keys, topic.name, str(topic.id)))
        self._known[topic.name] = _Known(asked, archive)
        if archive is None:
            self._tables.pop(topic.id, None)
        return archive

    async def raise_start(self, topic: Topic, partition: int, offset: int) -> None:
        """Records below `offset` were deleted: the archive does not answer for them any more."""
        await self._driver.ask(archives.raise_start(self._keys, topic.name, partition, offset))
        await self.ask(topic)

    async def run(self, topic: Topic, needs: Callable[[Announcement], bool], work: Callable[[Cold], T]) -> T:
        """Does `work` on the topic's table in a thread.

        Args:
            needs: whether a table as of this announcement will do; else the table is brought up to date first.

        Raises:
            StorageUnavailable: the archive, pyiceberg, or Redis is not there.
        """
        archive = await self.get(topic)
        try:
            return await self._submit(topic, archive, needs, work)
        except OSError as error:  # a compaction has replaced the file, or storage is away
            log.debug("the archive of %s is read again: %s", topic.name, error)
        except ValueError as error:
            raise StorageUnavailable(f"the archive of {topic.name} cannot be read: {error}") from error
        archive = await self.ask(topic)
        try:
            return await self._submit(topic, archive, lambda held: held is archive, work)
        except (OSError, ValueError) as error:
            raise StorageUnavailable(f"the archive of {topic.name} cannot be read: {error}") from error

    async def bytes_of(self, topic: Topic) -> dict[int, int] | None:
        """Bytes of the data files by partition, as announced now; None where nothing is archived. Raises as `run`."""
        return await self.newest(topic, lambda cold: cold.sizes())

    async def newest(self, topic: Topic, work: Callable[[Cold], T]) -> T | None:
        """As `run`, on the table as announced now; None where nothing is archived."""
        archive = await self.ask(topic)
        if archive is None:
            return None
        return await self.run(
            topic, lambda held: held.metadata == archive.metadata or held.updated > archive.updated, work
        )

    async def _submit(
        self,
        topic: Topic,
        archive: Announcement | None,
        needs: Callable[[Announcement], bool],
        work: Callable[[Cold], T],
    ) -> T:
        if archive is None:
            raise StorageUnavailable(f"{topic.name} has no archive any more")

        def in_thread() -> T:
            done = work(self._table(topic.id, archive, needs))
            if not self._imported:
                # pyiceberg, pyarrow and what they import stay: every collection that looks at them takes some 40 ms,
                # in which no request is answered.
                self._imported = True
                gc.collect()
                gc.freeze()
            return done

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, in_thread)
        except ImportError as error:
            if not self._warned:
                self._warned = True
                log.warning('archived records cannot be read: %s. Install ketch with its extra: "ketch[spark]"', error)
            raise StorageUnavailable(f"archived records of {topic.name} need the extra ketch[spark]") from None

    def _table(self, topic_id: uuid.UUID, archive: Announcement, needs: Callable[[Announcement], bool]) -> Cold:
        table = self._tables.get(topic_id)
        if table is None:
            table = _Table(self._open(archive), archive)
            while len(self._tables) >= _TABLES_MAX:
                self._tables.pop(next(iter(self._tables)), None)
            self._tables[topic_id] = table
        elif not needs(table.archive):
            table.cold.refresh(archive.metadata, archive.manifests)
            table.archive = archive
        return table.cold

    def _open(self, archive: Announcement) -> Cold:
        from ketch.lake.cold import Cold
        from ketch.lake.parquet import Parquet, io_properties

        properties = io_properties(self._catalog)
        if self._parquet is None:
            self._parquet = Parquet(properties, archive.metadata)  # one for all, for its caches
        return Cold(archive.metadata, properties, archive.manifests, self._parquet)


class Tier:
    """The archive as one partition has it."""

    def __init__(self, archives: Archives, topic: Callable[[], Topic], index: int) -> None:
        self._archives, self._topic, self._index = archives, topic, index
        self._settling: tuple[float, int] | None = None  # when which `through` was seen
        self._settled = 0  # the one before that
        self._moved = (0.0, -1)  # when it was seen to move, and to what

    async def archived(self) -> ArchivedRange | None:
        """What the archive answers for; None where the partition has none. Everything whose removal may have been seen
        before the call is in it.

        Raises:
            StorageUnavailable: Redis is gone.
        """
        archive = await self._archives.get(self._topic())
        return archive.partitions.get(self._index) if archive else None

    def asking(self) -> asyncio.Future[Announcement | None] | None:
        """The archive's announcement, which is on its way; None where it is known already."""
        topic = self._topic()
        return None if self._archives.is_known(topic) else self._archives.asking(topic)

    def is_known_missing(self) -> bool:
        """Whether the partition has no archive, as far as that is known without a question to Redis."""
        return self._archives.is_known_missing(self._topic(), self._index)

    async def settled(self) -> int | None:
        """The offset below which hot entries may be removed; None where the partition has no archive.

        Retention and compaction ask again and again: the answer is what they saw some time before.
        """
        archived = await self.archived()
        if archived is None:
            self._settling = None
            return None
        now = time.monotonic()
        if archived.through != self._moved[1]:
            self._moved = (now, archived.through)
        if self._settling is None or archived.through < self._settled:  # it may have been dropped and begun again
            self._settling, self._settled = (now, archived.through), 0
        seen, through = self._settling
        if now - seen >= SETTLED_S:
            self._settling, self._settled = (now, archived.through), through
        return min(self._settled, archived.through)

    @property
    def stalled(self) -> bool:
        """Whether nothing was archived for long, as `settled` saw it; there may be nothing to archive."""
        return time.monotonic() - self._moved[0] >= self._archives.stall_s

    def warn_stalled(self) -> None:
        """See `Archives.warn_stalled`."""
        self._archives.warn_stalled(self._topic().name, time.monotonic() - self._moved[0])

    async def raise_start(self, offset: int) -> None:
        """See `Archives.raise_start`."""
        await self._archives.raise_start(self._topic(), self._index, offset)

    async def read(
        self,
        offset: int,
        max_bytes: int,
        split_timestamps: bool,
        encode: Callable[[list[DecodedBatch]], bytes | Pieces],
    ) -> bytes | Pieces:
        """Archived batches from `offset` on, see `Cold.read`; empty where nothing from there on is archived.

        Args:
            encode: makes of batches what a fetch returns; called in the thread too.

        Raises:
            StorageUnavailable: they cannot be read now.
        """
        archived = await self.archived()
        if archived is None or offset >= archived.through:
            return b""

        def work(cold: Cold) -> bytes | Pieces:
            batches = cold.read(self._index, offset, max_bytes, archived.through, split_timestamps)
            return encode(batches) if batches else b""

        size = None
        try:
            # A table that is not the newest will do as long as it has something to give.
            read = await self._run(lambda known: offset < known.through, work)
            read = read or await self._run(lambda known: archived.through <= known.through, work)
            size = len(read)
            return read
        finally:
            metrics.remote_fetched(self._topic().name, size)

    async def records(self, offset: int, max_bytes: int) -> tuple[list[DecodedBatch], dict[int, bytes]]:
        """As `read`, the batches themselves, and the marks of their records (`lake.schema`)."""
        span = await self.archived()
        if span is None or offset >= span.through:
            return [], {}

        def work(cold: Cold) -> tuple[list[DecodedBatch], dict[int, bytes]]:
            batches = cold.read(self._index, offset, max_bytes, span.through)
            return batches, cold.marks(self._index, offset, batches[-1].last_offset + 1) if batches else {}

        return await self._run(lambda known: span.through <= known.through, work)

    async def first_at_or_after(self, timestamp: int, start: int, end: int) -> Found | None:
        """The first archived record from offset `start` up to `end` that is as late as `timestamp` (ms)."""
        found = await self._run(
            lambda known: end <= known.through,
            lambda cold: cold.first_at_or_after(self._index, timestamp, start, end),
        )
        return Found(*found) if found else None

    async def latest_timestamp(self, start: int, end: int) -> Found | None:
        """The first of the archived records from `start` up to `end` that bear the latest timestamp."""
        found = await self._run(
            lambda known: end <= known.through, lambda cold: cold.latest_timestamp(self._index, start, end)
        )
        return Found(*found) if found else None

    async def _run(self, reaches: Callable[[ArchivedRange], bool], work: Callable[[Cold], T]) -> T:
        def needs(archive: Announcement) -> bool:
            known = archive.partitions.get(self._index)
            return known is not None and reaches(known)

        return await self._archives.run(self._topic(), needs, work)
