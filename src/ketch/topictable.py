"""The table of topic configs: Kafka's, with Kafka's types, ranges and defaults, and those that Ketch adds.

Everything that speaks of a topic config reads this table: validation and DescribeConfigs, the topic hash's fields, the
command line's completion, and the table in docs/configuration.md (`scripts/topic_table.py` writes it). A config whose
`idle` says why has no effect here: it is accepted, kept and shown, so that tools which set it work unchanged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ketch.errors import InvalidConfig

if TYPE_CHECKING:
    from ketch.config import Settings

ConfigType = Literal["string", "int", "long", "double", "list", "boolean"]
LONG_MAX, LONG_MIN = 2**63 - 1, -(2**63)
_BOUNDS = {"int": (-(2**31), 2**31 - 1), "long": (LONG_MIN, LONG_MAX)}
_WHOLE = re.compile(r"[+-]?[0-9]+")
_THROTTLED = re.compile(r"|\*|[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*")

AS_TOTAL = -2  # LogConfig.DEFAULT_LOCAL_RETENTION_MS and _BYTES: what retention.ms and retention.bytes say

COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
_BOOLEANS = ("true", "false")


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One config: its Kafka name and what it may be.

    Attributes:
        constant: the default, where it is not a setting's value.
        setting: the broker's setting that is the default.
        allowed: the words it may be; of a list, those it may hold.
        also: a number that is allowed beside those from `low` to `high`.
        fixed: set at creation, refused to change.
        synonym: the broker's config that its default comes from.
        field: of the topic hash; "" is the config's own name. The hash has names of its own for three.
        idle: why it has no effect here; "" where it has one.
        more: what the page adds to the documentation, in Markdown.
    """

    name: str
    type: ConfigType
    documentation: str
    constant: str = ""
    setting: str = ""
    allowed: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    also: int | None = None
    fixed: bool = False
    synonym: str | None = None
    field: str = ""
    idle: str = ""
    more: str = ""

    def __post_init__(self) -> None:
        if not self.field:
            object.__setattr__(self, "field", self.name)

    def default(self, settings: Settings) -> str:
        """Its value for a topic that sets none, where no broker config was changed at run time."""
        return str(getattr(settings, self.setting)) if self.setting else self.constant

    def check(self, value: str) -> str:
        """The value in its canonical form.

        Raises:
            InvalidConfig: wrong type or out of range (Kafka: INVALID_CONFIG 40).
        """
        if self.type == "boolean":
            if value.lower() not in _BOOLEANS:
                raise self.invalid(value, "Expected value to be either true or false")
            return value.lower()
        if self.type == "list":
            return self._list(value)
        if self.type == "string":
            return self._word(value)
        number = self._double(value) if self.type == "double" else self._whole(value)
        self._check_range(number)
        return str(number)

    def _word(self, value: str) -> str:
        for option in self.allowed:
            if option.lower() == value.lower():
                return option
        raise self.invalid(value, f"String must be one of: {', '.join(self.allowed)}")

    def _list(self, value: str) -> str:
        if not self.allowed:  # the two lists of throttled replicas
            if not _THROTTLED.fullmatch(value.rstrip(",")):
                form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
                why = f"{self.name} must be the literal '*' or a list of replicas in the following format: {form}"
                raise self.invalid(f"[{value}]", why)
            return value
        return ",".join(dict.fromkeys(self._word(each.strip()) for each in value.split(",")))

    def _whole(self, value: str) -> int:
        low, high = _BOUNDS[self.type]
        if not _WHOLE.fullmatch(value) or not low <= int(value) <= high:
            raise self.invalid(value, f"Not a number of type {self.type.upper()}")
        return int(value)

    def _double(self, value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            raise self.invalid(value, "Not a number of type DOUBLE")
        return number

    def _check_range(self, number: float) -> None:
        low, high = self.low, self.high
        if self.also is not None:
            if number != self.also and not (low is not None and high is not None and low <= number <= high):
                raise self.invalid(str(number), f"Value must be between {low} and {high} or equal to {self.also}")
        elif low is not None and number < low:
            raise self.invalid(str(number), f"Value must be at least {low}")
        elif high is not None and number > high:
            raise self.invalid(str(number), f"Value must be no more than {high}")

    def invalid(self, value: str, reason: str) -> InvalidConfig:
        """The error for a value of this config."""
        return InvalidConfig(f"Invalid value {value} for configuration {self.name}: {reason}")


_ENDLESS = str(LONG_MAX)
_NO_SEGMENTS = "a Redis stream has no segments"
_NO_INDEX = "a Redis stream is its own index"
_NO_FILES = "records lie in Redis, not in files"
_SYNCS = "the setting `fsync` says when Redis syncs"
_ONE_REPLICA = "a partition has one replica, and Redis replicates it"
_ARCHIVE_JOB = "the archive job decides"
_FIXED_LEVEL = "each codec is used at one level"

_ALL = (
    TopicConfig(
        "retention.ms",
        "long",
        "How long a record is kept, in ms, by the time it was appended; -1: forever.",
        setting="retention_ms",
        low=-1,
        synonym="log.retention.ms",
        field="retentionTime",
    ),
    TopicConfig(
        "retention.bytes",
        "long",
        "About how many bytes of Redis a partition takes; -1: no limit.",
        setting="retention_bytes",
        synonym="log.retention.bytes",
        field="retentionBytes",
    ),
    TopicConfig(
        "local.retention.ms",
        "long",
        "How long an archived record stays in Redis, in ms; -2: as retention.ms, -1: forever.",
        str(AS_TOTAL),
        low=AS_TOTAL,
        synonym="log.local.retention.ms",
    ),
    TopicConfig(
        "local.retention.bytes",
        "long",
        "About how many bytes of them stay in Redis; -2: as retention.bytes, -1: no limit.",
        str(AS_TOTAL),
        low=AS_TOTAL,
        synonym="log.local.retention.bytes",
    ),
    TopicConfig(
        "remote.storage.enable",
        "boolean",
        "Records stay in Redis until they are archived.",
        "false",
        more="See [tiering.md](tiering.md).",
    ),
    TopicConfig(
        "compression.type",
        "string",
        "Codec of batches for consumers; producer: the last one's.",
        setting="default_compression_type",
        allowed=COMPRESSION_TYPES,
        synonym="compression.type",
        field="compression",
    ),
    TopicConfig(
        "max.message.bytes",
        "int",
        "Largest record batch, as the producer sent it.",
        setting="message_max_bytes",
        low=0,
        synonym="message.max.bytes",
    ),
    TopicConfig(
        "message.timestamp.type",
        "string",
        "Whose time a record bears: the producer's (CreateTime) or the broker's (LogAppendTime).",
        "CreateTime",
        allowed=("CreateTime", "LogAppendTime"),
        synonym="log.message.timestamp.type",
    ),
    TopicConfig(
        "message.timestamp.before.max.ms",
        "long",
        "How far a record's timestamp may lie before the broker's clock, in ms.",
        _ENDLESS,
        low=0,
        synonym="log.message.timestamp.before.max.ms",
    ),
    TopicConfig(
        "message.timestamp.after.max.ms",
        "long",
        "How far a record's timestamp may lie after the broker's clock, in ms.",
        _ENDLESS,
        low=0,
        synonym="log.message.timestamp.after.max.ms",
    ),
    TopicConfig(
        "cleanup.policy",
        "list",
        "Delete by age and size, compact by key, or both.",
        "delete",
        allowed=("compact", "delete"),
        synonym="log.cleanup.policy",
        more="See [operations.md](operations.md#compaction).",
    ),
    TopicConfig(
        "valueType",
        "string",
        "What values hold: a note for tools that read the stream; value.validation goes by it.",
        "BYTES",
        allowed=("BYTES", "JSON"),
    ),
    TopicConfig(
        "value.validation",
        "boolean",
        "Refuse values that are not of the topic's valueType.",
        "false",
        more="See [below](#validation-of-records).",
    ),
    TopicConfig(
        "batch.validation",
        "string",
        "full: look at each record in the batch layout, too.",
        "header",
        allowed=("header", "full"),
        more="See [below](#validation-of-records).",
    ),
    TopicConfig(
        "offset.ids",
        "string",
        "Entry ids from the clock (time) or a counter (dense).",
        setting="default_offset_ids",
        allowed=("time", "dense"),
        fixed=True,
        more="[offsets.md](offsets.md); fixed.",
    ),
    TopicConfig(
        "offsetSequenceBits",
        "int",
        "Bits of an offset for the entry id's sequence: 10 to 16.",
        setting="default_offset_sequence_bits",
        low=10,
        high=16,
        fixed=True,
        more="Fixed.",
    ),
    TopicConfig(
        "storage.layout",
        "string",
        "An entry per record, or per batch.",
        setting="default_storage_layout",
        allowed=("record", "batch"),
        fixed=True,
        more="[batches](redis-layout.md#batches); fixed.",
    ),
    TopicConfig(
        "min.insync.replicas",
        "int",
        "Replicas that must have a record before acks=all is answered.",
        "1",
        low=1,
        synonym="min.insync.replicas",
        idle=_ONE_REPLICA,
    ),
    TopicConfig(
        "unclean.leader.election.enable",
        "boolean",
        "Whether a replica that is behind may become leader.",
        "false",
        synonym="unclean.leader.election.enable",
        idle=_ONE_REPLICA,
    ),
    TopicConfig(
        "leader.replication.throttled.replicas",
        "list",
        "Replicas whose leaders are throttled.",
        idle=_ONE_REPLICA,
    ),
    TopicConfig(
        "follower.replication.throttled.replicas",
        "list",
        "Replicas whose followers are throttled.",
        idle=_ONE_REPLICA,
    ),
    TopicConfig(
        "delete.retention.ms",
        "long",
        "How long a tombstone is kept, in ms.",
        setting="log_cleaner_delete_retention_ms",
        low=0,
        synonym="log.cleaner.delete.retention.ms",
    ),
    TopicConfig(
        "min.compaction.lag.ms",
        "long",
        "How old a record is before a compaction may look at it, in ms.",
        setting="log_cleaner_min_compaction_lag_ms",
        low=0,
        synonym="log.cleaner.min.compaction.lag.ms",
    ),
    TopicConfig(
        "max.compaction.lag.ms",
        "long",
        "After how long a record is compacted at the latest, in ms.",
        setting="log_cleaner_max_compaction_lag_ms",
        low=1,
        synonym="log.cleaner.max.compaction.lag.ms",
    ),
    TopicConfig(
        "min.cleanable.dirty.ratio",
        "double",
        "Part of the entries that is new before a compaction begins.",
        setting="log_cleaner_min_cleanable_ratio",
        low=0,
        high=1,
        synonym="log.cleaner.min.cleanable.ratio",
    ),
    TopicConfig(
        "compression.gzip.level",
        "int",
        "Level of gzip.",
        "-1",
        low=1,
        high=9,
        also=-1,
        synonym="compression.gzip.level",
        idle=_FIXED_LEVEL,
    ),
    TopicConfig(
        "compression.lz4.level",
        "int",
        "Level of lz4.",
        "9",
        low=1,
        high=17,
        synonym="compression.lz4.level",
        idle=_FIXED_LEVEL,
    ),
    TopicConfig(
        "compression.zstd.level",
        "int",
        "Level of zstd.",
        "3",
        low=-131072,
        high=22,
        synonym="compression.zstd.level",
        idle=_FIXED_LEVEL,
    ),
    TopicConfig(
        "remote.log.copy.disable",
        "boolean",
        "Whether nothing more is copied to remote storage.",
        "false",
        idle=_ARCHIVE_JOB,
    ),
    TopicConfig(
        "remote.log.delete.on.disable",
        "boolean",
        "Whether remote records are deleted when remote storage is disabled.",
        "false",
        idle=_ARCHIVE_JOB,
    ),
    TopicConfig(
        "segment.bytes",
        "int",
        "Size of a segment file.",
        "1073741824",
        low=1 << 20,
        synonym="log.segment.bytes",
        idle=_NO_SEGMENTS,
    ),
    TopicConfig(
        "segment.ms",
        "long",
        "When a segment is closed, in ms.",
        "604800000",
        low=1,
        synonym="log.roll.ms",
        idle=_NO_SEGMENTS,
    ),
    TopicConfig(
        "segment.jitter.ms",
        "long",
        "Random part of segment.ms.",
        "0",
        low=0,
        synonym="log.roll.jitter.ms",
        idle=_NO_SEGMENTS,
    ),
    TopicConfig(
        "segment.index.bytes",
        "int",
        "Size of an index file.",
        "10485760",
        low=4,
        synonym="log.index.size.max.bytes",
        idle=_NO_INDEX,
    ),
    TopicConfig(
        "index.interval.bytes",
        "int",
        "Bytes between two entries of the index.",
        "4096",
        low=0,
        synonym="log.index.interval.bytes",
        idle=_NO_INDEX,
    ),
    TopicConfig(
        "flush.messages",
        "long",
        "After how many records the log is synced.",
        _ENDLESS,
        low=1,
        synonym="log.flush.interval.messages",
        idle=_SYNCS,
    ),
    TopicConfig(
        "flush.ms",
        "long",
        "After how long the log is synced, in ms.",
        _ENDLESS,
        low=0,
        synonym="log.flush.interval.ms",
        idle=_SYNCS,
    ),
    TopicConfig(
        "file.delete.delay.ms",
        "long",
        "When the file of a deleted segment goes, in ms.",
        "60000",
        low=0,
        synonym="log.segment.delete.delay.ms",
        idle=_NO_FILES,
    ),
    TopicConfig(
        "preallocate",
        "boolean",
        "Whether a segment file has its size from the start.",
        "false",
        synonym="log.preallocate",
        idle=_NO_FILES,
    ),
)

CONFIGS: Mapping[str, TopicConfig] = {config.name: config for config in _ALL}
