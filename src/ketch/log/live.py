"""One partition's stream as this broker knows it: its topic's description, how large its entries are, where it ends.

Bounds, reads, groups and appends of a partition share one `LiveStream`. It asks Redis; it decides nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ketch.errors import RedisError
from ketch.log.appending.state import AppendState
from ketch.log.copies import Copies
from ketch.log.recent import Newest, ReadAhead, Tails
from ketch.log.tier import Archives
from ketch.log.watcher import Watcher
from ketch.redis.driver import Driver, Reply
from ketch.redis.question import Command
from ketch.store.append import markers
from ketch.store.keys import Keyspace
from ketch.store.layouts.layout import Chunk
from ketch.store.offsets import MAX_OFFSET, OffsetNumbering
from ketch.store.scripts import AppendKeys
from ketch.store.stream import compaction
from ketch.store.stream.isolation import Aborted, IsolationKeys, Transactions, aborted_in
from ketch.store.stream.ranges import EntrySizes, PartitionStream
from ketch.store.topics.topic import Topic
from ketch.store.xinfo import StreamInfo


@dataclass(frozen=True, slots=True)
class Shared:
    """What all partitions of a broker share.

    Attributes:
        session: this broker process's own id, part of its fence keys.
        reads: the driver for ranges and of everything that is neither an append nor a look at a stream's end.
        watcher: knows the ends of streams; appends go over its connection.
        copies: whether replicas have what was written.
        ahead, tails, newest: what was read or appended last, for the next reader.
        pending_max: deliveries tracked for a consumer group on a partition (`group.pending.max`).
        exists: whether a topic is still there, as Redis has it now.
    """

    keys: Keyspace
    session: bytes
    reads: Driver
    watcher: Watcher
    copies: Copies
    ahead: ReadAhead
    tails: Tails
    newest: Newest
    archives: Archives
    pending_max: int
    exists: Callable[[Topic], Awaitable[bool]]


class LiveStream:
    """The stream of one partition. Every method that asks raises StorageUnavailable where Redis is gone.

    Attributes:
        state: what is known of it, and what is on its way into it.
    """

    __slots__ = (
        "_reads", "_watcher", "at", "compaction", "incarnation", "index", "key", "layout", "numbering", "sizes",
        "state", "topic",
    )  # fmt: skip

    def __init__(self, topic: Topic, index: int, shared: Shared) -> None:
        self.index = index
        self.key = shared.keys.stream(topic.name, index)
        self.compaction = shared.keys.compaction(self.key)
        self.numbering, self.layout = topic.numbering, topic.layout  # fixed at the topic's creation
        # What was read of a topic is not for the readers of a later topic of that name.
        self.incarnation = b"%b %b" % (topic.id.bytes, self.key)
        self.sizes = EntrySizes(topic.layout, topic.largest_record, _entry_bytes(topic))
        self.describe(topic)
        self._reads, self._watcher = shared.reads, shared.watcher
        self.state = _state(shared, topic, self.key, self.at.info_command())
        self._watcher.states.claim(self.state)

    async def start_before_compaction(self, info: StreamInfo) -> int | None:
        """Where the log started before compaction removed its first entries; None where it starts with an entry."""
        if info.first is None:
            return None
        return await self._reads.ask(compaction.start(self.compaction, OffsetNumbering.format_id(*info.first)))

    def describe(self, topic: Topic) -> None:
        """Takes the current description of the topic; its configs may have changed."""
        self.topic = topic
        self.at = PartitionStream(topic, self.index, self.key)
        self.sizes.largest = topic.largest_record

    # -- its ends

    async def info(self) -> StreamInfo:
        """Its ends, from what is known or from Redis.

        Raises:
            RedisError: another client has written an entry id beyond Kafka's offsets.
        """
        info = await self._watcher.info(self.state)
        if self.numbering.to_offset(*info.last) >= MAX_OFFSET:
            raise RedisError(f"the ids of {self.key.decode()} have left the offsets of Kafka")
        if not self.sizes.average and info.entry_bytes:
            self.sizes.average = float(info.entry_bytes)
        return info

    def known(self) -> StreamInfo | None:
        """Its ends where Redis need not be asked."""
        return self._watcher.states.info(self.state, time.monotonic())

    async def fresh_info(self) -> StreamInfo:
        """Its ends as Redis says now."""
        return await self._watcher.fresh_info(self.state)

    def prefetch(self) -> None:
        """Has Redis asked already what `info` and `transactions` will have to ask."""
        self._watcher.prefetch(self.state)

    def changed(self) -> None:
        """What is known of it is no longer true."""
        self.state.void()

    # -- its transactions

    async def transactions(self) -> Transactions:
        """Those of all records that an `info` has shown which was asked for before.

        Raises:
            RedisError: another client has written what is no such thing.
        """
        return await self._watcher.transactions(self.state)

    async def aborted(self, start: int, end: int) -> list[Aborted]:
        """The aborted transactions with a record or the marker from offset `start` to below `end`.

        They are asked for over the watcher's connection: a removal of records that took some of them has been pushed by
        the time of the answer.
        """
        known = (await self.transactions()).aborted_in(start, end)
        if known is not None:
            return known
        beside = IsolationKeys(self.state.transaction_keys.transactions, self.state.transaction_keys.aborted)
        return await self._watcher.ask(aborted_in(beside, self.numbering, start, end))

    # -- its entries

    def range(self, offset: int, count: int, end: int | None = None) -> asyncio.Future[bytes]:
        """XRANGE of `count` entries from the one on that holds `offset`, up to that with the record before `end`."""
        return self._reads.send(self.at.range_command(offset, count, end))

    def post_range(self, offset: int, count: int, take: Callable[[Reply], None]) -> None:
        """As `range`; `take` is called with the reply, see `Driver.post`."""
        self._reads.post(self.at.range_command(offset, count), take)

    def chunk(self, reply: bytes | memoryview, max_bytes: int) -> Chunk:
        """The batches in a reply, about `max_bytes` of them."""
        chunk = self.at.chunk(reply, max_bytes)
        self.sizes.learn(chunk)
        return chunk


def _state(shared: Shared, topic: Topic, stream: bytes, info_command: Command) -> AppendState:
    beside = markers.keys_of(shared.keys, stream)
    return AppendState(
        keys=AppendKeys(stream, beside.producers, shared.keys.fence(stream, shared.session)),
        transaction_keys=beside,
        layout=topic.layout,
        numbering=topic.numbering,
        floor=topic.first_offset,
        info_command=info_command,
    )


def _entry_bytes(topic: Topic) -> float:
    """A first guess at an entry's size, 0 for none: the topic's hash knows that of a record."""
    return float(topic.message_bytes) if topic.layout.entry_is_record else 0.0
