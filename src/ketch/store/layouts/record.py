"""`storage.layout=record`: a stream entry per record, its fields as `ketch.records` has them, for any Redis client."""

from __future__ import annotations

from dataclasses import dataclass

from ketch.errors import RedisError
from ketch.records import (
    CONTROL,
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    BytesLike,
    DecodedBatch,
    decode_entries,
    decompress,
    encode_appends,
    encode_arguments,
    find_batches,
    largest_record,
)
from ketch.records.columns import restamped
from ketch.records.control import Marker, control_batch
from ketch.redis.question import Word
from ketch.redis.resp import checked, parse
from ketch.store.layouts.layout import (
    Chunk,
    DecodedChunk,
    EntryBytes,
    Layout,
    Operands,
    Payload,
    Retain,
    Thinned,
    fitting,
)
from ketch.store.offsets import OffsetNumbering
from ketch.store.xinfo import StreamInfo

_COMMAND_SIZE = 128  # bytes of an XADD around its record, about
_EVERYTHING = 1 << 62  # bytes
_RECORD_MIN = 7  # bytes of the smallest record


@dataclass(slots=True)  # frozen, it takes twice as long to make one
class RecordSet:
    """The records of one batch, decompressed, as the kernel takes them: a `Payload`."""

    records: BytesLike
    count: int
    base_timestamp: int
    max_timestamp: int
    timestamp: int | None  # ms, for LogAppendTime; None keeps each record's own
    transaction: bytes = b""  # "producer:epoch" where it belongs to a transaction
    control: int = 0  # CONTROL: it is a marker

    @property
    def entries(self) -> int:
        return self.count

    @property
    def size(self) -> int:
        return len(self.records)

    @property
    def weight(self) -> int:
        """Many small records grow most."""
        size = len(self.records)
        return size + _COMMAND_SIZE * min(self.count, size // _RECORD_MIN)

    def plain(self, inflated_max: int) -> BytesLike:
        return self.records

    @property
    def producer(self) -> int | None:
        return int(self.transaction.partition(b":")[0]) if self.transaction else None

    def largest(self) -> int:
        return largest_record(self.records, self.count)

    def appends(self, stream: bytes, numbering: OffsetNumbering, base: int) -> bytes:
        ms, seq = numbering.to_id(base)
        return encode_appends(
            self.records, self.count, stream, ms, seq, numbering.bits, self.base_timestamp, self.timestamp,
            self.transaction,
        )  # fmt: skip

    def arguments(self) -> tuple[bytes, int]:
        return encode_arguments(self.records, self.count, self.base_timestamp, self.timestamp, self.transaction)

    def operands(self) -> Operands | None:
        return ("records", self.base_timestamp, "" if self.timestamp is None else self.timestamp), self.records

    def chunk(self, base: int) -> Chunk:
        records = bytes(self.records)
        batch = DecodedBatch(base, self.count - 1, self.base_timestamp, self.max_timestamp, self.count, records)
        if self.transaction:
            producer, _, epoch = self.transaction.partition(b":")
            attributes = TRANSACTIONAL | self.control
            batch = batch._replace(producer_id=int(producer), producer_epoch=int(epoch), attributes=attributes)
        batch = batch if self.timestamp is None else restamped(batch, self.timestamp)
        return DecodedChunk([batch], log_append_time=self.timestamp is not None)


class RecordLayout(Layout):
    """An entry's id is its record's offset."""

    entry_is_record = True
    count_step = 1_000

    def start(self, info: StreamInfo, numbering: OffsetNumbering) -> int | None:
        return None if info.first is None else numbering.to_offset(*info.first)

    def _last(self, numbering: OffsetNumbering, end: int | None) -> bytes:
        return b"+" if end is None else numbering.format_id(*numbering.to_id(end - 1))

    def read(
        self, reply: bytes | memoryview, numbering: OffsetNumbering, max_bytes: int, log_append_time: bool
    ) -> Chunk:
        if reply[:1] != b"*":
            checked(parse(bytes(reply)))
        try:
            # A batch with LogAppendTime has one timestamp on the wire.
            batches = decode_entries(reply, numbering.bits, numbering.dense, max_bytes - HEADER_SIZE, log_append_time)
        except ValueError as error:
            raise RedisError(f"entries that cannot be served: {error}") from None
        return DecodedChunk(fitting(batches, max_bytes), log_append_time)

    def thin(self, reply: bytes, numbering: OffsetNumbering, to: bytes, below: int, retain: Retain) -> Thinned:
        thinned = Thinned()
        batches = self.read(reply, numbering, _EVERYTHING, False).decoded()
        mask = b"".join([retain(batch) for batch in batches])
        found = find_batches(reply, numbering.bits, numbering.dense)
        for (offset, start, stop, _, _), keep in zip(found, mask, strict=True):
            thinned.add(offset, EntryBytes(reply, start, stop), to, below, 1, keep)
        return thinned

    def payload(
        self, data: bytes, header: BatchHeader, codec: int | None, append_time: int | None, inflated_max: int
    ) -> Payload:
        records = decompress(header.codec, memoryview(data)[HEADER_SIZE:], inflated_max)
        transaction = b"%d:%d" % (header.producer_id, header.producer_epoch) if header.transactional else b""
        return RecordSet(records, header.count, header.base_timestamp, header.max_timestamp, append_time, transaction)

    def marker(self, marker: Marker, now: int) -> tuple[Word, ...]:
        return (
            "control", marker.control, "transaction", f"{marker.producer}:{marker.epoch}",
            "coordinator.epoch", marker.coordinator_epoch, "timestamp", now,
        )  # fmt: skip

    def marker_batch(self, marker: Marker, now: int) -> Payload:
        whole = control_batch(0, marker.producer, marker.epoch, marker.commit, marker.coordinator_epoch, now)
        transaction = b"%d:%d" % (marker.producer, marker.epoch)
        return RecordSet(memoryview(whole)[HEADER_SIZE:], 1, now, now, None, transaction, CONTROL)

    def pack(self, batch: DecodedBatch, codec: int, append_time: int | None = None) -> Payload:
        return RecordSet(batch.records, batch.record_count, batch.base_timestamp, batch.max_timestamp, append_time)
