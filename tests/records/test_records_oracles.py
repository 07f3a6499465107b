"""Other people's readers and writers of batches agree with ours."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import aiokafka.codec
import aiokafka.record.default_records as aio
import kafka.codec
import kafka.record.default_records as kp
import pytest
from aiokafka.record.memory_records import MemoryRecords as AioMemoryRecords
from kafka.record.memory_records import MemoryRecords

from ketch.records import HEADER_SIZE, Codec, assemble, decompress, empty_batch, read_header
from tests.records.model import Row, entry_id, fields, read_records, records, xrange_reply

ROWS = [
    Row(1_700_000_000_000, b"key", b"value"),
    Row(1_700_000_000_007, None, b"v" * 3000, ((b"a", b"1"), (b"a", None), (b"", b""))),
    Row(1_699_999_999_000, b"", None),
    Row(1_700_000_000_001, None, b"", ((b"a", b"\xff"),)),
] * 40

KAFKA_PYTHON_HAS = {
    Codec.NONE: True,
    Codec.GZIP: kafka.codec.has_gzip(),
    Codec.SNAPPY: kafka.codec.has_snappy(),
    Codec.LZ4: kafka.codec.has_lz4(),
    Codec.ZSTD: kafka.codec.has_zstd(),
}
BUILDERS = [(aio, codec) for codec in Codec] + [(kp, codec) for codec in Codec if KAFKA_PYTHON_HAS[codec]]

oracle = pytest.mark.parametrize(
    ("theirs", "codec"), BUILDERS, ids=lambda each: each.name.lower() if isinstance(each, Codec) else each.__name__
)


def their_batch(theirs: ModuleType, codec: Codec, rows: list[Row]) -> bytes:
    builder = theirs.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for i, row in enumerate(rows):
        headers = [(name.decode("latin-1"), value) for name, value in row.headers]
        assert builder.append(i, row.timestamp, row.key, row.value, headers) is not None
    return bytes(builder.build())


def their_rows(batch: Any) -> list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    return [(each.offset, each.timestamp, each.key, each.value, list(each.headers)) for each in batch]


def expected(base_offset: int, rows: list[Row]) -> list[tuple[int, int, bytes | None, bytes | None, list[Any]]]:
    return [
        (base_offset + i, row.timestamp, row.key, row.value, [(name.decode(), value) for name, value in row.headers])
        for i, row in enumerate(rows)
    ]


@oracle
def test_we_read_what_they_write(theirs: ModuleType, codec: Codec) -> None:
    data = their_batch(theirs, codec, ROWS)
    header = read_header(data)
    assert header.codec == codec
    plain = bytes(decompress(codec, data[HEADER_SIZE:], 1 << 20))
    read = read_records(plain, header.base_offset, header.base_timestamp)
    assert [row for _, row in read] == ROWS
    assert header.max_timestamp == max(row.timestamp for row in ROWS)


@oracle
def test_they_read_what_we_write(theirs: ModuleType, codec: Codec) -> None:
    base = ROWS[0].timestamp
    top = max(row.timestamp for row in ROWS)
    data = assemble(1 << 40, len(ROWS) - 1, base, top, len(ROWS), records(ROWS, base), codec)
    batch = theirs.DefaultRecordBatch(bytearray(data))
    assert batch.validate_crc()
    assert their_rows(batch) == expected(1 << 40, ROWS)


@oracle
def test_through_the_stream(kernel: ModuleType, theirs: ModuleType, codec: Codec) -> None:
    data = their_batch(theirs, codec, ROWS)
    header = read_header(data)
    plain = decompress(codec, data[HEADER_SIZE:], 1 << 20)
    out, bulks = kernel.encode_arguments(plain, header.count, header.base_timestamp, None)
    assert bulks == sum(1 + len(fields(row)) for row in ROWS)
    assert bytes(out).startswith(b"$1\r\n6\r\n$3\r\nkey\r\n$3\r\nkey\r\n")
    reply = xrange_reply([(entry_id(5000 + i, 10), fields(row)) for i, row in enumerate(ROWS)])
    [decoded] = kernel.decode_entries(reply, 10, False, 1 << 20, False)
    assert their_rows(theirs.DefaultRecordBatch(bytearray(decoded.assembled(codec)))) == expected(5000, ROWS)


@pytest.mark.parametrize("theirs", [AioMemoryRecords, MemoryRecords])
def test_an_empty_batch_is_passed_over(theirs: Any) -> None:
    rows = [Row(1), Row(2)]
    data = empty_batch(10, 89, 5) + assemble(100, 1, 1, 2, 2, records(rows, 1), 0)
    reader = theirs(data)
    seen = []
    while reader.has_next():
        batch = reader.next_batch()
        seen.append((batch.base_offset, batch.next_offset, [each.offset for each in batch]))
    assert seen == [(10, 100, []), (100, 102, [100, 101])]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_log_append_time(codec: Codec) -> None:
    batch = aio.DefaultRecordBatch(assemble(0, 1, 7, 7, 2, records([Row(7), Row(7)], 7), codec, timestamp_type=1))
    assert (batch.timestamp_type, [each.timestamp for each in batch]) == (1, [7, 7])


def test_aiokafka_has_every_codec() -> None:
    """Otherwise the tests above would prove less than they say."""
    assert all((aiokafka.codec.has_gzip(), aiokafka.codec.has_snappy(), aiokafka.codec.has_lz4()))
    assert aiokafka.codec.has_zstd()
