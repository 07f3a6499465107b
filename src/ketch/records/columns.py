"""Columns of decoded batches without pyarrow: reads the timestamps of records, or replaces them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from ketch.records import DecodedBatch, columns_to_records, records_to_columns
from ketch.records._buffers import BinaryBuffers, BinaryColumn


def row_timestamps(batch: DecodedBatch) -> Iterator[tuple[int, int]]:
    """(offset, timestamp in ms) of each record; raises InvalidRecord where they are malformed."""
    offsets, timestamps = (memoryview(column).cast("B").cast("q") for column in records_to_columns([batch])[1:3])
    return zip(offsets, timestamps, strict=True)


def restamped(batch: DecodedBatch, timestamp: int) -> DecodedBatch:
    """The batch with one timestamp (ms) for all records; raises InvalidRecord where they are malformed."""
    count, offsets, _, keys, values, lists, _, names, contents = records_to_columns([batch])
    timestamps = array("q", [timestamp]) * count
    columns = [_buffers(column) for column in (keys, values, names, contents)]
    (restamped,) = columns_to_records(
        count, offsets, timestamps, columns[0], columns[1], (None, 0, lists), columns[2], columns[3], 2**31 - 1, False
    )
    return restamped._replace(
        producer_id=batch.producer_id, producer_epoch=batch.producer_epoch, attributes=batch.attributes
    )


def cut(batch: DecodedBatch, end: int) -> DecodedBatch:
    """The records of the batch below offset `end`, at least one; raises InvalidRecord where they are malformed."""
    _, offsets, timestamps, keys, values, lists, _, names, contents = records_to_columns([batch])
    count = sum(offset < end for offset in memoryview(offsets).cast("B").cast("q"))
    columns = [_buffers(column) for column in (keys, values, names, contents)]
    below, *_ = columns_to_records(
        count, offsets, timestamps, columns[0], columns[1], (None, 0, lists), columns[2], columns[3], 2**31 - 1, False
    )
    return below._replace(
        producer_id=batch.producer_id, producer_epoch=batch.producer_epoch, attributes=batch.attributes
    )


def _buffers(column: BinaryColumn) -> BinaryBuffers:
    validity, _, offsets, data = column
    return validity, 0, offsets, data
