"""`storage.layout=batch`: a stream entry per RecordBatch, whose one field `batch` holds the producer's bytes.

An entry's id stands for the offset of the batch's LAST record. So `XRANGE id(offset) +` begins with the batch that
holds an offset, XTRIM MINID never cuts one that is still needed, last-generated-id is the end of the log as in the
other layout, and a commit acknowledges exactly the batches that lie below it. With the first record's id each of these
would need a look at the entry before.

The bytes are stored as they came, still compressed. The base offset in them, which lies outside their checksum, is the
producer's 0 and says nothing; it follows from the id and is put in when the batch is served.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

from ketch.errors import CorruptRecord, InvalidRecord, KetchError, RedisError
from ketch.records import (
    CONTROL,
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    BytesLike,
    DecodedBatch,
    check_records,
    compress,
    decode_entries,
    decompress,
    find_batches,
    join_batches,
    patch,
    peek_header,
    rewrite,
    select_records,
    split_batches,
    thinned,
)
from ketch.records.columns import restamped, row_timestamps
from ketch.records.control import Marker, control_batch
from ketch.redis.question import Word
from ketch.redis.resp import checked, pack, parse
from ketch.store import scripts
from ketch.store.layouts.layout import Chunk, EntryBytes, Layout, Operands, Payload, Retain, Span, Thinned
from ketch.store.offsets import OffsetNumbering
from ketch.store.xinfo import StreamInfo
from ketch.wire.pieces import LARGE_MEAN

log = logging.getLogger(__name__)

_FIELD = b"batch"
_ZSTD = 4
_RECORD_MIN = 7  # bytes of the smallest record
_INFLATED_MAX = 1 << 28  # bytes of one batch's records when they have to be looked at
_PATCHED = 16  # first bytes of a batch that are made when it is served
_LAST_DELTA = slice(23, 27)  # of a batch: its last offset delta
_ATTRIBUTES_AT, _PRODUCER = 22, slice(43, 51)  # of a batch: the low byte of its attributes, its producer id


@dataclass(slots=True)  # frozen, it takes twice as long to make one
class WholeBatch:
    """One batch as it is stored: a `Payload`."""

    data: bytes
    count: int
    timestamp: int | None  # ms, for LogAppendTime

    @property
    def entries(self) -> int:
        return 1

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def weight(self) -> int:
        return len(self.data)

    def plain(self, inflated_max: int) -> BytesLike:
        return decompress(peek_header(self.data).codec, memoryview(self.data)[HEADER_SIZE:], inflated_max)

    @property
    def producer(self) -> int | None:
        return int.from_bytes(self.data[_PRODUCER]) if self.data[_ATTRIBUTES_AT] & TRANSACTIONAL else None

    def largest(self) -> int:
        return len(self.data)

    def appends(self, stream: bytes, numbering: OffsetNumbering, base: int) -> bytes:
        return pack("XADD", stream, numbering.format_id(*numbering.to_id(base + self.count - 1)), _FIELD, self.data)

    def chunk(self, base: int) -> Chunk:
        return BatchChunk([_Stored(base, peek_header(self.data), self.data)])

    def operands(self) -> Operands | None:
        return ("entry", _FIELD.decode()), self.data

    def arguments(self) -> tuple[bytes, int]:
        return b"$1\r\n2\r\n$5\r\n%b\r\n$%d\r\n%b\r\n" % (_FIELD, len(self.data), self.data), 3


@dataclass(frozen=True, slots=True)
class _Stored:
    """A batch in a reply."""

    base: int
    header: BatchHeader
    data: BytesLike

    @property
    def end(self) -> int:
        return self.base + self.header.count

    def wire(self, zstd: bool) -> tuple[bytes, BytesLike]:
        data = self.data if zstd or self.header.codec != _ZSTD else self._plain()
        return patch(self.base, len(data)), memoryview(data)[_PATCHED:]

    def _plain(self) -> bytes:
        return rewrite(self.data, self.header, 0, self.records(), self.append_time)

    @property
    def append_time(self) -> int | None:
        return self.header.max_timestamp if self.header.timestamp_type else None

    def records(self) -> BytesLike:
        return decompress(self.header.codec, memoryview(self.data)[HEADER_SIZE:], _INFLATED_MAX)

    def decoded(self) -> DecodedBatch:
        header, records = self.header, bytes(self.records())
        check_records(records, header.count, header.last_offset_delta)
        batch = DecodedBatch(
            self.base,
            header.last_offset_delta,
            header.base_timestamp,
            header.max_timestamp,
            header.count,
            records,
            header.producer_id,
            header.producer_epoch,
            header.attributes & (TRANSACTIONAL | CONTROL),
        )
        return batch if self.append_time is None else restamped(batch, self.append_time)


class BatchChunk(Chunk):
    """Batches that lie in a reply; nothing of them is copied before it is asked for."""

    def __init__(self, batches: list[_Stored]) -> None:
        self._batches = batches
        if batches:
            self.base = batches[0].base
            self.end = batches[-1].base + batches[-1].header.last_offset_delta + 1
            self.records = sum(batch.header.count for batch in batches)
            self.entries = len(batches)
            self.size = self.wire_size = sum(batch.header.length for batch in batches)
            self.max_timestamp = max(batch.header.max_timestamp for batch in batches)

    def wire(self, codec: int, zstd: bool) -> list[BytesLike]:
        return [piece for batch in self._batches for piece in batch.wire(zstd)]

    def transactional(self, start: int) -> int | None:
        found = (each.base for each in self._batches if each.header.transactional and each.end > start)
        return next(found, None)

    def below(self, end: int) -> Chunk:
        return BatchChunk([batch for batch in self._batches if batch.base < end])

    def spans(self) -> list[Span]:
        return [
            Span(
                each.base,
                each.base + each.header.last_offset_delta,
                each.header.producer_id if each.header.transactional else -1,
                each.header.control,
            )
            for each in self._batches
        ]

    def only(self, kept: Collection[int]) -> Chunk:
        return BatchChunk([batch for batch in self._batches if batch.base in kept])

    def decoded(self, at_least: int = -(2**63)) -> list[DecodedBatch]:
        batches = []
        for batch in self._batches:
            if batch.header.max_timestamp >= at_least:
                try:
                    batches.append(batch.decoded())
                except KetchError as error:
                    # Its producer made it so, and no Kafka client can read it either: the others must not suffer.
                    last = batch.base + batch.header.last_offset_delta
                    log.warning("the records of offsets %d to %d are unreadable: %s", batch.base, last, error)
        return batches


class JoinedChunk(Chunk):
    """Small batches, none of a transaction, as a response has them. They are taken apart only where one is looked at.

    Args:
        data: the batches, `entries` of them.
        zstd: whether any is compressed so.
    """

    def __init__(
        self, data: bytes, base: int, end: int, records: int, entries: int, max_timestamp: int, zstd: bool
    ) -> None:
        self.base, self.end, self.records, self.entries = base, end, records, entries
        self.size = self.wire_size = len(data)
        self.max_timestamp = max_timestamp
        self._data, self._zstd = data, zstd

    @cached_property
    def _apart(self) -> BatchChunk:
        batches = [(peek_header(view), view) for view in split_batches(self._data)]
        return BatchChunk([_Stored(header.base_offset, header, view) for header, view in batches])

    def wire(self, codec: int, zstd: bool) -> list[BytesLike]:
        return [self._data] if zstd or not self._zstd else self._apart.wire(codec, zstd)

    def transactional(self, start: int) -> int | None:
        return None

    def below(self, end: int) -> Chunk:
        return self._apart.below(end)

    def spans(self) -> list[Span]:
        return self._apart.spans()

    def only(self, kept: Collection[int]) -> Chunk:
        return self._apart.only(kept)

    def decoded(self, at_least: int = -(2**63)) -> list[DecodedBatch]:
        return self._apart.decoded(at_least)


class BatchLayout(Layout):
    """An entry's id is the offset of its last record."""

    entry_is_record = False
    count_step = 20

    def info_command(self, stream: bytes) -> bytes:
        """XINFO STREAM answers with the first and last entry, which are large here: only their heads come."""
        return bytes(scripts.info(stream, _FIELD, HEADER_SIZE).pieces[0])

    def start(self, info: StreamInfo, numbering: OffsetNumbering) -> int | None:
        if info.first is None:
            return None
        last = numbering.to_offset(*info.first)
        delta = int.from_bytes(info.first_batch[_LAST_DELTA], signed=True)
        # An entry that another client wrote holds no batch: it is one record.
        return last - delta if len(info.first_batch) >= HEADER_SIZE and 0 <= delta <= last else last

    def _last(self, numbering: OffsetNumbering, end: int | None) -> bytes:
        return b"+"  # the batch with the record before `end` may end anywhere

    def read(
        self, reply: bytes | memoryview, numbering: OffsetNumbering, max_bytes: int, log_append_time: bool
    ) -> Chunk:
        if reply[:1] != b"*":
            checked(parse(bytes(reply)))
        joined = join_batches(reply, numbering.bits, numbering.dense, max_bytes, LARGE_MEAN)
        if joined is not None:
            return JoinedChunk(*joined)
        view, batches, left = memoryview(reply), list[_Stored](), max_bytes
        try:
            for offset, start, end, value, value_end in find_batches(reply, numbering.bits, numbering.dense):
                batch = _stored(offset, view[value:value_end])
                batch = batch or _foreign(offset, view[start:end], numbering, log_append_time)
                left -= batch.header.length
                if batches and left < 0:
                    if 2 * start < len(reply):  # else few small ones would keep the memory of many large ones
                        batches = [replace(each, data=bytes(each.data)) for each in batches]
                    break
                batches.append(batch)
        except ValueError as error:
            raise RedisError(f"entries that cannot be served: {error}") from None
        return BatchChunk(batches)

    def thin(self, reply: bytes, numbering: OffsetNumbering, to: bytes, below: int, retain: Retain) -> Thinned:
        left, view = Thinned(), memoryview(reply)
        for offset, start, stop, value, value_end in find_batches(reply, numbering.bits, numbering.dense):
            entry = EntryBytes(reply, start, stop)
            stored = _stored(offset, view[value:value_end])
            whole = stored or _foreign(offset, view[start:stop], numbering, False)
            count, kept, batch = whole.header.count, *_thinned(whole, retain)
            left.add(offset, entry, to, below, count, kept, batch if stored else None)
        return left

    def payload(
        self, data: bytes, header: BatchHeader, codec: int | None, append_time: int | None, inflated_max: int
    ) -> Payload:
        records: BytesLike = memoryview(data)[HEADER_SIZE:]
        # The records are not looked at, so that is all to keep a made-up count from using up offsets.
        if header.count > (inflated_max if header.codec else len(records)) // _RECORD_MIN:
            raise InvalidRecord("the batch does not hold as many records as its header says")
        if codec is not None and codec != header.codec:
            records = compress(codec, decompress(header.codec, records, inflated_max))
        else:
            codec = header.codec
        kept = codec | TRANSACTIONAL if header.transactional else codec
        if header.attributes != kept or append_time is not None:  # flags that Kafka itself sets must not come in
            data = rewrite(data, header, codec, records, append_time)
        return WholeBatch(data, header.count, append_time)

    def marker(self, marker: Marker, now: int) -> tuple[Word, ...]:
        batch = control_batch(0, marker.producer, marker.epoch, marker.commit, marker.coordinator_epoch, now)
        return _FIELD, batch, "control", marker.control

    def marker_batch(self, marker: Marker, now: int) -> Payload:
        batch = control_batch(0, marker.producer, marker.epoch, marker.commit, marker.coordinator_epoch, now)
        return WholeBatch(batch, 1, None)

    def pack(self, batch: DecodedBatch, codec: int, append_time: int | None = None) -> Payload:
        latest = batch.max_timestamp if append_time is None else append_time
        stored = batch._replace(base_offset=0, max_timestamp=latest)
        data = stored.assembled(codec, int(append_time is not None))
        return WholeBatch(data, batch.record_count, append_time)


def _stored(offset: int, data: memoryview) -> _Stored | None:
    """The batch whose last record has this offset; None where the bytes are no batch."""
    try:
        header = peek_header(data)
    except CorruptRecord:
        return None
    base = offset - header.last_offset_delta
    return _Stored(base, header, data) if base >= 0 else None


def _thinned(stored: _Stored, retain: Retain) -> tuple[int, bytes | None]:
    """How many of a batch's records stay, and the batch that holds these where it is another one."""
    header = stored.header
    try:
        batch = stored.decoded()
        mask = retain(batch)
    except KetchError:  # as it is, no consumer can read it, and nothing is known of its keys
        return header.count, None
    kept = sum(mask)
    if kept in (0, header.count):
        return kept, None
    # Of a batch with LogAppendTime the header alone has the time.
    latest = max(time for (_, time), keep in zip(row_timestamps(batch), mask, strict=True) if keep)
    records = select_records(stored.records(), mask)
    return kept, thinned(stored.data, header, records, kept, latest)


def _foreign(offset: int, entry: memoryview, numbering: OffsetNumbering, log_append_time: bool) -> _Stored:
    """An entry that another Redis client has added is one record, as in the record layout."""
    (batch,) = decode_entries(b"*1\r\n" + entry, numbering.bits, numbering.dense, 0, False)
    data = batch._replace(base_offset=offset).assembled(0, int(log_append_time))
    return _Stored(offset, peek_header(data), data)
