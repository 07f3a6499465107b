"""What a produced batch must be before anything of it is stored (Kafka's UnifiedLog.append and LogValidator)."""

from __future__ import annotations

from typing import NamedTuple

from ketch.errors import InvalidRecord, RecordTooLarge, UnsupportedCompression
from ketch.log.appending.producers import Sequenced
from ketch.log.appending.record_checks import check_records
from ketch.records import HEADER_SIZE, TRANSACTIONAL, BatchHeader, Codec, read_header
from ketch.store.layouts.layout import Payload
from ketch.store.topics.topic import Topic

_CODECS = frozenset(Codec)
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
    if len(data) > int(topic.configs["max.message.bytes"]):
        raise RecordTooLarge(
            f"The record batch size in the append is {len(data)} bytes which exceeds the maximum configured value of "
            f"{topic.configs['max.message.bytes']} (max.message.bytes)."
        )
    _check_one_batch(data)
    header = read_header(data)
    _check_producer(header)
    timestamp = now if topic.configs["message.timestamp.type"] == "LogAppendTime" else None
    if timestamp is None:
        topic.check_timestamps((header.base_timestamp, header.max_timestamp), now)
    batch = topic.layout.payload(data, header, _codec(topic, header), timestamp, inflated_max)
    check_records(topic, header, batch, now, inflated_max)
    return Admitted(header, batch, sequenced(header))


def is_transactional(data: bytes) -> bool:
    """Whether what may be a batch says that it belongs to a transaction; nothing else of it is looked at."""
    return len(data) >= HEADER_SIZE and bool(data[_ATTRIBUTES_AT] & TRANSACTIONAL)


def sequenced(header: BatchHeader) -> Sequenced | None:
    """The idempotent producer of a batch; None where it has none."""
    if header.producer_id < 0:
        return None
    return Sequenced(header.producer_id, header.producer_epoch, header.base_sequence, header.transactional)


def _codec(topic: Topic, header: BatchHeader) -> int | None:
    """The compression that the topic asks for; None for the producer's."""
    wanted = topic.configs["compression.type"]
    if header.codec not in _CODECS:
        raise UnsupportedCompression(f"compression codec {header.codec} is not known")
    if wanted == "producer":
        return None
    return Codec.NONE if wanted == "uncompressed" else Codec[wanted.upper()]


def _check_one_batch(data: bytes) -> None:
    whole = len(data) >= HEADER_SIZE and int.from_bytes(data[8:12], signed=True) + 12 == len(data)
    if not whole:
        raise InvalidRecord("Produce requests must contain exactly one whole record batch per partition.")


def _check_producer(header: BatchHeader) -> None:
    if header.transactional and header.producer_id < 0:
        raise InvalidRecord("A transactional batch needs a producer id.")
    if header.control:
        raise InvalidRecord("Clients are not allowed to write control records.")
    if header.base_offset != 0:
        raise InvalidRecord(f"The base offset of a produced batch should be 0, but it is {header.base_offset}.")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecord(f"Invalid sequence number {header.base_sequence} of producer {header.producer_id}.")
