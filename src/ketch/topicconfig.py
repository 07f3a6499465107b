"""Topic configs: Kafka's names, types and defaults, what Ketch adds, and the topic-hash field each is kept in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from ketch.errors import InvalidConfig

if TYPE_CHECKING:
    from ketch.config import Settings

ConfigType = Literal["string", "int", "long", "double", "list", "boolean"]
_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1

AS_TOTAL = -2  # LogConfig.DEFAULT_LOCAL_RETENTION_MS and _BYTES: what retention.ms and retention.bytes say

COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One config: its Kafka name, the field of the topic hash it lives in, and what it may be."""

    name: str
    field: str
    type: ConfigType
    default: Callable[[Settings], object]
    documentation: str
    allowed: tuple[str, ...] = ()
    low: int = 0
    high: int = _LONG_MAX
    fixed: bool = False  # set at creation, refused to change
    synonym: str | None = None  # the broker's config that its default comes from

    def check(self, value: str) -> str:
        """The value in its canonical form.

        Raises:
            InvalidConfig: wrong type or out of range (Kafka: INVALID_CONFIG 40).
        """
        if self.allowed:
            if value.lower() not in {option.lower() for option in self.allowed}:
                raise self.invalid(value, f"String must be one of: {', '.join(self.allowed)}")
            return next(option for option in self.allowed if option.lower() == value.lower())
        return str(self._number(value))

    def _number(self, value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise self.invalid(value, f"Not a number of type {self.type.upper()}") from None
        if number < self.low:
            raise self.invalid(value, f"Value must be at least {self.low}")
        if number > self.high:
            raise self.invalid(value, f"Value must be no more than {self.high}")
        return number

    def invalid(self, value: str, reason: str) -> InvalidConfig:
        """The error for a value of this config."""
        return InvalidConfig(f"Invalid value {value} for configuration {self.name}: {reason}")


def _constant(value: object) -> Callable[[Settings], object]:
    return lambda _: value


# A field has the config's own name, save three that the topic hash has names of its own for: retentionTime,
# retentionBytes and compression.
_ALL = (
    TopicConfig(
        "retention.ms",
        "retentionTime",
        "long",
        lambda s: s.retention_ms,
        "How long a record is kept, in ms, by the time it was appended; -1 keeps it forever.",
        low=-1,
        synonym="log.retention.ms",
    ),
    TopicConfig(
        "retention.bytes",
        "retentionBytes",
        "long",
        lambda s: s.retention_bytes,
        "About how many bytes of Redis a partition takes; -1 sets no limit.",
        low=-1,
        synonym="log.retention.bytes",
    ),
    TopicConfig(
        "local.retention.ms",
        "local.retention.ms",
        "long",
        _constant(AS_TOTAL),
        "How long an archived record is kept in Redis too, in ms; -2 is retention.ms, -1 keeps it forever.",
        low=AS_TOTAL,
        synonym="log.local.retention.ms",
    ),
    TopicConfig(
        "local.retention.bytes",
        "local.retention.bytes",
        "long",
        _constant(AS_TOTAL),
        "About how many bytes of archived records a partition keeps in Redis; -2 is retention.bytes, -1 sets no limit.",
        low=AS_TOTAL,
        synonym="log.local.retention.bytes",
    ),
    TopicConfig(
        "remote.storage.enable",
        "remote.storage.enable",
        "boolean",
        _constant("false"),
        "Whether records stay in Redis until they are archived, even before the topic's archive has begun.",
        ("true", "false"),
    ),
    TopicConfig(
        "compression.type",
        "compression",
        "string",
        lambda s: s.default_compression_type,
        "Codec of the batches consumers get; producer: the one the last producer used.",
        COMPRESSION_TYPES,
        synonym="compression.type",
    ),
    TopicConfig(
        "valueType",
        "valueType",
        "string",
        _constant("BYTES"),
        "What values hold, for tools that read the stream from Redis.",
        ("BYTES", "JSON"),
    ),
    TopicConfig(
        "offsetSequenceBits",
        "offsetSequenceBits",
        "int",
        lambda s: s.default_offset_sequence_bits,
        "Bits of an offset that hold the entry id's sequence.",
        low=10,
        high=16,
        fixed=True,
    ),
    TopicConfig(
        "offset.ids",
        "offset.ids",
        "string",
        lambda s: s.default_offset_ids,
        "Entry ids from the clock (time) or from a counter (dense: offsets 0, 1, 2, ...).",
        ("time", "dense"),
        fixed=True,
    ),
    TopicConfig(
        "storage.layout",
        "storage.layout",
        "string",
        lambda s: s.default_storage_layout,
        "A stream entry per record, for any Redis client (record), or per batch as it was produced, for speed (batch).",
        ("record", "batch"),
        fixed=True,
    ),
    TopicConfig(
        "max.message.bytes",
        "max.message.bytes",
        "int",
        lambda s: s.message_max_bytes,
        "Largest record batch, as the producer sent it.",
        high=_INT_MAX,
        synonym="message.max.bytes",
    ),
    TopicConfig(
        "message.timestamp.type",
        "message.timestamp.type",
        "string",
        _constant("CreateTime"),
        "Whose clock a record's timestamp is from.",
        ("CreateTime", "LogAppendTime"),
        synonym="log.message.timestamp.type",
    ),
    TopicConfig(
        "message.timestamp.before.max.ms",
        "message.timestamp.before.max.ms",
        "long",
        _constant(_LONG_MAX),
        "How far a record's timestamp may lie before the broker's clock.",
        synonym="log.message.timestamp.before.max.ms",
    ),
    TopicConfig(
        "message.timestamp.after.max.ms",
        "message.timestamp.after.max.ms",
        "long",
        _constant(_LONG_MAX),
        "How far a record's timestamp may lie after the broker's clock.",
        synonym="log.message.timestamp.after.max.ms",
    ),
    TopicConfig(
        "cleanup.policy",
        "cleanup.policy",
        "list",
        _constant("delete"),
        "Old records are deleted by retention.ms and retention.bytes.",
        ("delete",),
        synonym="log.cleanup.policy",
    ),
    TopicConfig(
        "min.insync.replicas",
        "min.insync.replicas",
        "int",
        _constant(1),
        "Replicas that must acknowledge; a partition has one here, and Redis replicates.",
        low=1,
        high=1,
        synonym="min.insync.replicas",
    ),
)

CONFIGS: Mapping[str, TopicConfig] = {config.name: config for config in _ALL}


def validate(configs: Mapping[str, str | None], existing: Mapping[str, str] | None = None) -> dict[str, str]:
    """Configs as a client gave them, checked and canonical.

    Args:
        existing: what the topic has already; they are held against it, too.

    Raises:
        InvalidConfig: an unknown name, a null, or a value out of range.
    """
    checked = {}
    for name, value in configs.items():
        if name not in CONFIGS:
            raise InvalidConfig(f"Unknown topic config name: {name}")
        if value is None:
            raise InvalidConfig(f"Null value not supported for topic configs: {name}")
        checked[name] = CONFIGS[name].check(value.strip())
    for unit in ("ms", "bytes"):
        pair = f"local.retention.{unit}", f"retention.{unit}"
        if not checked.keys().isdisjoint(pair):
            _check_local({**(existing or {}), **checked}, *pair)
    return checked


def _check_local(checked: Mapping[str, str], name: str, total: str) -> None:
    """LogConfig.validateRemoteStorageRetentionTime and -Size: what is kept in Redis is part of what is kept."""
    # A topic's present values may have been written by hand.
    local = int(CONFIGS[name].check(checked.get(name, str(AS_TOTAL))))
    limit = int(CONFIGS[total].check(checked.get(total, "-1")))
    if limit >= 0 and local == -1:
        raise CONFIGS[name].invalid("-1", f"Value must not be -1 as {total} value is set as {limit}.")
    if 0 <= limit < local:
        raise CONFIGS[name].invalid(str(local), f"Value must not be more than property: {total} value.")


def defaults(settings: Settings) -> dict[str, str]:
    """Every config's value for a topic that sets none."""
    return {name: str(config.default(settings)) for name, config in CONFIGS.items()}


class LazyDefaults(Mapping[str, str]):
    """Configs of a topic whose hash does not say, by the settings in the environment and the configuration file.

    The settings are loaded when the first one is asked for: that takes a fifth of a second, and a topic that Ketch made
    says everything.
    """

    def __getitem__(self, name: str) -> str:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @cached_property
    def _all(self) -> dict[str, str]:
        from ketch.config import Settings

        return defaults(Settings.load())
