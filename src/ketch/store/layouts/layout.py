"""The seam between the two layouts of a stream: everything above it sees batches, records and offsets.

A `Layout` says how a topic's batches lie in its streams. What a producer sent becomes a `Payload`, which makes its
own XADDs; what Redis answers to a range becomes a `Chunk`. Pure bytes, no I/O; ready to be pickled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ketch.records import HEADER_SIZE, BatchHeader, Codec, DecodedBatch
from ketch.records.columns import cut, row_timestamps
from ketch.records.control import Marker
from ketch.redis.question import Word
from ketch.redis.resp import pack
from ketch.store.offsets import OffsetNumbering
from ketch.store.xinfo import StreamInfo, info_command
from ketch.wire.pieces import BytesLike, Pieces, gather

Operands = tuple[tuple[str | int, ...], BytesLike]  # the last arguments of KETCH.APPEND: some words, and bytes


class Payload(Protocol):
    """One batch on its way into a stream; `store.append.appends` takes it."""

    @property
    def count(self) -> int:
        """Records, which take so many offsets."""

    @property
    def entries(self) -> int:
        """Entries it becomes, each of `count // entries` offsets."""

    @property
    def size(self) -> int:
        """Bytes of them, about."""

    @property
    def weight(self) -> int:
        """Bytes of the commands it becomes, at most and about."""

    @property
    def timestamp(self) -> int | None:
        """ms, for LogAppendTime; None where the producer's timestamps stay."""

    def plain(self, inflated_max: int) -> BytesLike:
        """Its records, decompressed.

        Raises:
            CorruptRecord, RecordTooLarge: they cannot be, or are more than `inflated_max` bytes.
        """

    @property
    def producer(self) -> int | None:
        """Id of the producer whose transaction it is part of; None for none."""

    def largest(self) -> int:
        """Bytes of the largest entry, about."""

    def appends(self, stream: bytes, numbering: OffsetNumbering, base: int) -> bytes:
        """XADD commands, one for each entry, that put its first record at offset `base`.

        Raises:
            InvalidRecord: what must be read of it for that is malformed.
        """

    def arguments(self) -> tuple[bytes, int]:
        """The entries as arguments of append.lua, and the number of these; raises as `appends`."""

    def operands(self) -> Operands | None:
        """The entries as arguments of KETCH.APPEND, unchecked; None where these cannot say what the entries hold."""

    def chunk(self, base: int) -> Chunk:
        """The batch as it is read back once it has been stored at offset `base`."""


class Span(NamedTuple):
    """The offsets of a batch, and what it is part of.

    Attributes:
        last: of its last record, or of one that compaction has removed.
        producer: whose transaction it is part of, -1 for none.
        control: it is a transaction's marker.
    """

    base: int
    last: int
    producer: int
    control: bool


class Chunk(ABC):
    """Whole batches from one reply of XRANGE or XREADGROUP; false when there is none.

    Attributes:
        base: offset of the first record.
        end: the offset after the last one.
        records: how many there are.
        entries: of how many entries.
        size: bytes of these, about.
        wire_size: bytes of the batches in a response that does not compress them again.
        max_timestamp: the latest of the records' timestamps, ms.
    """

    base = end = records = entries = size = wire_size = 0
    max_timestamp = -1

    _served: tuple[tuple[int, bool], bytes | Pieces] | None = None

    def __bool__(self) -> bool:
        return self.entries > 0

    def served(self, codec: int, zstd: bool) -> bytes | Pieces:
        """`wire` as a field of a response, kept for the next reader who asks the same."""
        if self._served is None or self._served[0] != (codec, zstd):
            self._served = (codec, zstd), gather(self.wire(codec, zstd))
        return self._served[1]

    @abstractmethod
    def wire(self, codec: int, zstd: bool) -> list[BytesLike]:
        """The batches as a Fetch response holds them, in consecutive pieces.

        Args:
            codec: Kafka's number of the compression to apply where the producer's is not kept.
            zstd: whether the reader knows zstd; who does not gets such batches uncompressed.
        """

    @abstractmethod
    def decoded(self, at_least: int = -(2**63)) -> list[DecodedBatch]:
        """The batches uncompressed; those may be left out in which no record is as late as `at_least` ms."""

    @abstractmethod
    def transactional(self, start: int) -> int | None:
        """The base offset of the first batch that is part of a transaction, among those with a record from `start` on;
        None where there is none."""

    @abstractmethod
    def below(self, end: int) -> Chunk:
        """The batches up to `end`; of one with records on both sides those below, where the layout can part them."""

    @abstractmethod
    def spans(self) -> list[Span]:
        """The offsets of each batch."""

    @abstractmethod
    def only(self, kept: Collection[int]) -> Chunk:
        """The batches with these base offsets."""

    def timestamps(self, at_least: int) -> Iterator[tuple[int, int]]:
        """(offset, timestamp in ms) of each record that is as late as `at_least`, in offset order."""
        for batch in self.decoded(at_least):
            yield from ((offset, timestamp) for offset, timestamp in row_timestamps(batch) if timestamp >= at_least)


class Chunks(Chunk):
    """Chunks in a row."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self._chunks = chunks
        self.base, self.end = chunks[0].base, chunks[-1].end
        self.records = sum(chunk.records for chunk in chunks)
        self.entries = sum(chunk.entries for chunk in chunks)
        self.size = sum(chunk.size for chunk in chunks)
        self.wire_size = sum(chunk.wire_size for chunk in chunks)
        self.max_timestamp = max(chunk.max_timestamp for chunk in chunks)

    def wire(self, codec: int, zstd: bool) -> list[BytesLike]:
        return [piece for chunk in self._chunks for piece in chunk.wire(codec, zstd)]

    def decoded(self, at_least: int = -(2**63)) -> list[DecodedBatch]:
        return [batch for chunk in self._chunks for batch in chunk.decoded(at_least)]

    def transactional(self, start: int) -> int | None:
        found = (chunk.transactional(start) for chunk in self._chunks)
        return next((base for base in found if base is not None), None)

    def below(self, end: int) -> Chunk:
        kept = [chunk if chunk.end <= end else chunk.below(end) for chunk in self._chunks if chunk.base < end]
        return Chunks(kept) if any(kept) else DecodedChunk([], False)

    def spans(self) -> list[Span]:
        return [span for chunk in self._chunks for span in chunk.spans()]

    def only(self, kept: Collection[int]) -> Chunk:
        chunks = [chunk for chunk in (each.only(kept) for each in self._chunks) if chunk]
        return Chunks(chunks) if chunks else DecodedChunk([], False)


def fitting(batches: list[DecodedBatch], max_bytes: int) -> list[DecodedBatch]:
    """The first of the batches that take at most `max_bytes` in a response, uncompressed; at least one."""
    left = max_bytes
    for n, batch in enumerate(batches):
        left -= HEADER_SIZE + len(batch.records)
        if n and left < 0:
            return batches[:n]
    return batches


class DecodedChunk(Chunk):
    """Batches that are uncompressed already."""

    def __init__(self, batches: list[DecodedBatch], log_append_time: bool) -> None:
        self._batches, self._log_append_time = batches, log_append_time
        if batches:
            self.base = batches[0].base_offset
            self.end = batches[-1].last_offset + 1
            self.entries = self.records = sum(batch.record_count for batch in batches)
            self.size = sum(len(batch.records) for batch in batches)
            self.wire_size = self.size + HEADER_SIZE * len(batches)
            self.max_timestamp = max(batch.max_timestamp for batch in batches)

    def wire(self, codec: int, zstd: bool) -> list[BytesLike]:
        if codec == Codec.ZSTD and not zstd:
            codec = Codec.NONE
        kind = int(self._log_append_time)
        return [batch.assembled(codec, kind) for batch in self._batches]

    def decoded(self, at_least: int = -(2**63)) -> list[DecodedBatch]:
        return [batch for batch in self._batches if batch.max_timestamp >= at_least]

    def transactional(self, start: int) -> int | None:
        found = (batch.base_offset for batch in self._batches if batch.transactional and batch.last_offset >= start)
        return next(found, None)

    def below(self, end: int) -> Chunk:
        kept = [
            batch if batch.last_offset < end else cut(batch, end) for batch in self._batches if batch.base_offset < end
        ]
        return DecodedChunk(kept, self._log_append_time)

    def spans(self) -> list[Span]:
        return [
            Span(each.base_offset, each.last_offset, each.producer_id if each.transactional else -1, each.control)
            for each in self._batches
        ]

    def only(self, kept: Collection[int]) -> Chunk:
        return DecodedChunk([each for each in self._batches if each.base_offset in kept], self._log_append_time)


Retain = Callable[[DecodedBatch], bytearray]
"""Says of each record of a batch whether compaction keeps it: a byte, 1 or 0."""


@dataclass(slots=True)
class Thinned:
    """What compaction leaves of the entries in a reply to `range_command`.

    Attributes:
        commands: XADDs of what is kept.
        seen, kept: entries.
        clean: those that are kept and lie below the end of what is compacted.
        records_seen, records_kept: their records.
        first, last: ids of the first entry that is kept, and of the last one that was seen.
        first_gone, last_gone: ids of entries that are left out.
        end: the offset after the last one that was seen.
    """

    commands: list[BytesLike] = field(default_factory=list)
    seen: int = 0
    kept: int = 0
    clean: int = 0
    records_seen: int = 0
    records_kept: int = 0
    first: bytes = b""
    last: bytes = b""
    first_gone: bytes = b""
    last_gone: bytes = b""
    end: int = 0

    @property
    def changed(self) -> bool:
        """Whether anything is left out."""
        return self.records_kept < self.records_seen

    def add_up(self, more: Thinned) -> None:
        """Takes what follows these entries into account, all but its commands."""
        self.seen += more.seen
        self.kept += more.kept
        self.clean += more.clean
        self.records_seen += more.records_seen
        self.records_kept += more.records_kept
        self.first = self.first or more.first
        self.first_gone = self.first_gone or more.first_gone
        self.last, self.last_gone, self.end = more.last or self.last, more.last_gone or self.last_gone, more.end

    def add(
        self, offset: int, entry: EntryBytes, to: bytes, below: int, records: int, kept: int, batch: bytes | None = None
    ) -> None:
        """Takes one entry into account.

        Args:
            offset: of its last record.
            to: the stream that it is copied to.
            below: the offset below which compaction looks at records.
            kept: how many of its `records` stay.
            batch: the batch that stands for it, where only some of them do.
        """
        entry_id = self.last = entry.id
        self.end = offset + 1
        self.seen += 1
        self.records_seen += records
        self.records_kept += kept
        if not kept:
            self.first_gone, self.last_gone = self.first_gone or entry_id, entry_id
            return
        self.kept += 1
        self.clean += offset < below
        self.first = self.first or entry_id
        self.commands.append(entry.copied(to) if batch is None else pack("XADD", to, entry_id, "batch", batch))


class EntryBytes:
    """One entry as it lies in a reply."""

    __slots__ = ("_fields", "_reply", "_stop", "id")

    def __init__(self, reply: bytes, start: int, stop: int) -> None:
        at = reply.index(b"\r\n", start + len(b"*2\r\n")) + 2
        end = reply.index(b"\r\n", at)
        self._reply, self._fields, self._stop = reply, end + 2, stop
        self.id = reply[at:end]

    def copied(self, to: bytes) -> bytes:
        """XADD of the same fields under the same id."""
        at = self._reply.index(b"\r\n", self._fields)
        words = int(self._reply[self._fields + 1 : at]) + 3
        return b"*%d\r\n$4\r\nXADD\r\n$%d\r\n%b\r\n$%d\r\n%b%b" % (
            words, len(to), to, len(self.id), self.id, self._reply[at : self._stop],
        )  # fmt: skip


class Layout(ABC):
    """How batches lie in a stream. The offset of every record follows from the ids.

    Attributes:
        entry_is_record: what Redis counts is records.
        count_step: entries that a script may read at a time without holding up Redis.
    """

    entry_is_record: bool
    count_step: int

    def info_command(self, stream: bytes) -> bytes:
        """What `streams.parse_info` reads the reply of."""
        return info_command(stream)

    @abstractmethod
    def start(self, info: StreamInfo, numbering: OffsetNumbering) -> int | None:
        """Offset of the stream's first record; None where there is none."""

    def range_command(
        self, stream: bytes, numbering: OffsetNumbering, offset: int, count: int, end: int | None = None
    ) -> bytes:
        """XRANGE of `count` entries from the one on that holds `offset`, up to that with the record before `end`."""
        return pack(
            "XRANGE", stream, numbering.format_id(*numbering.to_id(offset)), self._last(numbering, end), "COUNT", count
        )

    @abstractmethod
    def _last(self, numbering: OffsetNumbering, end: int | None) -> bytes:
        """An id not below that of the entry with the record before `end`."""

    @abstractmethod
    def read(
        self, reply: bytes | memoryview, numbering: OffsetNumbering, max_bytes: int, log_append_time: bool
    ) -> Chunk:
        """The batches in a reply, with a `Chunk.wire_size` of at most `max_bytes`, but at least one record.

        Raises:
            RedisError: Redis answered with an error, or with an entry whose id is beyond any offset.
        """

    @abstractmethod
    def thin(self, reply: bytes, numbering: OffsetNumbering, to: bytes, below: int, retain: Retain) -> Thinned:
        """Copies what compaction keeps of the entries in a reply; raises as `read`.

        Args:
            to, below: see `Thinned.add`.
        """

    @abstractmethod
    def payload(
        self, data: bytes, header: BatchHeader, codec: int | None, append_time: int | None, inflated_max: int
    ) -> Payload:
        """A batch as a producer sent it.

        Args:
            codec: Kafka's number of the compression the topic asks for; None for the producer's.
            append_time: ms, for LogAppendTime.
            inflated_max: bytes a compressed batch may become.

        Raises:
            RecordTooLarge, CorruptRecord, InvalidRecord, UnsupportedCompression.
        """

    @abstractmethod
    def marker(self, marker: Marker, now: int) -> tuple[Word, ...]:
        """The fields and values of the entry that ends a transaction.

        Args:
            now: ms.
        """

    @abstractmethod
    def marker_batch(self, marker: Marker, now: int) -> Payload:
        """The entry with these fields, as it is read back; it is not to be appended."""

    @abstractmethod
    def pack(self, batch: DecodedBatch, codec: int, append_time: int | None = None) -> Payload:
        """A batch that comes from no Kafka producer; its offset deltas are 0, 1, 2, ...

        Args:
            codec: Kafka's number of the compression to store it in, where the layout does.
            append_time: as in `payload`.
        """
