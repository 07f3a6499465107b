"""The header of a RecordBatch v2 (org.apache.kafka.common.record.DefaultRecordBatch): read, checked, written."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from ketch.errors import CorruptRecord
from ketch.records.compression import BytesLike, compress

MAGIC = 2
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
TRANSACTIONAL, CONTROL = 0x10, 0x20  # attributes (KIP-98): part of a transaction, and a transaction's marker

# base offset, length of what follows | leader epoch, magic, CRC | attributes, last offset delta, base and max
# timestamp, producer id, producer epoch, base sequence, count. The CRC covers all bytes after it.
_PREFIX = struct.Struct(">qi")
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CHECKED = struct.Struct(">hiqqqhii")
_OUTER = struct.Struct(">qiibI")
_PATCH = struct.Struct(">qii")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")
_COUNT = struct.Struct(">i")
_MAGIC_AT = 16
_MAX_TIMESTAMP_AT = 35
_COUNT_AT = 57

HEADER_SIZE = _HEADER.size

_CODEC_MASK = 0x07
_TIMESTAMP_TYPE_SHIFT = 3


class DecodedBatch(NamedTuple):
    """The uncompressed records of one batch and the header fields that describe them, in the order of `assemble`."""

    base_offset: int
    last_offset_delta: int
    base_timestamp: int  # ms since the epoch; -1: no timestamp
    max_timestamp: int
    record_count: int
    records: bytes  # each with its length in front, as Kafka's record format has them
    producer_id: int = NO_PRODUCER_ID  # that wrote it; -1: it had none, or it is not known
    producer_epoch: int = NO_PRODUCER_EPOCH
    attributes: int = 0  # TRANSACTIONAL, CONTROL

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL)

    def assembled(self, codec: int, timestamp_type: int = 0) -> bytes:
        """The batch as it goes onto the wire, compressed with ``codec``; a marker never is."""
        attributes = self.attributes | timestamp_type << _TIMESTAMP_TYPE_SHIFT
        attributes |= 0 if self.control else codec
        return _assembled(
            self.base_offset,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.record_count,
            self.records,
            attributes,
            self.producer_id,
            self.producer_epoch,
            0,
        )


@dataclass(slots=True)  # frozen, it takes twice as long to read one
class BatchHeader:
    """Timestamps in ms since the epoch; ``length`` is the whole batch in bytes, its first twelve included."""

    base_offset: int
    length: int
    leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def codec(self) -> int:
        """0 to 4: none, gzip, snappy, lz4, zstd; 5 to 7 are not known."""
        return self.attributes & _CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """0: the producer's (CreateTime), 1: the broker's (LogAppendTime)."""
        return self.attributes >> _TIMESTAMP_TYPE_SHIFT & 1

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL)


def split_batches(buf: BytesLike) -> list[memoryview]:
    """Cuts a buffer of whole batches apart by their lengths; looks at nothing else but the magic.

    Raises :class:`CorruptRecord` for a batch cut short, a length that cannot be, or a magic other than 2.
    """
    view = memoryview(buf)
    batches = []
    while view:
        length = _batch_length(view)
        batches.append(view[:length])
        view = view[length:]
    return batches


def read_header(buf: BytesLike) -> BatchHeader:
    """Reads and checks the header of the one batch that ``buf`` is, as a broker must before it appends one.

    Raises :class:`CorruptRecord` for what :func:`split_batches` refuses, bytes after the batch, a wrong CRC, and a
    count that is below 1 or disagrees with the last offset delta (LogValidator.validateBatch).
    """
    header = _unpack(buf)
    if crc32c(memoryview(buf)[_OUTER.size :]) != header.crc:
        raise CorruptRecord("the batch does not match its checksum")
    _check_count(header)
    return header


def peek_header(buf: BytesLike) -> BatchHeader:
    """As :func:`read_header`, for a batch whose checksum was looked at when it was stored.

    Compaction may have removed records of it; its offsets stay.
    """
    header = _unpack(buf)
    if not 1 <= header.count <= header.last_offset_delta + 1:
        raise CorruptRecord(_wrong_count(header))
    return header


def _unpack(buf: BytesLike) -> BatchHeader:
    length = _batch_length(buf)
    if length != len(buf):
        raise CorruptRecord(f"the batch has {length} bytes and is followed by {len(buf) - length} more")
    offset, _, leader, _, crc, attributes, delta, base, latest, pid, epoch, first, count = _HEADER.unpack_from(buf)
    return BatchHeader(offset, length, leader, crc, attributes, delta, base, latest, pid, epoch, first, count)


def _check_count(header: BatchHeader) -> None:
    if header.count < 1 or header.last_offset_delta != header.count - 1:
        raise CorruptRecord(_wrong_count(header))


def _wrong_count(header: BatchHeader) -> str:
    return f"the batch has {header.count} records and the last offset {header.last_offset_delta}"


def rewrite(buf: BytesLike, header: BatchHeader, codec: int, records: BytesLike, append_time: int | None) -> bytes:
    """The batch with other records (compressed with ``codec``) and the timestamp type that its topic asks for.

    With ``append_time`` (ms) it says LogAppendTime and that time (DefaultRecordBatch.setMaxTimestamp); without,
    CreateTime. The checksum is computed again. Everything else in the header stays, the producer's id too.
    """
    attributes = header.attributes & (TRANSACTIONAL | CONTROL) | codec
    if append_time is not None:
        attributes |= 1 << _TIMESTAMP_TYPE_SHIFT
    checked = bytearray(buf[_OUTER.size : HEADER_SIZE])
    _ATTRIBUTES.pack_into(checked, 0, attributes)
    if append_time is not None:
        _TIMESTAMP.pack_into(checked, _MAX_TIMESTAMP_AT - _OUTER.size, append_time)
    crc = crc32c(records, crc32c(checked))
    length = HEADER_SIZE + len(records) - _PREFIX.size
    return b"".join((_OUTER.pack(header.base_offset, length, header.leader_epoch, MAGIC, crc), checked, records))


def thinned(buf: BytesLike, header: BatchHeader, records: BytesLike, count: int, max_timestamp: int) -> bytes:
    """The batch with some of its records only, compressed as it was: its offsets and its producer stay (LogCleaner).

    Args:
        records: `count` of them, uncompressed; the latest has `max_timestamp`.
    """
    payload = compress(header.codec, records) if header.codec else records
    checked = bytearray(buf[_OUTER.size : HEADER_SIZE])
    _TIMESTAMP.pack_into(checked, _MAX_TIMESTAMP_AT - _OUTER.size, max_timestamp)
    _COUNT.pack_into(checked, _COUNT_AT - _OUTER.size, count)
    crc = crc32c(payload, crc32c(checked))
    length = HEADER_SIZE + len(payload) - _PREFIX.size
    return b"".join((_OUTER.pack(header.base_offset, length, header.leader_epoch, MAGIC, crc), checked, payload))


def patch(base_offset: int, length: int, leader_epoch: int = 0) -> bytes:
    """The first sixteen bytes of a batch; its checksum covers none of them."""
    return _PATCH.pack(base_offset, length - _PREFIX.size, leader_epoch)


def assemble(
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    records: BytesLike,
    codec: int,
    timestamp_type: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """Builds a batch without a producer id from its uncompressed records, compressed with ``codec``.

    Raises :class:`~ketch.errors.UnsupportedCompression` for a codec outside 0 to 4.
    """
    plain = base_offset, last_offset_delta, base_timestamp, max_timestamp, count, records
    attributes = codec | timestamp_type << _TIMESTAMP_TYPE_SHIFT
    return _assembled(*plain, attributes, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, leader_epoch)


def _assembled(
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    records: BytesLike,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
    leader_epoch: int,
) -> bytes:
    codec = attributes & _CODEC_MASK
    payload = compress(codec, records) if codec else records
    checked = _CHECKED.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        count,
    )
    length = HEADER_SIZE + len(payload) - _PREFIX.size
    crc = crc32c(payload, crc32c(checked))
    return b"".join((_OUTER.pack(base_offset, length, leader_epoch, MAGIC, crc), checked, payload))


def sealed(base_offset: int, attributes: int, timestamp: int, producer: int, epoch: int, record: bytes) -> bytes:
    """A batch of one record that a producer's id and epoch stand over, without a sequence."""
    checked = _CHECKED.pack(attributes, 0, timestamp, timestamp, producer, epoch, NO_SEQUENCE, 1)
    crc = crc32c(record, crc32c(checked))
    length = HEADER_SIZE + len(record) - _PREFIX.size
    return b"".join((_OUTER.pack(base_offset, length, 0, MAGIC, crc), checked, record))


def empty_batch(base_offset: int, last_offset_delta: int, timestamp: int) -> bytes:
    """A batch without records, as a compacted log has them (DefaultRecordBatch.writeEmptyHeader).

    A consumer that reads it goes on at ``base_offset + last_offset_delta + 1``, past offsets without records.
    """
    return assemble(base_offset, last_offset_delta, NO_TIMESTAMP, timestamp, 0, b"", 0)


def _batch_length(buf: BytesLike) -> int:
    """Bytes of the first batch in ``buf``, which holds all of them."""
    if len(buf) > _MAGIC_AT and buf[_MAGIC_AT] != MAGIC:
        raise CorruptRecord(f"the batch has magic {buf[_MAGIC_AT]}, only {MAGIC} is known")
    if len(buf) < HEADER_SIZE:
        raise CorruptRecord(f"a batch cannot have {len(buf)} bytes")
    length: int = _PREFIX.unpack_from(buf)[1] + _PREFIX.size
    if not HEADER_SIZE <= length <= len(buf):
        raise CorruptRecord(f"the batch says it has {length} bytes, {len(buf)} are there")
    return length
