"""The broker's settings: flag > environment (`KETCH_*`) > TOML file > default.

A field's name is the TOML key and, with hyphens, the flag. `ketch.toml` at the root of the repository documents each
with unit and default.
"""

from __future__ import annotations

import os
import socket
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from annotated_types import Ge, Le
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from ketch.configs.listeners import Listener, SecurityProtocol
from ketch.errors import ConfigError
from ketch.similar import hint

_LAST_PORT = 65535
Port = Annotated[int, Field(ge=0, le=_LAST_PORT)]
Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
OrUnlimited = Annotated[int, Field(ge=-1)]

WILDCARD_HOSTS = ("0.0.0.0", "::", "")


class Settings(BaseSettings):
    """All settings of `ketch serve`. Times are milliseconds, sizes bytes."""

    model_config = SettingsConfigDict(env_prefix="KETCH_", env_ignore_empty=True, extra="forbid", frozen=True)

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 is every interface.")
    port: Port = Field(9092, description="Kafka port; 0 is any free one.")
    advertised_host: str | None = Field(None, description="Host name given to clients; default: the host.")
    advertised_port: Port | None = Field(None, description="Port given to clients; default: the port.")
    workers: Annotated[int, Field(ge=1, le=64)] = Field(
        1, description="Broker processes; ports and node ids count up from the first's."
    )
    node_id: NotNegative = Field(1, description="This broker's Kafka node id, its own among brokers of one Redis.")

    redis: str | None = Field(
        None, description="URL of Redis, a Redis Cluster or Sentinel; default: an embedded Valkey."
    )
    redis_ca: Path | None = Field(None, description="CA certificates (PEM) that rediss:// trusts.")
    redis_cert: Path | None = Field(None, description="Client certificate (PEM) for rediss://.")
    redis_key: Path | None = Field(None, description="Key (PEM) of the client certificate.")
    redis_timeout_ms: Positive = Field(5000, description="How long Redis may take to connect or answer.")
    redis_port: Port = Field(0, description="Loopback TCP port of the embedded Valkey; 0 is any free one.")
    shards: Annotated[int, Field(ge=1, le=32)] = Field(
        1, description="Embedded Valkeys, as one cluster; redis_port counts up from the first's."
    )
    keyspace: str = Field("korvet", description="First part of every key in Redis.")
    append: Literal["auto", "module", "multi"] = Field(
        "auto", description="How batches are appended: by the append module, by MULTI, or by what Redis has."
    )
    data_dir: Path = Field(Path("ketch-data"), description="Directory of the embedded Valkey's append-only file.")
    fsync: Literal["always", "everysec", "no"] = Field(
        "everysec", description="When the embedded Valkey syncs its append-only file to disk."
    )

    archive_catalog: str = Field("ketch", description="The archive's catalog, as pyiceberg's configuration names it.")
    archive_stall_ms: Positive = Field(600_000, description="When it is logged that an archive stands still.")

    legacy_port: Port | None = Field(None, description="Port for Kafka 0.7 clients; default: off.")
    legacy_magic: Annotated[int, Field(ge=0, le=1)] = Field(
        1, description="Magic of today's records for those clients: 1, or 0 for clients of Kafka 0.6."
    )
    zookeeper: str | None = Field(None, description="host:port,... where 0.7 clients find this broker; default: none.")
    zookeeper_session_timeout_ms: Positive = Field(6000, description="When ZooKeeper forgets a broker that is gone.")

    http_port: Port | None = Field(None, description="Port of /metrics and /healthz; default: off.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")
    drain_timeout_ms: NotNegative = Field(5000, description="How long a stop waits for requests in flight.")

    auto_create_topics: bool = Field(True, description="Create a topic when a client first asks for it.")
    any_replication_factor: bool = Field(
        True, description="Take replication factors above 1; a partition has one replica all the same."
    )
    default_partitions: Positive = Field(1, description="Partitions of a topic created without a number.")
    default_offset_ids: Literal["time", "dense"] = Field("time", description="offset.ids of new topics.")
    default_storage_layout: Literal["record", "batch"] = Field("record", description="storage.layout of new topics.")
    default_offset_sequence_bits: Annotated[int, Field(ge=10, le=16)] = Field(
        10, description="offsetSequenceBits of new topics."
    )
    default_compression_type: Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"] = Field(
        "producer", description="compression.type of new topics."
    )
    min_insync_replicas: Positive = Field(
        1, description="min.insync.replicas of new topics; commits and producer ids have as many copies."
    )
    retention_ms: OrUnlimited = Field(604_800_000, description="retention.ms of new topics; -1 keeps forever.")
    retention_bytes: OrUnlimited = Field(-1, description="retention.bytes of new topics, a partition; -1: no limit.")
    retention_check_interval_ms: Positive = Field(300_000, description="Time between two rounds of retention.")
    log_cleaner_enable: bool = Field(True, description="Compact topics whose cleanup.policy says so.")
    log_cleaner_backoff_ms: Positive = Field(15_000, description="Time between two looks for what to compact.")
    log_cleaner_dedupe_buffer_size: Annotated[int, Field(ge=65_536)] = Field(
        134_217_728, description="Memory for the keys of one compaction; more keys take several passes."
    )
    log_cleaner_io_max_bytes_per_second: OrUnlimited = Field(
        -1, description="Bytes that compactions read and write in a second; -1: no limit."
    )
    log_cleaner_min_cleanable_ratio: Annotated[float, Field(ge=0, le=1)] = Field(
        0.5, description="min.cleanable.dirty.ratio of new topics."
    )
    log_cleaner_min_compaction_lag_ms: NotNegative = Field(0, description="min.compaction.lag.ms of new topics.")
    log_cleaner_max_compaction_lag_ms: Positive = Field(
        9_223_372_036_854_775_807, description="max.compaction.lag.ms of new topics."
    )
    log_cleaner_delete_retention_ms: NotNegative = Field(
        86_400_000, description="delete.retention.ms of new topics: how long tombstones stay."
    )
    metadata_max_age_ms: NotNegative = Field(1000, description="How old a cached topic may be; 0: no cache.")
    broker_heartbeat_interval_ms: Positive = Field(2000, description="How often a broker tells the others it is there.")
    broker_session_timeout_ms: Positive = Field(9000, description="When a silent broker's share goes to the others.")
    producer_id_expiration_ms: Positive = Field(604_800_000, description="When an idle producer's state goes.")

    transaction_max_timeout_ms: Positive = Field(900_000, description="Greatest transaction timeout of a producer.")
    transactional_id_expiration_ms: Positive = Field(604_800_000, description="When an idle transactional id goes.")

    message_max_bytes: Positive = Field(1_048_588, description="max.message.bytes of new topics: largest batch.")
    socket_request_max_bytes: Positive = Field(104_857_600, description="Largest request; a larger one closes.")
    queued_max_bytes: Positive = Field(268_435_456, description="Request bytes in flight over all connections.")
    queued_max_bytes_per_connection: Positive = Field(33_554_432, description="Request bytes in flight on one.")
    max_connections: Positive = Field(10_000, description="Connections at one time; a further one is closed.")
    connections_max_idle_ms: NotNegative = Field(600_000, description="Idle connections close; 0: never.")
    fetch_max_bytes: Annotated[int, Field(ge=1024)] = Field(57_671_680, description="Largest fetch response.")
    max_incremental_fetch_session_cache_slots: NotNegative = Field(
        1000, description="Incremental fetch sessions kept (KIP-227); 0: none."
    )

    quota_window_num: Annotated[int, Field(ge=2)] = Field(
        11, description="Samples that a client's rate is averaged over."
    )
    quota_window_size_seconds: Positive = Field(1, description="Time of one of them.")

    group_min_session_timeout_ms: Positive = Field(6000, description="Least session timeout of a group's member.")
    group_max_session_timeout_ms: Positive = Field(1_800_000, description="Greatest session timeout of a member.")
    group_initial_rebalance_delay_ms: NotNegative = Field(0, description="How long an empty group waits for more.")
    group_max_size: Positive = Field(2_147_483_647, description="Members that a group may have.")
    group_consumer_session_timeout_ms: Positive = Field(45_000, description="Session timeout in consumer groups.")
    group_consumer_min_session_timeout_ms: Positive = Field(45_000, description="Least that a group may set.")
    group_consumer_max_session_timeout_ms: Positive = Field(60_000, description="Greatest that a group may set.")
    group_consumer_heartbeat_interval_ms: Positive = Field(5000, description="Heartbeat interval in consumer groups.")
    group_consumer_min_heartbeat_interval_ms: Positive = Field(5000, description="Least that a group may set.")
    group_consumer_max_heartbeat_interval_ms: Positive = Field(15_000, description="Greatest that a group may set.")
    group_consumer_max_size: Positive = Field(2_147_483_647, description="Members that a consumer group may have.")
    group_consumer_assignors: str = Field("uniform,range", description="Their assignors; the first is the default.")
    group_pending_max: NotNegative = Field(
        10_000,
        description="Deliveries tracked for a group and partition (XPENDING); 0: none, as on compacted topics.",
    )
    offset_metadata_max_bytes: NotNegative = Field(4096, description="Metadata that a commit may carry.")
    offsets_retention_minutes: Positive = Field(10_080, description="When an empty group's commits go.")

    @classmethod
    def load(cls, config: Path | None = None, flags: Mapping[str, Any] | None = None) -> Self:
        """Settings from all four sources. `flags` holds only those that were given.

        Raises ConfigError with one sentence for a file that cannot be read, an unknown key or a bad value.
        """
        flags = flags or {}
        file = read_file(config) if config else {}
        try:
            return cls(**{**file, **EnvSettingsSource(cls)(), **flags})
        except ValidationError as error:
            raise ConfigError(_sentence(error, config, flags)) from None

    @property
    def endpoints(self) -> tuple[Listener, ...]:
        """What is listened on for Kafka's clients."""
        plain = SecurityProtocol.PLAINTEXT
        return (Listener(plain.name, plain, self.host, self.port),)

    def advertised(self, port: int) -> tuple[str, int]:
        """Host and port that clients connect to; `port` is the one that the broker listens on."""
        host = self.advertised_host or (socket.gethostname() if self.host in WILDCARD_HOSTS else self.host)
        return host, self.advertised_port or port

    @field_validator("keyspace")
    @classmethod
    def _keyspace_is_plain(cls, keyspace: str) -> str:
        # Braces would change the Redis Cluster slot of every key.
        if not keyspace or any(c in "{}" or c.isspace() for c in keyspace):
            raise ValueError("it should be non-empty, without braces and white space")
        return keyspace

    @field_validator("group_consumer_assignors")
    @classmethod
    def _assignors_are_known(cls, assignors: str) -> str:
        names = [name.strip() for name in assignors.split(",")]
        if not set(names) <= {"uniform", "range"}:
            raise ValueError("it should name uniform, range or both, with a comma between them")
        return ",".join(dict.fromkeys(names))

    @model_validator(mode="after")
    def _largest_request_gets_through(self) -> Self:
        if self.queued_max_bytes < self.socket_request_max_bytes:
            raise ValueError(
                f"queued_max_bytes = {self.queued_max_bytes} should be at least socket_request_max_bytes"
                f" ({self.socket_request_max_bytes}), or the largest request could never be read"
            )
        return self

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        for less, more in (
            ("group_min_session_timeout_ms", "group_max_session_timeout_ms"),
            ("group_consumer_min_session_timeout_ms", "group_consumer_session_timeout_ms"),
            ("group_consumer_session_timeout_ms", "group_consumer_max_session_timeout_ms"),
            ("group_consumer_min_heartbeat_interval_ms", "group_consumer_heartbeat_interval_ms"),
            ("group_consumer_heartbeat_interval_ms", "group_consumer_max_heartbeat_interval_ms"),
            ("broker_heartbeat_interval_ms", "broker_session_timeout_ms"),
        ):
            if getattr(self, less) > getattr(self, more):
                raise ValueError(f"{less} = {getattr(self, less)} should be at most {more} ({getattr(self, more)})")
        for first in (self.port, self.legacy_port):
            last = (first or 0) + self.workers - 1
            if last > _LAST_PORT:
                raise ValueError(f"{self.workers} workers from port {first} on would need port {last}")
        last = self.redis_port + self.shards - 1
        if last > _LAST_PORT:
            raise ValueError(f"{self.shards} shards from redis_port {self.redis_port} on would need port {last}")
        return self

    @model_validator(mode="after")
    def _legacy_fits(self) -> Self:
        if self.zookeeper is not None and self.legacy_port is None:
            raise ValueError("zookeeper is for clients of Kafka 0.7: legacy_port should say where they connect")
        host, _ = self.advertised(0)
        if self.zookeeper is not None and ":" in host:
            raise ValueError(
                f"advertised_host should be a name or an IPv4 address where zookeeper is set, not {host!r}: clients of"
                " Kafka 0.7 take what stands between two colons for the host"
            )
        if self.legacy_port and self.port and abs(self.legacy_port - self.port) < self.workers:
            raise ValueError(
                f"legacy_port = {self.legacy_port} should be at least {self.workers} away from port = {self.port}:"
                " each worker has its own of both"
            )
        return self


def read_file(path: Path) -> dict[str, Any]:
    """The TOML file's table; ConfigError where it cannot be read."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from None


def _sentence(error: ValidationError, config: Path | None, flags: Mapping[str, Any]) -> str:
    first = error.errors(include_url=False)[0]
    if not first["loc"]:
        return f"{_message(first)}."
    key = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        near = hint(key, Settings.model_fields, 0.6) or f"; the settings are {', '.join(Settings.model_fields)}"
        return f"{config}: unknown setting {key}{near}."
    return f"{_source(key, config, flags)} = {first['input']!r} is not allowed: {_should_be(key, first)}."


def _source(key: str, config: Path | None, flags: Mapping[str, Any]) -> str:
    """What the operator wrote: the flag, the environment variable, or the key in the file."""
    if key in flags:
        return "--" + key.replace("_", "-")
    variable = f"KETCH_{key.upper()}"
    return variable if os.environ.get(variable) else f"{config}: {key}"


def _should_be(key: str, details: Any) -> str:
    """Of a number always the whole range, whatever is wrong with the value."""
    bounds = [bound for bound in _metadata(Settings.model_fields[key]) if isinstance(bound, Ge | Le)]
    if details["type"] == "value_error" or not bounds:
        return should_be(details)
    least = [f"{bound.ge}" for bound in bounds if isinstance(bound, Ge)]
    most = [f"{bound.le}" for bound in bounds if isinstance(bound, Le)]
    return f"it should be a whole number {f'from {least[0]} to {most[0]}' if most else f'of at least {least[0]}'}"


def _metadata(field: FieldInfo) -> list[Any]:
    """The constraints on a field, those within `| None` too."""
    within = [found for kind in get_args(field.annotation) for found in getattr(kind, "__metadata__", ())]
    nested = [bound for info in within if isinstance(info, FieldInfo) for bound in info.metadata]
    return [*field.metadata, *within, *nested]


# By pydantic's type of error, with the fields of its context
_SHOULD_BE = {
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "text",
    "path_type": "a path",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
}


def should_be(details: Any) -> str:
    """What a value should be, by one of the errors in pydantic's ValidationError: "it should be at least 10"."""
    phrase = _SHOULD_BE.get(details["type"])
    if phrase is None:
        return _message(details)
    return f"it should be {phrase.format(**details.get('ctx', {}))}"


def _message(details: Any) -> str:
    return str(details["msg"]).removeprefix("Value error, ").replace("Input should", "it should")
