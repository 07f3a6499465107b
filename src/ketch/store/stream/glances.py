"""Questions that read records for a person to look at, bound by bytes whatever the records' sizes are: a value is read
up to some bytes, and a batch that is too large to be opened is one row that says so.

Fetch and Spark read whole records (`store.stream.ranges`). This is for the eye alone: nothing is appended, committed or
decided by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ketch.errors import CorruptRecord, KetchError
from ketch.records import CONTROL, HEADER_SIZE, Codec, DecodedBatch, decompress, peek_header, records_to_columns
from ketch.records.batch import BatchHeader
from ketch.redis.question import Question, ask
from ketch.store import scripts
from ketch.store.stream.ranges import PartitionStream

BATCH_MAX = 1 << 20  # bytes of a batch that is opened, as it lies in Redis
INFLATED_MAX = 8 << 20  # bytes of its records
_LEAST = 64  # bytes: names of fields, timestamps and transactions have no more
_FIELDS_MAX = 64  # of one entry
_STEP_BYTES = 1 << 20  # bytes of the entries that one script reads, about
_STEP_MAX = 1_000  # entries of them
_TRANSACTION = re.compile(rb"\d{1,19}:\d{1,5}")  # what is of another form names none

Match = Literal["", "is", "has"]


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first bytes of a key or value, and how many it has in all."""

    data: bytes
    size: int

    @property
    def whole(self) -> bool:
        return len(self.data) == self.size


@dataclass(frozen=True, slots=True)
class Glimpse:
    """One record, or a batch that was not opened.

    Attributes:
        offset: of the record; of a batch, of its last one.
        entry_id: of the entry that holds it.
        timestamp: ms; -1 where there is none.
        key, value: None for null.
        headers: names and values, in the record's order.
        more_headers: how many there are beside these.
        transaction: "producer id:epoch" where it is part of one, else empty.
        control: "commit" or "abort" for the marker of a transaction, else empty.
        batch: 0 for a record; else how many records the batch has that was not opened, and `note` says why.
    """

    offset: int
    entry_id: str
    timestamp: int
    key: Beginning | None = None
    value: Beginning | None = None
    headers: tuple[tuple[bytes, Beginning | None], ...] = ()
    more_headers: int = 0
    transaction: str = ""
    control: str = ""
    batch: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What one script has seen.

    Attributes:
        found: in the order in which they were read.
        next: the offset to go on from, exclusive when reading backwards; None at the end of the log.
        looked: entries that were looked at.
        size: bytes of those whose records were found.
    """

    found: list[Glimpse]
    next: int | None
    looked: int
    size: int


def forward(
    stream: PartitionStream,
    offset: int,
    entry_bytes: int,
    most: int,
    beginning: int,
    how: Match = "",
    key: bytes = b"",
) -> Question[Step]:
    """The records from `offset` on.

    Args:
        entry_bytes: about how large an entry is (`StreamInfo.entry_bytes`).
        most: entries.
        beginning: bytes of each key, value and header to read; `_LEAST` or more.
        how: "is" or "has": only records whose key is, or contains, `key`.
    """
    numbering, beginning = stream.numbering, max(beginning, _LEAST, len(key) + 1)
    first = numbering.format_id(*numbering.to_id(max(0, offset)))
    count = _count(entry_bytes, most)
    command = scripts.glance(stream.key, "XRANGE", first, b"+", count, beginning, BATCH_MAX, _FIELDS_MAX, how, key)
    looked, at, rows = yield from ask(command)
    found = [each for each in _glimpses(stream, rows, beginning) if each.offset >= offset and _fits(each, how, key)]
    last = numbering.to_offset(*numbering.parse_id(at)) if looked else None
    return Step(found, None if last is None or looked < count else last + 1, looked, _size(rows))


def backward(stream: PartitionStream, end: int, entry_bytes: int, most: int, beginning: int) -> Question[Step]:
    """The records below `end`, the last one first; see `forward`."""
    numbering, beginning = stream.numbering, max(beginning, _LEAST)
    last = numbering.format_id(*numbering.to_id(max(0, end)))
    from_here, count = b"(" + last, _count(entry_bytes, most)
    if not stream.layout.entry_is_record:
        # The record before `end` may lie in the batch whose id is at `end` or above; where it does not, that one is for
        # nothing.
        holder = yield from ask(scripts.heads(stream.key, "XRANGE", last, b"+", 1))
        from_here, count = (holder[0][0], count + 1) if holder else (b"+", count)
    command = scripts.glance(stream.key, "XREVRANGE", from_here, b"-", count, beginning, BATCH_MAX, _FIELDS_MAX)
    looked, at, rows = yield from ask(command)
    found = [each for each in _glimpses(stream, reversed(rows), beginning) if each.offset < end]
    if looked < count:
        return Step(found[::-1], None, looked, _size(rows))
    lowest = numbering.to_offset(*numbering.parse_id(at))
    return Step(found[::-1], min([lowest, *(each.offset for each in found)]), looked, _size(rows))


def _count(entry_bytes: int, most: int) -> int:
    return max(1, min(most, _STEP_MAX, _STEP_BYTES // max(1, entry_bytes)))


def _size(rows: Any) -> int:
    return sum(sum(words[1::3]) for _, _, *words in rows)


def _fits(record: Glimpse, how: Match, key: bytes) -> bool:
    """The script lets records of batches pass, which it cannot read."""
    if not how:
        return True
    if record.batch or record.key is None or record.control:
        return False
    return record.key.data == key if how == "is" else key in record.key.data


def _glimpses(stream: PartitionStream, rows: Any, beginning: int) -> Iterator[Glimpse]:
    numbering = stream.numbering
    for entry_id, fields, *words in rows:
        offset = numbering.to_offset(*numbering.parse_id(entry_id))
        named = [(words[n], words[n + 1], words[n + 2]) for n in range(0, len(words), 3)]
        batch = next(((size, data) for name, size, data in named if name == b"batch"), None)
        header = None if batch is None or stream.layout.entry_is_record else _header(*batch)
        if header is None or batch is None or offset < header.last_offset_delta:
            ms = -1 if numbering.dense else numbering.parse_id(entry_id)[0]
            yield _of_entry(offset, entry_id.decode(), ms, named, fields - len(named))
        else:
            yield from _of_batch(offset, entry_id.decode(), header, *batch, beginning)


def _header(size: int, data: bytes) -> BatchHeader | None:
    """The header of a batch of `size` bytes, of which `data` may be the header alone; None where it is no batch."""
    if len(data) < min(size, HEADER_SIZE):
        return None
    try:
        # A header is held against the bytes that follow it: where none were read, it is to say that there are none.
        cut = data[:8] + (len(data) - 12).to_bytes(4) + data[12:] if size > len(data) >= HEADER_SIZE else data
        return peek_header(cut)
    except CorruptRecord:
        return None


# -- an entry that is a record


def _of_entry(offset: int, entry_id: str, ms: int, named: Sequence[tuple[bytes, int, bytes]], more: int) -> Glimpse:
    """As `ketch.records` reads the fields of an entry."""
    first: dict[bytes, Beginning] = {}
    headers: list[tuple[bytes, Beginning | None]] = []
    for name, size, data in named:
        first.setdefault(name, Beginning(data, size))
        if name.startswith(b"header."):
            headers.append((name.removeprefix(b"header."), Beginning(data, size)))
        elif name.startswith(b"nullheader."):
            headers.append((name.removeprefix(b"nullheader."), None))
    stamp = first.get(b"timestamp", Beginning(b"", 0)).data
    text = first.get(b"transaction", Beginning(b"", 0)).data
    transaction = text.decode() if _TRANSACTION.fullmatch(text) else ""
    control = first.get(b"control", Beginning(b"", 0)).data.decode(errors="replace") if transaction else ""
    return Glimpse(
        offset,
        entry_id,
        int(stamp) if stamp.removeprefix(b"-").isdigit() and len(stamp) < 20 else ms,
        first.get(b"key"),
        first.get(b"value"),
        tuple(headers),
        more,
        transaction,
        control if control in ("commit", "abort") else "",
    )


# -- an entry that is a batch


def _of_batch(
    offset: int, entry_id: str, header: BatchHeader, size: int, data: bytes, beginning: int
) -> Iterator[Glimpse]:
    base = offset - header.last_offset_delta
    transaction = f"{header.producer_id}:{header.producer_epoch}" if header.transactional else ""
    if size > len(data):
        note = f"a batch of {header.count} records in {size} bytes, too large to be opened here"
        yield Glimpse(offset, entry_id, header.max_timestamp, batch=header.count, note=note, transaction=transaction)
        return
    try:
        rows = list(_rows(_opened(base, header, data), beginning))
    except (KetchError, ValueError) as error:
        note = f"a batch of {header.count} records that cannot be opened here: {error}"
        yield Glimpse(offset, entry_id, header.max_timestamp, batch=header.count, note=note, transaction=transaction)
        return
    for at, timestamp, key, value, headers, more in rows:
        when = header.max_timestamp if header.timestamp_type else timestamp
        if header.attributes & CONTROL:
            kind = "commit" if key is not None and key.data[2:4] == b"\0\1" else "abort"
            yield Glimpse(at, entry_id, when, transaction=transaction, control=kind)
        else:
            yield Glimpse(at, entry_id, when, key, value, headers, more, transaction)


def _opened(base: int, header: BatchHeader, data: bytes) -> DecodedBatch:
    records = bytes(decompress(Codec(header.codec), memoryview(data)[HEADER_SIZE:], INFLATED_MAX))
    return DecodedBatch(
        base, header.last_offset_delta, header.base_timestamp, header.max_timestamp, header.count, records
    )


_Row = tuple[
    int, int, Beginning | None, Beginning | None, tuple[tuple[bytes, Beginning | None], ...], int
]  # offset, timestamp, key, value, headers, how many more of these


def _rows(batch: DecodedBatch, beginning: int) -> Iterator[_Row]:
    count, offsets, timestamps, keys, values, lists, _, names, contents = records_to_columns([batch])
    at, stamps = (memoryview(buffer).cast("B").cast("q") for buffer in (offsets, timestamps))
    bounds = _ints(lists)
    key_of, value_of, name_of, content_of = (_Cells(column, beginning) for column in (keys, values, names, contents))
    for n in range(count):
        first, stop = bounds[n], bounds[n + 1]
        shown = range(first, min(stop, first + _FIELDS_MAX))
        headers = tuple(((name_of[h] or Beginning(b"", 0)).data, content_of[h]) for h in shown)
        yield at[n], stamps[n], key_of[n], value_of[n], headers, stop - first - len(shown)


def _ints(buffer: Any) -> memoryview:
    return memoryview(buffer).cast("B").cast("i")


class _Cells:
    """The cells of a column of bytes (`records._buffers.BinaryColumn`), as `Beginning`."""

    def __init__(self, column: Any, beginning: int) -> None:
        validity, _, bounds, data = column
        self._validity = None if validity is None else memoryview(validity).cast("B")
        self._bounds, self._data, self._beginning = _ints(bounds), memoryview(data).cast("B"), beginning

    def __getitem__(self, n: int) -> Beginning | None:
        if self._validity is not None and not self._validity[n >> 3] >> (n & 7) & 1:
            return None
        first, stop = self._bounds[n], self._bounds[n + 1]
        return Beginning(bytes(self._data[first : min(stop, first + self._beginning)]), stop - first)
