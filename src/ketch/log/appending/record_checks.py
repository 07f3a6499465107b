"""Looks at each record of a produced batch, where its topic asks for it (Kafka's LogValidator).

`batch.validation=full`: the format, the offset deltas and each timestamp. `value.validation=true`: values of valueType
JSON. `cleanup.policy=compact`: keys. A topic that asks for none of them costs nothing (`Topic.intake`). A new rule for
records is a function of their columns that gives the index and the reason of each bad one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

from ketch.errors import BadRecords
from ketch.records import BatchHeader, DecodedBatch, records_to_columns
from ketch.records import check_records as check_format
from ketch.records._buffers import BinaryColumn
from ketch.store.layouts.layout import Payload
from ketch.store.topics.topic import Topic


def check_records(topic: Topic, header: BatchHeader, batch: Payload, now: int, inflated_max: int) -> None:
    """Holds the records against what the topic asks of them.

    Args:
        now: the broker's clock, ms.
        inflated_max: bytes that the records may be decompressed.

    Raises:
        InvalidRecord, CorruptRecord, RecordTooLarge: their format is broken.
        BadRecords: some have a timestamp, key or value that the topic does not take.
    """
    intake = topic.intake
    full, values, keys = intake.full, intake.values, intake.keys
    if not (full or values or keys):
        return
    records = bytes(batch.plain(inflated_max))
    if full:
        check_format(records, header.count, header.count - 1)
    decoded = DecodedBatch(0, header.count - 1, header.base_timestamp, header.max_timestamp, header.count, records)
    columns = records_to_columns([decoded])
    if full and batch.timestamp is None and (bad := list(_bad_timestamps(topic, columns[2], now))):
        raise BadRecords(bad, timestamps=True)
    if keys and (bad := list(_without_key(columns[3]))):
        raise BadRecords(bad)
    if values and (bad := list(_bad_values(columns[4]))):
        raise BadRecords(bad)


def _bad_timestamps(topic: Topic, column: Any, now: int) -> Iterator[tuple[int, str]]:
    low, high = now - topic.intake.before, now + topic.intake.after
    for index, timestamp in enumerate(memoryview(column).cast("B").cast("q")):
        if timestamp != -1 and not low <= timestamp <= high:
            yield index, f"Timestamp {timestamp} is out of range. It should be within [{low}, {high}]"


def _without_key(column: BinaryColumn) -> Iterator[tuple[int, str]]:
    validity, _, ends, _ = column
    if validity is None:
        return
    present = memoryview(validity).cast("B")
    for index in range(len(memoryview(ends).cast("B").cast("i")) - 1):
        if not present[index >> 3] >> (index & 7) & 1:
            yield index, "Compacted topic cannot accept message without key."


def _bad_values(column: BinaryColumn) -> Iterator[tuple[int, str]]:
    """Those that are neither null nor JSON."""
    validity, _, ends, data = column
    ends, data = memoryview(ends).cast("B").cast("i"), memoryview(data).cast("B")
    present = None if validity is None else memoryview(validity).cast("B")
    for index in range(len(ends) - 1):
        if present is not None and not present[index >> 3] >> (index & 7) & 1:
            continue
        if why := _why_no_json(bytes(data[ends[index] : ends[index + 1]])):
            yield index, f"The value is not JSON: {why}"


def _why_no_json(value: bytes) -> str | None:
    try:
        _JSON.decode(value.decode())
    except json.JSONDecodeError as error:
        return f"{error.msg} at character {error.pos}"
    except UnicodeDecodeError as error:
        return f"no UTF-8 at byte {error.start}"
    except RecursionError:
        return "it is nested too deeply"
    except _Constant as error:
        return f"{error} is no JSON"
    return None


class _Constant(Exception):
    """NaN or Infinity, which Python's decoder takes."""


def _refuse(constant: str) -> NoReturn:
    raise _Constant(constant)


_JSON = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)  # numbers may be of any length
