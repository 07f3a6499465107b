"""The twin of the Cython kernel in plain Python, used where the kernel was not built.

:mod:`ketch.records` documents the functions. Both raise the same errors for the same bytes; only the wording differs.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import TypeAlias

from ketch.errors import CorruptRecord, InvalidRecord
from ketch.records._buffers import BinaryBuffers, BinaryColumn, Buffer, Columns, ListBuffers
from ketch.records._pure_frames import DIGITS, LINE_MAX, scan_reply, take_size
from ketch.records.batch import CONTROL, HEADER_SIZE, TRANSACTIONAL, DecodedBatch, patch, peek_header
from ketch.records.compression import BytesLike, Codec

__all__ = [
    "check_records",
    "columns_to_records",
    "decode_entries",
    "encode_appends",
    "encode_arguments",
    "find_batches",
    "join_batches",
    "largest_record",
    "records_to_columns",
    "scan_reply",
]

RecordHeader: TypeAlias = tuple[bytes, bytes | None]
EntryField: TypeAlias = tuple[bytes, bytes]
Record: TypeAlias = tuple[int, int, bytes | None, bytes | None, list[RecordHeader]]
"""Timestamp delta, offset delta, key, value, headers."""
Row: TypeAlias = tuple[int, int, bytes | None, bytes | None, list[RecordHeader]]
"""Offset, timestamp, key, value, headers."""
Producer: TypeAlias = tuple[int, int, int]
"""Whose transaction an entry belongs to: producer id, epoch, attributes (TRANSACTIONAL, CONTROL)."""

_NO_PRODUCER: Producer = (-1, -1, 0)

_INT16_MAX = 2**15 - 1
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_RECORD_MIN = 7  # seven one-byte fields
_BULK_HEAD = re.compile(rb"\$(\d{1,10})\r\n")
_ONE_BYTE = [bytes([i]) for i in range(0x80)]
_VARINT = (5, 32)  # most bytes, bits
_VARLONG = (10, 64)
_BAD_ARRAY = "an Arrow array has offsets that do not fit what they point at"


# ---- records of a batch


class _Reader:
    """A cursor over the records section; raises InvalidRecord instead of passing ``end``."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0
        self.end = len(data)

    def varint(self, width: tuple[int, int] = _VARINT) -> int:
        most, bits = width
        raw = 0
        for i in range(most):
            if self.pos >= self.end:
                break
            byte = self.data[self.pos]
            self.pos += 1
            raw |= (byte & 0x7F) << 7 * i
            if byte < 0x80 and raw < 1 << bits:
                return (raw >> 1) ^ -(raw & 1)
            if byte < 0x80:
                break
        raise InvalidRecord("a varint is cut short or too long")

    def span(self) -> bytes | None:
        size = self.varint()
        if size < -1 or size > self.end - self.pos:
            raise InvalidRecord("a length does not fit into its record")
        if size < 0:
            return None
        self.pos += size
        return self.data[self.pos - size : self.pos]

    def header(self) -> RecordHeader:
        name = self.span()
        if name is None:
            raise InvalidRecord("a header has no name")
        return name, self.span()

    def record(self, index: int) -> Record:
        """One record (DefaultRecord.readFrom)."""
        size = self.varint()
        whole = self.end
        if size < _RECORD_MIN - 1 or size > whole - self.pos:
            raise InvalidRecord(f"record {index} of the batch has a wrong length")
        self.end = self.pos + size
        self.pos += 1  # the attributes, which hold nothing
        timestamp_delta = self.varint(_VARLONG)
        offset_delta = self.varint()
        key, value = self.span(), self.span()
        header_count = self.varint()
        if not 0 <= header_count <= (self.end - self.pos) // 2:
            raise InvalidRecord(f"record {index} of the batch cannot have {header_count} headers")
        headers = [self.header() for _ in range(header_count)]
        if self.pos != self.end:
            raise InvalidRecord(f"record {index} of the batch is longer than what is in it")
        self.end = whole
        return timestamp_delta, offset_delta, key, value, headers


def _header_field(name: bytes, value: bytes | None) -> EntryField:
    return (b"nullheader." + name, b"") if value is None else (b"header." + name, value)


def _read_records(records: BytesLike, count: int) -> Iterator[Record]:
    reader = _Reader(bytes(records))
    if count < 0 or count > reader.end // _RECORD_MIN:
        raise InvalidRecord(f"the batch cannot hold {count} records")
    for index in range(count):
        yield reader.record(index)
    if reader.pos != reader.end:
        raise InvalidRecord(f"the batch holds more than its {count} records")


def _entries(
    records: BytesLike, count: int, base_timestamp: int, timestamp: int | None, transaction: bytes
) -> Iterator[list[bytes]]:
    """The fields and values of each record's entry."""
    for index, (delta, offset_delta, key, value, headers) in enumerate(_read_records(records, count)):
        if offset_delta != index:
            raise InvalidRecord(f"record {index} of the batch has another offset delta")
        millis = _wrap(base_timestamp + delta) if timestamp is None else timestamp
        fields = [] if key is None else [(b"key", key)]
        fields += [] if value is None else [(b"value", value)]
        fields.append((b"timestamp", b"%d" % millis))
        fields += [(b"transaction", transaction)] if transaction else []
        fields += [_header_field(*header) for header in headers]
        yield list(chain.from_iterable(fields))


def check_records(records: BytesLike, count: int, last_offset_delta: int) -> None:
    last_delta = -1
    for index, (_, offset_delta, *_) in enumerate(_read_records(records, count)):
        if not last_delta < offset_delta <= last_offset_delta:
            raise InvalidRecord(f"record {index} of the batch has another offset delta")
        last_delta = offset_delta


def _wrap(n: int) -> int:
    """Wraps around as a long in Java does."""
    return (n + 2**63) % 2**64 - 2**63


def _bulks(parts: list[bytes]) -> bytes:
    return b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in parts])


def encode_appends(
    records: BytesLike,
    count: int,
    key: bytes,
    ms: int,
    seq: int,
    bits: int,
    base_timestamp: int,
    timestamp: int | None,
    transaction: bytes = b"",
) -> bytes:
    if not 0 < bits < 63 or ms < 0 or seq < 0 or seq >> bits:
        raise ValueError(f"no entry id: {ms}-{seq} with {bits} sequence bits")
    commands = []
    number = (ms << bits) + seq
    for fields in _entries(records, count, base_timestamp, timestamp, transaction):
        entry_id = b"%d-%d" % (number >> bits, number & (1 << bits) - 1)
        commands.append(b"*%d\r\n" % (3 + len(fields)) + _bulks([b"XADD", key, entry_id, *fields]))
        number += 1
    return b"".join(commands)


def encode_arguments(
    records: BytesLike, count: int, base_timestamp: int, timestamp: int | None, transaction: bytes = b""
) -> tuple[bytes, int]:
    parts: list[bytes] = []
    for fields in _entries(records, count, base_timestamp, timestamp, transaction):
        parts.append(b"%d" % len(fields))
        parts += fields
    return _bulks(parts), len(parts)


def largest_record(records: BytesLike, count: int) -> int:
    """Bytes of the largest record up to the first malformed one, which encode_appends then reports."""
    reader = _Reader(bytes(records))
    largest = 0
    try:
        for _ in range(count):
            size = reader.varint()
            if not 0 <= size <= reader.end - reader.pos:
                break
            reader.pos += size
            largest = max(largest, size)
    except InvalidRecord:
        pass
    return largest


# ---- entries of a stream


class _Reply:
    """A cursor over a whole reply; raises ValueError instead of reading past its end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0

    def size(self, kinds: bytes) -> int:
        """The number in the head of an array or bulk string, -1 for a null of any kind where ``kinds`` has ``_``."""
        kind = self.data[self.pos : self.pos + 1]
        if not kind or kind not in kinds:
            raise ValueError("malformed reply")
        if kind == b"_":
            if self.data[self.pos : self.pos + 3] != b"_\r\n":
                raise ValueError("malformed reply")
            self.pos += 3
            return -1
        taken = take_size(self.data, self.pos + 1, len(self.data))
        if taken is None or (kind == b"$" and b"*" in kinds and taken[1] != -1):
            raise ValueError("malformed reply")
        self.pos, size = taken
        return size

    def bulk(self) -> slice:
        head = _BULK_HEAD.match(self.data, self.pos)
        if head is None:
            raise ValueError("malformed reply")
        start = head.end()
        end = start + int(head[1])
        if self.data[end : end + 2] != b"\r\n":
            raise ValueError("malformed reply")
        self.pos = end + 2
        return slice(start, end)

    def spans(self) -> list[tuple[slice, slice]] | None:
        """Where the fields of an entry and their values are; None for an entry that was deleted."""
        size = self.size(b"*$_")
        if size < 0:
            return None
        if size % 2:
            raise ValueError("malformed reply")
        return [(self.bulk(), self.bulk()) for _ in range(size // 2)]

    def fields(self) -> list[EntryField] | None:
        spans = self.spans()
        return None if spans is None else [(self.data[name], self.data[value]) for name, value in spans]

    def entry_offset(self, bits: int, dense: bool, last: int) -> tuple[int, int]:
        """Reads the head and id of an entry: its offset, at least ``last + 1``, and the ms in the id."""
        if self.size(b"*$_") != 2:
            raise ValueError("malformed reply")
        ms, number = _id(self.data[self.bulk()], bits)
        offset = max(number - dense, last + 1)
        if number - dense < 0 or offset > _INT64_MAX:
            raise ValueError("an entry id lies outside the offsets of Kafka")
        return offset, ms

    def close(self) -> None:
        if self.pos != len(self.data):
            raise ValueError("malformed reply")


@dataclass(slots=True)
class _Batch:
    base_offset: int
    base_timestamp: int
    producer: Producer = _NO_PRODUCER
    last_offset: int = 0
    max_timestamp: int = -(2**63)
    count: int = 0
    records: bytearray = field(default_factory=bytearray)

    def takes(self, offset: int, timestamp: int, split_timestamps: bool, producer: Producer) -> bool:
        """Whether the deltas to the start of the batch fit: an int32 for offsets, an int64 for timestamps; and whether
        it is of the same transaction, of which each marker is a batch of its own."""
        if producer != self.producer or producer[2] & CONTROL:
            return False
        delta = timestamp - self.base_timestamp
        fits = delta == 0 if split_timestamps else -(2**63) <= delta <= _INT64_MAX
        return fits and offset - self.base_offset <= _INT32_MAX

    def record(
        self, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: list[RecordHeader]
    ) -> bytes:
        """The record, its length in front."""
        delta = _varint(timestamp - self.base_timestamp) + _varint(offset - self.base_offset)
        parts = [b"\0", delta, _span(key), _span(value), _varint(len(headers))]
        parts += [_varint(len(name)) + name + _span(value) for name, value in headers]
        body = b"".join(parts)
        if len(body) + 5 > _INT32_MAX - HEADER_SIZE:
            raise ValueError("an entry is larger than a record can be")
        return _varint(len(body)) + body

    def add(self, offset: int, timestamp: int, record: bytes) -> None:
        self.records += record
        self.last_offset = offset
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self.count += 1

    def decoded(self) -> DecodedBatch:
        last_offset_delta = self.last_offset - self.base_offset
        records = bytes(self.records)
        return DecodedBatch(
            self.base_offset,
            last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.count,
            records,
            *self.producer,
        )


def _headers(fields: list[EntryField]) -> list[RecordHeader]:
    headers: list[RecordHeader] = []
    for name, value in fields:
        if name.startswith(b"header."):
            headers.append((name[7:], value))
        elif name.startswith(b"nullheader."):
            headers.append((name[11:], None))
    return headers


def _varint(n: int) -> bytes:
    raw = n << 1 if n >= 0 else (-n << 1) - 1
    if raw < 0x80:
        return _ONE_BYTE[raw]
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def _span(data: bytes | None) -> bytes:
    return b"\x01" if data is None else _varint(len(data)) + data


def _number(text: bytes) -> int | None:
    """A decimal int64 and nothing around it; int() alone would allow spaces, underscores and a plus sign."""
    digits = text[1:] if text.startswith(b"-") else text
    if not digits or not DIGITS.issuperset(digits):
        return None
    significant = digits.lstrip(b"0") or b"0"
    if len(significant) > 20:
        return None
    number = -int(significant) if text.startswith(b"-") else int(significant)
    return number if -(2**63) <= number <= _INT64_MAX else None


def _id(text: bytes, bits: int) -> tuple[int, int]:
    """An entry id's time and number; a sequence that outgrew its bits carries over into later numbers."""
    parts = text.split(b"-")
    if len(parts) != 2 or not all(part and DIGITS.issuperset(part) for part in parts):
        raise ValueError("malformed reply")
    if max(map(len, parts)) > LINE_MAX:
        raise ValueError("malformed reply")
    ms, seq = (int(part.lstrip(b"0")[:24] or b"0") for part in parts)
    if (ms << bits) + seq > _INT64_MAX:
        raise ValueError("an entry id lies outside the offsets of Kafka")
    return ms, (ms << bits) + seq


def _first(fields: list[EntryField], name: bytes) -> bytes | None:
    return next((value for key, value in fields if key == name), None)


def _rows(reply: _Reply, bits: int, dense: bool) -> Iterator[tuple[int, int, list[EntryField]]]:
    """Offset, timestamp and fields of each entry that is still there."""
    last = -1
    for _ in range(reply.size(b"*")):
        offset, ms = reply.entry_offset(bits, dense, last)
        fields = reply.fields()
        if fields is None:
            continue
        timestamp = _number(_first(fields, b"timestamp") or b"")
        yield offset, (-1 if dense else ms) if timestamp is None else timestamp, fields
        last = offset
    reply.close()


def decode_entries(
    reply: BytesLike, bits: int, dense: bool, max_bytes: int, split_timestamps: bool
) -> list[DecodedBatch]:
    if not 0 < bits < 63:
        raise ValueError(f"no number of sequence bits: {bits}")
    cursor = _Reply(bytes(reply))
    if cursor.data[:1] != b"*" or cursor.data[:2] == b"*-":
        raise ValueError("malformed reply")
    return _batches(_entry_rows(_rows(cursor, bits, dense)), max_bytes, split_timestamps)


def _entry_rows(rows: Iterable[tuple[int, int, list[EntryField]]]) -> Iterator[tuple[Row, Producer]]:
    for offset, timestamp, fields in rows:
        first = dict(reversed(fields))
        producer = _transaction(first.get(b"transaction", b""))
        kind = first.get(b"control")
        if producer is not None and kind in (b"commit", b"abort"):
            producer = (*producer[:2], TRANSACTIONAL | CONTROL)
            yield (offset, timestamp, *_marker(kind, first.get(b"coordinator.epoch", b"")), []), producer
        else:
            row = offset, timestamp, first.get(b"key"), first.get(b"value"), _headers(fields)
            yield row, producer or _NO_PRODUCER


def _transaction(text: bytes) -> Producer | None:
    """`<producer id>:<epoch>`; None where it is something else."""
    producer_id, _, epoch = text.partition(b":")
    numbers = _number(producer_id), _number(epoch)
    if b"-" in text or numbers[0] is None or numbers[1] is None or numbers[1] > _INT16_MAX:
        return None
    return numbers[0], numbers[1], TRANSACTIONAL


def _marker(kind: bytes, coordinator_epoch: bytes) -> tuple[bytes, bytes]:
    """Key and value of Kafka's control record (EndTransactionMarker): version 0 and type, version 0 and epoch."""
    epoch = _number(coordinator_epoch)
    epoch = 0 if epoch is None or not 0 <= epoch <= _INT32_MAX or b"-" in coordinator_epoch else epoch
    return b"\0\0\0" + (b"\1" if kind == b"commit" else b"\0"), b"\0\0" + epoch.to_bytes(4)


def find_batches(
    reply: BytesLike, bits: int, dense: bool, field: bytes = b"batch"
) -> list[tuple[int, int, int, int, int]]:
    if not 0 < bits < 63:
        raise ValueError(f"no number of sequence bits: {bits}")
    cursor = _Reply(bytes(reply))
    if cursor.data[:1] != b"*" or cursor.data[:2] == b"*-":
        raise ValueError("malformed reply")
    found = []
    last = -1
    for _ in range(cursor.size(b"*")):
        start = cursor.pos
        offset, _ = cursor.entry_offset(bits, dense, last)
        spans = cursor.spans()
        if spans is None:
            continue
        none = slice(start, start)
        value = next((value for name, value in spans if cursor.data[name] == field), none)
        found.append((offset, start, cursor.pos, value.start, value.stop))
        last = offset
    cursor.close()
    return found


def join_batches(
    reply: BytesLike, bits: int, dense: bool, max_bytes: int, large_mean: int
) -> tuple[bytes, int, int, int, int, int, bool] | None:
    """The batches in a reply as a Fetch response has them, joined; None where some entry holds none, where one is part
    of a transaction, or where copying is not worth it.

    Args:
        max_bytes: of them; there is one however large.
        large_mean: bytes of a batch, on average, from which on they are not copied.

    Returns:
        them, the first one's base offset, the end of the last one, records, batches, the latest timestamp, and whether
        any is compressed with zstd.
    """
    try:
        found, view = find_batches(reply, bits, dense), memoryview(reply)
        batches = [(offset, view[start:end], peek_header(view[start:end])) for offset, _, _, start, end in found]
    except (ValueError, CorruptRecord):
        return None
    if any(header.transactional or offset < header.last_offset_delta for offset, _, header in batches):
        return None
    sizes = list(accumulate(header.length for _, _, header in batches))
    kept = batches[: max(1, bisect_right(sizes, max_bytes))]
    size = sum(header.length for _, _, header in kept)
    if size >= large_mean * len(kept):
        return None
    bases = [offset - header.last_offset_delta for offset, _, header in kept]
    data = b"".join(patch(base, len(batch)) + batch[16:] for base, (_, batch, _) in zip(bases, kept, strict=True))
    records, latest = sum(header.count for *_, header in kept), max(header.max_timestamp for *_, header in kept)
    zstd = any(header.codec == Codec.ZSTD for *_, header in kept)
    return data, bases[0], kept[-1][0] + 1, records, len(kept), latest, zstd


def _batches(rows: Iterable[tuple[Row, Producer]], max_bytes: int, split_timestamps: bool) -> list[DecodedBatch]:
    batches: list[_Batch] = []
    left = min(max_bytes, _INT32_MAX - HEADER_SIZE)
    for (offset, timestamp, key, value, headers), producer in rows:
        fits = bool(batches) and batches[-1].takes(offset, timestamp, split_timestamps, producer)
        batch = batches[-1] if fits else _Batch(offset, timestamp, producer)
        record = batch.record(offset, timestamp, key, value, headers)
        if batches and len(record) > left:
            break
        if not fits:
            batches.append(batch)
        batch.add(offset, timestamp, record)
        left -= len(record)
    return [batch.decoded() for batch in batches]


# ---- records as the buffers of Arrow arrays


def records_to_columns(batches: Sequence[DecodedBatch]) -> Columns:
    rows = [row for batch in batches for row in _batch_rows(batch)]
    headers = [header for row in rows for header in row[4]]
    offsets = array("q", [row[0] for row in rows])
    timestamps = array("q", [row[1] for row in rows])
    keys, values = _column([row[2] for row in rows]), _column([row[3] for row in rows])
    names, contents = _column([name for name, _ in headers]), _column([content for _, content in headers])
    lists = _int32_offsets([len(row[4]) for row in rows])
    return len(rows), offsets, timestamps, keys, values, lists, len(headers), names, contents


def _batch_rows(batch: DecodedBatch) -> Iterator[Row]:
    last_delta = -1
    for index, (timestamp_delta, delta, key, value, headers) in enumerate(
        _read_records(batch.records, batch.record_count)
    ):
        if delta <= last_delta or batch.base_offset + delta > _INT64_MAX:
            raise InvalidRecord(f"record {index} of the batch has an offset delta that cannot be")
        last_delta = delta
        yield batch.base_offset + delta, _wrap(batch.base_timestamp + timestamp_delta), key, value, headers


def _column(items: list[bytes | None]) -> BinaryColumn:
    bits = bytearray((len(items) + 7) // 8)
    for i, item in enumerate(items):
        bits[i >> 3] |= (item is not None) << (i & 7)
    data = b"".join(item for item in items if item is not None)
    nulls = items.count(None)
    return bytes(bits) if nulls else None, nulls, _int32_offsets([len(item or b"") for item in items]), data


def _int32_offsets(sizes: list[int]) -> array[int]:
    if sum(sizes) > _INT32_MAX:
        raise ValueError("the keys, values or headers pass the 2 GB of one Arrow array")
    return array("i", accumulate(sizes, initial=0))


class _Slices:
    """Validity and int32 offsets of an array of binary or of lists; what they point at has ``limit`` elements."""

    def __init__(self, validity: Buffer | None, start: int, offsets: Buffer, limit: int) -> None:
        if start < 0:
            raise ValueError("an Arrow array cannot start below 0")
        self.validity, self.start, self.limit = None if validity is None else bytes(validity), start, limit
        self.offsets = array("i", bytes(offsets)[: len(memoryview(offsets).cast("B")) // 4 * 4])

    def __len__(self) -> int:
        return max(len(self.offsets) - 1, 0)

    def slice(self, i: int) -> slice | None:
        bit = self.start + i
        if i >= len(self) or (self.validity is not None and bit >= 8 * len(self.validity)):
            raise ValueError(_BAD_ARRAY)
        if self.validity is not None and not self.validity[bit >> 3] >> (bit & 7) & 1:
            return None
        if not 0 <= self.offsets[i] <= self.offsets[i + 1] <= self.limit:
            raise ValueError(_BAD_ARRAY)
        return slice(self.offsets[i], self.offsets[i + 1])


class _Binaries(_Slices):
    def __init__(self, validity: Buffer | None, start: int, offsets: Buffer, data: Buffer) -> None:
        self.data = bytes(data)
        super().__init__(validity, start, offsets, len(self.data))

    def item(self, i: int) -> bytes | None:
        part = self.slice(i)
        return None if part is None else self.data[part]


def columns_to_records(
    count: int,
    offsets: Buffer,
    timestamps: Buffer,
    keys: BinaryBuffers,
    values: BinaryBuffers,
    headers: ListBuffers,
    names: BinaryBuffers,
    contents: BinaryBuffers,
    max_bytes: int,
    split_timestamps: bool,
) -> list[DecodedBatch]:
    numbers = [memoryview(buffer).cast("B") for buffer in (offsets, timestamps)]
    if count < 0 or min(map(len, numbers)) < 8 * count:
        raise ValueError(_BAD_ARRAY)
    fixed = zip(*(array("q", bytes(number[: 8 * count])) for number in numbers), strict=True)
    rows = _column_rows(fixed, _Binaries(*keys), _Binaries(*values), headers, _Binaries(*names), _Binaries(*contents))
    return _batches(((row, _NO_PRODUCER) for row in rows), max_bytes, split_timestamps)


def _column_rows(
    fixed: Iterable[tuple[int, int]],
    keys: _Binaries,
    values: _Binaries,
    headers: ListBuffers,
    names: _Binaries,
    contents: _Binaries,
) -> Iterator[Row]:
    lists = _Slices(*headers, len(names))
    last = -1
    for i, (offset, timestamp) in enumerate(fixed):
        if offset <= last:
            raise ValueError("the offsets of the rows do not rise")
        key, value, part = keys.item(i), values.item(i), lists.slice(i)
        items = range(0) if part is None else range(part.start, part.stop)
        yield offset, timestamp, key, value, [(_name(names.item(at)), contents.item(at)) for at in items]
        last = offset


def _name(name: bytes | None) -> bytes:
    if name is None:
        raise ValueError("a header has no name")
    return name
