"""What a produced batch must be before anything of it is stored (Kafka's UnifiedLog.append and LogValidator)."""

from __future__ import annotations

from typing import NamedTuple

from ketch.errors import InvalidRecord, RecordTooLarge, UnsupportedCompression
from ketch.log.appending.producers import Sequenced
from ketch.log.appending.record_checks import check_records
from ketch.records import CONTROL, HEADER_SIZE, TRANSACTIONAL, BatchHeader, Codec, read_header
from ketch.store.layouts.layout import Payload
from ketch.store.topics.topic import Topic

_CODEC = 0x07  # of the attributes
_NEWEST_CODEC = max(Codec)
_NOT_PLAIN = TRANSACTIONAL | CONTROL
_ATTRIBUTES_AT = 22  # their low byte


class Admitted(NamedTuple):
    """A batch that may be stored."""

    header: BatchHeader
    batch: Payload
    producer: Sequenced | None


def admit(topic: Topic, data: bytes, now: int, inflated_max: int) -> Admitted:
    """Checks one partition's `records` field of a Produce request.

    Args:
        now: the broker's clock, ms.
        inflated_max: bytes a compressed batch may become.

    Raises:
        RecordTooLarge, CorruptRecord, InvalidRecord, UnsupportedCompression, InvalidTimestamp, BadRecords.
    """
    intake = topic.intake
    if len(data) > intake.max_bytes:
        raise RecordTooLarge(
            f"The record batch size in the append is {len(data)} bytes which exceeds the maximum configured value of "
            f"{topic.configs['max.message.bytes']} (max.message.bytes)."
        )
    if len(data) < HEADER_SIZE or int.from_bytes(data[8:12], signed=True) + 12 != len(data):
        raise InvalidRecord("Produce requests must contain exactly one whole record batch per partition.")
    header = read_header(data)
    attributes, pid = header.attributes, header.producer_id
    if pid >= 0 or attributes & _NOT_PLAIN or header.base_offset:
        _check_producer(header)
    timestamp = now if intake.log_append_time else None
    if timestamp is None:
        earliest, latest = now - intake.before, now + intake.after
        if not (earliest <= header.base_timestamp <= latest and earliest <= header.max_timestamp <= latest):
            topic.check_timestamps((header.base_timestamp, header.max_timestamp), now)
    if attributes & _CODEC > _NEWEST_CODEC:
        raise UnsupportedCompression(f"compression codec {header.codec} is not known")
    batch = intake.layout.payload(data, header, intake.codec, timestamp, inflated_max)
    if intake.full or intake.values or intake.keys:
        check_records(topic, header, batch, now, inflated_max)
    producer = None
    if pid >= 0:
        transactional = attributes & TRANSACTIONAL != 0
        producer = Sequenced(pid, header.producer_epoch, header.base_sequence, transactional)
    return Admitted(header, batch, producer)


def is_transactional(data: bytes) -> bool:
    """Whether what may be a batch says that it belongs to a transaction; nothing else of it is looked at."""
    return len(data) >= HEADER_SIZE and bool(data[_ATTRIBUTES_AT] & TRANSACTIONAL)


def _check_producer(header: BatchHeader) -> None:
    if header.transactional and header.producer_id < 0:
        raise InvalidRecord("A transactional batch needs a producer id.")
    if header.control:
        raise InvalidRecord("Clients are not allowed to write control records.")
    if header.base_offset != 0:
        raise InvalidRecord(f"The base offset of a produced batch should be 0, but it is {header.base_offset}.")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecord(f"Invalid sequence number {header.base_sequence} of producer {header.producer_id}.")
