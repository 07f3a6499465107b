"""The virtual byte log of a partition: what a client of Kafka 0.7 takes for a log file.

A 0.7 offset is a byte position: a client computes the next one as position + LENGTH + 4. `ByteLog` gives every message
a position that stays its own for ever, whichever client wrote it and whichever broker is asked. Theory of operation:

- Nothing is written for positions when records are appended. They are counted when a 0.7 client first reads so far.
- Positions begin with 0 at the first record that was there when the first 0.7 client asked.
- Redis holds the end of what has been counted, and a place for each megabyte of it (`store.stream.positions`). A read
  beyond the end counts further, and is answered only after the new end is stored. Of two brokers that count at the same
  time one is refused, drops what it has counted, and goes on from the other's end.
- A read below the end takes the records between the two places around the position, and lays them out backwards from
  the later one. The records at the front may be gone by then; the positions of the others are the same. They come from
  Redis or the archive.
- What was laid out is kept for the next reader, for positions never change: `_Kept` holds some megabytes.
- While a client takes a chunk, the block that it will want next is laid out, and counted if need be.
- Records of open transactions wait for their end, those of aborted ones and markers take no bytes (KIP-98).
- A trim may take records that no 0.7 client has read. They never had positions, and the next record follows the end.
- A compacted topic has no byte log: records go from its middle, which would move the others. It is WrongPartition, also
  for producers, whose messages have no keys.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence

from ketch import metrics
from ketch.clock import now_ms
from ketch.errors import KetchError, OffsetOutOfRange, UnknownTopicOrPartition
from ketch.legacy07.errors import InvalidFetchSize, WrongPartition
from ketch.legacy07.messages import Message
from ketch.legacy07.producing import Plain, check, payloads
from ketch.legacy07.stretch import Block, Stretch
from ketch.log.appending.notes import TopicNotes
from ketch.log.bounds import Bounds
from ketch.log.log import Log
from ketch.log.partition import Partition
from ketch.store.stream import positions
from ketch.store.stream.positions import STEP, Around, Part, Place
from ketch.tasks import lasting

log = logging.getLogger(__name__)

LATEST, EARLIEST = -1, -2  # times that OFFSETS has a meaning of its own for

_READ_MAX = 4 << 20  # bytes of one answer, but for a larger message; a client asks again for what follows
_COUNTED_AT_ONCE = 4 << 20  # bytes of records that are counted in one step where nobody waits for their bytes
_COUNTED_TO_READ = 2 * STEP  # the same where a client is about to read them: their messages lie in memory
_KEPT_BYTES = 32 << 20  # of blocks, for all partitions
_BLOCK_OVERHEAD = 1 << 12  # bytes that the smallest block counts as
_AHEAD = 4  # blocks of all partitions that are being laid out before anybody wants them
_INFLATING = 4  # sets with compressed messages that lie inflated at the same time


class _Kept:
    """The blocks that were read last, of all partitions."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[tuple[ByteLog, int], Block] = OrderedDict()
        self._starts: dict[ByteLog, list[int]] = {}
        self._size = 0

    def find(self, of: ByteLog, position: int) -> Block | None:
        """The block that holds this byte."""
        for start in self._starts.get(of, ()):
            block = self._blocks[of, start]
            if start <= position < block.end:
                self._blocks.move_to_end((of, start))
                return block
        return None

    def put(self, of: ByteLog, block: Block) -> None:
        if block.start == block.end or (of, block.start) in self._blocks:
            return
        self._blocks[of, block.start] = block
        self._starts.setdefault(of, []).insert(0, block.start)
        self._size += len(block.data) + _BLOCK_OVERHEAD
        while self._size > _KEPT_BYTES and len(self._blocks) > 1:
            self._drop(next(iter(self._blocks)))

    def forget(self, of: ByteLog) -> None:
        for start in list(self._starts.get(of, ())):
            self._drop((of, start))

    def _drop(self, key: tuple[ByteLog, int]) -> None:
        of, start = key
        block = self._blocks.pop(key)
        self._size -= len(block.data) + _BLOCK_OVERHEAD
        self._starts[of].remove(start)
        if not self._starts[of]:
            del self._starts[of]


class ByteLog:
    """One partition's virtual byte log."""

    def __init__(self, logs: ByteLogs, partition: Partition) -> None:
        self._logs, self._partition, self._kept = logs, partition, logs.kept
        self._link, self._key = logs.log.driver, logs.log.keys.positions(partition.key)
        self._end: Place | None = None
        self._first: tuple[int, int] | None = None  # a log start offset, and the position there
        self._counting = asyncio.Lock()
        self._coming: dict[int, asyncio.Task[None]] = {}  # blocks that are read ahead, by their positions

    # -- writing

    async def append(self, messages: Sequence[Message] | Plain) -> asyncio.Future[None]:
        """Takes messages in, in their order; the future is done once Redis has them all.

        A compressed message is stored as the records that it holds, and is given to 0.7 consumers as it came.

        Raises:
            InvalidMessage: what is within a compressed message is damaged; nothing is stored.
            RecordTooLarge: a message is, or inflates to, more than is allowed; nothing is stored.
            StorageUnavailable: Redis is gone.
        """
        if not isinstance(messages, Plain) and any(message.compression for message in messages):
            async with self._logs.inflating:
                return await self._append(messages)
        return await self._append(messages)

    async def _append(self, messages: Sequence[Message] | Plain) -> asyncio.Future[None]:
        topic, now = self._partition.topic, now_ms()
        taken = []
        for batch, codec, size in payloads(topic, messages, now, self._logs.inflated_max, self._logs.magic):
            news = self._logs.notes.news(topic, codec, now, batch, now)
            await self._logs.notes.write(topic, news)
            taken.append(self._partition.append(batch))
            metrics.produced(topic.name, batch.count, size)
        return lasting(_all(taken))

    # -- reading

    async def read(self, position: int, max_size: int) -> bytes:
        """A chunk of the log from `position` on, `max_size` bytes at most; empty at the end of the log.

        It may end within a message, or be shorter although there is more: the next fetch gives that.

        Raises:
            OffsetOutOfRange: below the first message, or above the end of the log.
            InvalidFetchSize: the message at that position has more than `max_size` bytes.
            StorageUnavailable: Redis is gone, or the archive.
        """
        await self._check(position)
        block = await self._block(position)
        if block is None:
            return b""
        message = block.size_at(position)
        if message > max_size:
            raise InvalidFetchSize(f"the message at {position} has {message} bytes, the fetch is for {max_size}")
        room = min(max_size, max(_READ_MAX, message))
        pieces: list[memoryview] = []
        while block is not None:
            pieces.append(block.data[position - block.start : position - block.start + room])
            room, position = room - len(pieces[-1]), position + len(pieces[-1])
            behind = block.end
            block = await self._block(position) if room else None
        if not room and behind - position < max_size:
            self._read_ahead(behind)
        return b"".join(pieces)

    async def offsets(self, time: int, max_count: int) -> list[int]:
        """Positions of messages, newest first, at most `max_count`: where 0.7 has its segments' first ones.

        The first is that of the end of the log, or of the first message that is as late as `time`; empty where none is
        earlier. Those after it are places of about each megabyte before, down to the first message.

        Args:
            time: ms; LATEST for the end of the log, EARLIEST for the first message alone.
        """
        if max_count < 1:
            return []
        bounds = await self._partition.bounds.get()
        first = await self._first_position(bounds)
        if time == EARLIEST:
            return [first]
        newest = await self._latest() if time == LATEST else await self._position_at(time)
        if time != LATEST and newest <= first:
            return []
        found = [newest, *await self._link.ask(positions.below(self._key, newest, max_count))]
        return [*(position for position in found if position > first), first][:max_count]

    async def _position_at(self, time: int) -> int:
        found = await self._partition.first_at_or_after(time)
        if found is None:
            return await self._latest()
        while (end := await self._ended()).offset <= found.offset:
            if await self._count_on(end, _COUNTED_AT_ONCE, keep=False) is None and self._end == end:
                return end.position  # it belongs to a transaction that is open
        return await self._position_of(found.offset)

    async def _latest(self) -> int:
        stable = (await self._partition.bounds.get()).last_stable
        while (end := await self._ended()).offset < stable:
            if await self._count_on(end, _COUNTED_AT_ONCE, keep=False) is None and self._end == end:
                break
        return end.position

    async def _check(self, position: int) -> None:
        bounds = await self._partition.bounds.get()
        first = await self._first_position(bounds)
        end = await self._ended()
        if position > end.position:  # another broker may have counted on
            end = await self._refreshed()
        if not first <= position <= end.position:
            raise OffsetOutOfRange(f"position {position} is not in {first} to {end.position}")

    async def _first_position(self, bounds: Bounds) -> int:
        """The position of the first message that is left."""
        if self._first is None or self._first[0] != bounds.log_start:
            end = await self._ended()
            if bounds.log_start > end.offset:  # another broker may have counted what has been removed since
                end = await self._refreshed()
            if bounds.log_start >= end.offset:
                return end.position  # not kept: the end moves on
            around = await self._link.ask(positions.around_offset(self._key, bounds.log_start))
            block = await self._between(around)
            self._first = bounds.log_start, block.position_of(bounds.log_start)
            if around.below is not None:
                await self._link.ask(positions.drop(self._key, around.below))
        return self._first[1]

    async def _position_of(self, offset: int) -> int:
        """The position of the message with a record that was counted, or of the first one after it."""
        around = await self._link.ask(positions.around_offset(self._key, offset))
        return (await self._between(around)).position_of(offset)

    # -- blocks

    async def _block(self, position: int) -> Block | None:
        """The block with this byte; None at the end of the log."""
        while True:
            block = self._kept.find(self, position)
            if block is not None:
                return block
            coming = self._coming.get(position)
            if coming is not None and coming is not asyncio.current_task():
                await asyncio.wait([coming])
                continue
            end = await self._ended()
            if position < end.position:
                around = await self._link.ask(positions.around(self._key, position))
                block = await self._between(around)
                if position < block.start:
                    raise OffsetOutOfRange(f"position {position} is below {block.start}, the first one left there")
                self._kept.put(self, block)
                return block
            if (await self._partition.bounds.get()).last_stable <= end.offset:
                return None
            if await self._count_on(end, _COUNTED_TO_READ, keep=True) is None and self._end == end:
                return None

    def _read_ahead(self, position: int) -> None:
        """Begins with the block behind the last one, which a client that goes on reading will want."""
        busy = len(self._logs.coming) >= _AHEAD or position in self._coming
        if not busy and self._kept.find(self, position) is None:
            self._coming[position] = task = lasting(self._come(position))
            self._logs.coming.add(task)

    async def _come(self, position: int) -> None:
        try:
            await self._block(position)
        except KetchError as error:  # who asks for it will be told
            log.debug("%s: block at %d, read ahead: %s", self._key.decode(), position, error)
        finally:
            task = self._coming.pop(position)
            self._logs.coming.discard(task)

    async def _between(self, around: Around) -> Block:
        """The messages between two places, as far as they are left: laid out backwards from the later one."""
        if around.below is None:
            raise OffsetOutOfRange(f"what lay below position {around.above.position} is gone")
        stretch = Stretch(around.below.offset)
        for part in around.parts:
            await self._lay_out(stretch, part)
        return Block(stretch, around.above.position - stretch.size)

    async def _lay_out(self, stretch: Stretch, part: Part) -> None:
        """Adds the messages up to a part's end that are left."""
        least, more = 1, True
        while stretch.next < part.end:
            before = stretch.next
            records = await self._partition.reader.records(before, STEP + STEP // 4, part.end, least)
            if records.end <= before:
                break
            least = stretch.add(records, part.magic, part.end, more) or 1
            more = stretch.next > before  # else the next read is large enough for the message

    async def _count_on(self, end: Place, size: int, keep: bool) -> Place | None:
        """Counts about `size` bytes of records beyond the end; the new end, None where there are none, or others did.

        Args:
            keep: a client is about to read them.
        """
        async with self._counting:
            if self._end != end:
                return None
            stretch = await self._stretch(end.offset, size)
            if stretch.next == end.offset:
                return None
            to = Place(end.position + stretch.size, stretch.next)
            kept = [(place, stretch.time) for place in stretch.places(end.position)]
            if not await self._moved(end, to, kept, stretch.time):
                return None
            if keep:
                self._kept.put(self, Block(stretch, end.position))
            return to

    async def _stretch(self, offset: int, size: int) -> Stretch:
        stretch = Stretch(offset)
        end = (await self._partition.bounds.get()).last_stable
        records = await self._partition.reader.records(offset, size)
        left_out = stretch.add(records, self._logs.magic, end)
        if left_out and stretch.next == offset:  # a message of more records than were read
            records = await self._partition.reader.records(offset, size, least=left_out)
            stretch.add(records, self._logs.magic, end, more=False)
        return stretch

    # -- the end

    async def _ended(self) -> Place:
        """The end as it is known here."""
        return self._end or await self._refreshed()

    async def _refreshed(self) -> Place:
        """The end as Redis has it. Positions begin here where there are none yet."""
        self._learn(await self._link.ask(positions.end(self._key)))
        while self._end is None:
            start, now = Place(0, (await self._partition.bounds.get()).log_start), now_ms()
            await self._moved(None, start, [(start, now)], now)
        return self._end

    async def _moved(self, known: Place | None, to: Place, kept: list[tuple[Place, int]], time: int) -> bool:
        """Whether it was moved from here, not by another broker meanwhile."""
        end = await self._link.ask(positions.extend(self._key, known, to, kept, self._logs.magic, time))
        self._learn(end)
        return end == to

    def _learn(self, end: Place | None) -> None:
        if self._end is not None and (end is None or end < self._end):
            log.warning("%s: Redis has lost the end of it, positions are counted again", self._key.decode())
            self._kept.forget(self)
            self._first = None
        self._end = end


async def _all(stored: list[asyncio.Future[int]]) -> None:
    for offset in stored:
        await offset


class ByteLogs:
    """The byte logs of all partitions.

    Args:
        notes: keeps what the log learns of a topic from its batches.
        inflated_max: bytes that a compressed message may inflate to.
        magic: the usual one of plain messages (`legacy_magic`).
    """

    def __init__(self, log: Log, notes: TopicNotes, inflated_max: int, magic: int) -> None:
        self.log, self.notes, self.inflated_max, self.magic = log, notes, inflated_max, magic
        self.kept, self.inflating = _Kept(), asyncio.Semaphore(_INFLATING)
        self.coming: set[asyncio.Task[None]] = set()  # reading ahead
        self._logs: dict[Partition, ByteLog] = {}

    async def check(self, messages: Sequence[Message] | Plain, most: int) -> None:
        """Raises as `ByteLog.append` for messages to a topic whose `max.message.bytes` is `most`."""
        async with self.inflating:
            check(messages, most, self.inflated_max)

    async def get(self, topic: str, partition: int) -> ByteLog:
        """The byte log of a partition.

        Raises:
            WrongPartition: there is no such partition, or no such topic, or it is compacted.
            StorageUnavailable: Redis is gone.
        """
        found = await self.log.topics.get(topic)
        if found is None:
            raise WrongPartition(f"there is no topic {topic}")
        if found.compacts:
            raise WrongPartition(f"topic {topic} is compacted, which clients of Kafka 0.7 cannot read or write")
        try:
            part = self.log.partition(found, partition)
        except UnknownTopicOrPartition as error:
            raise WrongPartition(str(error)) from None
        if part not in self._logs:
            self._logs = {each: of for each, of in self._logs.items() if not each.state.closed}  # topics that are gone
            self._logs[part] = ByteLog(self, part)
        return self._logs[part]
