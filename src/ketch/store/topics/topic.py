"""One topic: what its hash in Redis says, and what follows from that for its streams."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from ketch.errors import InvalidTimestamp
from ketch.records import Codec
from ketch.store.keys import Keyspace
from ketch.store.layouts.layout import Layout, Payload
from ketch.store.layouts.table import LAYOUTS
from ketch.store.offsets import MAX_OFFSET, OffsetNumbering
from ketch.store.topics.handwritten import complain, number_or, read_configs, read_field, read_id, read_number
from ketch.store.xinfo import StreamInfo

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_LEAD_STEP = 1 << 16  # ms; the lead is kept in steps, about a minute each, so that it is seldom written
_PARTITIONS_MAX = 1_000_000  # more can only be a mistake, and would take all memory
LARGE_RECORD = 1 << 10  # bytes; only larger ones are noted in a topic's hash
_NAMES = 1 << 12  # whose legality is remembered


TopicKey = str | uuid.UUID  # a topic as a request has it: by name or, in newer versions, by id (KIP-516)


def shown(topic: TopicKey) -> str:
    """A topic's name; or its id as Kafka and its clients write it (Uuid.toString): 22 characters of URL-safe Base64."""
    return topic if isinstance(topic, str) else base64.urlsafe_b64encode(topic.bytes).decode().rstrip("=")


@lru_cache(_NAMES)
def legal_name(topic: str) -> bool:
    """Kafka's rule (`org.apache.kafka.common.internals.Topic`): 1 to 249 of a-z A-Z 0-9 . _ -, and not `.` or `..`."""
    return _LEGAL_NAME.fullmatch(topic) is not None and topic not in (".", "..")


class Intake(NamedTuple):
    """What a topic's configs say of batches that are produced to it, parsed.

    Attributes:
        max_bytes: of a batch (`max.message.bytes`).
        before, after: ms that a timestamp may be off the clock (`message.timestamp.before.max.ms`, `...after...`).
        codec: the compression that records are kept in, by Kafka's number; None for the producer's.
        copies: nodes that must have it before acks=all is answered (`min.insync.replicas`).
        full, values, keys: which records are looked at, see `log.appending.record_checks`.
    """

    layout: Layout
    max_bytes: int
    before: int
    after: int
    log_append_time: bool
    codec: int | None
    copies: int
    full: bool
    values: bool
    keys: bool


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as its hash says."""

    name: str
    id: uuid.UUID
    partitions: int
    created: int  # ms; an untrimmed partition's log starts here
    numbering: OffsetNumbering
    configs: Mapping[str, str] = field(hash=False)  # by Kafka's name; what the hash lacks, the broker's defaults fill
    compression_seen: str = "none"  # compression the last producer used, for compression.type=producer
    message_bytes: int = 0  # average size of a record, 0 unknown
    largest_record: int = LARGE_RECORD  # bytes that no record of it has passed
    written_id: str = ""  # the id as the hash has it, where that may be another form of it
    timestamp_lead: int = 0  # ms that a record's timestamp lay at most ahead of the clock when it was appended
    _intake: Intake | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def hash_id(self) -> str:
        """The id by which scripts know that the hash is still this topic's."""
        return self.written_id or str(self.id)

    @property
    def layout(self) -> Layout:
        """How its batches lie in its streams."""
        return LAYOUTS[self.configs["storage.layout"]]

    @property
    def intake(self) -> Intake:
        """What a batch that is produced to it is held against."""
        if self._intake is None:
            object.__setattr__(self, "_intake", _intake(self))  # frozen; what it says follows from the rest
        assert self._intake is not None
        return self._intake

    @property
    def log_append_time(self) -> bool:
        """Whether records bear the broker's time (`message.timestamp.type`)."""
        return self.configs["message.timestamp.type"] == "LogAppendTime"

    @property
    def compacts(self) -> bool:
        """Whether the newest record of each key is what stays (`cleanup.policy`)."""
        return "compact" in self.configs["cleanup.policy"]

    @property
    def deletes(self) -> bool:
        """Whether records go by age and size (`cleanup.policy`)."""
        return "delete" in self.configs["cleanup.policy"]

    @property
    def first_offset(self) -> int:
        """Where an untrimmed partition of it begins."""
        return 0 if self.numbering.dense else self.created << self.numbering.bits

    def extent(self, info: StreamInfo) -> tuple[int, int]:
        """Where the log in one of its streams starts and ends: offsets.

        The end follows the last id ever generated, not the last entry: trimming must not move it. A log that
        nothing was removed from starts where the topic was created.
        """
        end = max(self.numbering.to_offset(*info.last) + 1, self.first_offset)
        first = self.layout.start(info, self.numbering)
        start = end if first is None else first
        return min(start, self.first_offset) if info.removed == 0 else start, end

    def check_timestamps(self, timestamps: Iterable[int], now: int) -> None:
        """Holds producers' timestamps against the clock, ms; -1 is none.

        Raises:
            InvalidTimestamp: one is too far off (`message.timestamp.before.max.ms`, `message.timestamp.after.max.ms`).
        """
        before = int(self.configs["message.timestamp.before.max.ms"])
        after = int(self.configs["message.timestamp.after.max.ms"])
        for timestamp in timestamps:
            if timestamp != -1 and not now - before <= timestamp <= now + after:
                raise InvalidTimestamp(
                    f"Timestamp {timestamp} is not within {before} ms before and {after} ms after {now},"
                    f" as topic {self.name} wants it."
                )

    def notes(self, batch: Payload, latest: int, now: int) -> dict[str, int]:
        """What readers go by and a batch that is about to be stored changes, as fields of the topic's hash.

        Args:
            latest: the latest timestamp in the batch, ms.
        """
        noted = {}
        lead = latest - now
        if lead > self.timestamp_lead:
            noted["timestampLead"] = -(-lead // _LEAD_STEP) * _LEAD_STEP
        if batch.size > self.largest_record and (largest := batch.largest()) > self.largest_record:
            noted["largestRecord"] = 1 << largest.bit_length()
        return noted


def _intake(topic: Topic) -> Intake:
    configs, wanted = topic.configs, topic.configs["compression.type"]
    codecs = {"producer": None, "uncompressed": Codec.NONE}
    return Intake(
        layout=topic.layout,
        max_bytes=int(configs["max.message.bytes"]),
        before=int(configs["message.timestamp.before.max.ms"]),
        after=int(configs["message.timestamp.after.max.ms"]),
        log_append_time=topic.log_append_time,
        codec=codecs[wanted] if wanted in codecs else Codec[wanted.upper()],
        copies=int(configs["min.insync.replicas"]),
        full=configs["batch.validation"] == "full",
        values=configs["value.validation"] == "true" and configs["valueType"] == "JSON",
        keys=topic.compacts,
    )


def _partitions(text: str) -> int:
    return read_number(text, 1, _PARTITIONS_MAX)


def parse_topic(name: str, reply: list[bytes], keys: Keyspace, defaults: Mapping[str, str]) -> Topic | None:
    """The topic from the reply of HGETALL, see `handwritten`; None, and a log line, where its hash is damaged."""
    words = (word.decode(errors="replace") for word in reply)
    hash_ = dict(zip(words, words, strict=True))
    try:
        configs = read_configs(name, hash_, defaults)
        bits = int(configs["offsetSequenceBits"])

        def number(field_name: str, high: int = MAX_OFFSET) -> int:
            return number_or(0, f"topic {name}: {field_name}", hash_.get(field_name), high)

        return Topic(
            name=name,
            id=read_field(hash_, "id", read_id),
            partitions=read_field(hash_, "partitions", _partitions),
            created=number("created", MAX_OFFSET >> bits),
            numbering=OffsetNumbering(bits, configs["offset.ids"] == "dense"),
            configs=configs,
            compression_seen=hash_.get("producerCompression", "none").lower(),
            message_bytes=number("messageBytes"),
            largest_record=max(number("largestRecord"), LARGE_RECORD),
            timestamp_lead=number("timestampLead"),
            written_id=hash_["id"],
        )
    except ValueError as error:
        complain(f"topic {name}: its hash {keys.topic(name).decode()} is damaged: {error}")
        return None
