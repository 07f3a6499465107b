"""The broker's settings: flag > environment (`KETCH_*`) > TOML file > default.

A field's name is the TOML key and, with hyphens, the flag. `ketch.toml` at the root of the repository documents each
with unit and default.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from ketch.configs import listeners as listening
from ketch.configs.listeners import LAST_PORT, Listener
from ketch.configs.lists import items
from ketch.configs.refusal import extra, is_secret, not_allowed, sentence
from ketch.configs.toml import read_file
from ketch.errors import ConfigError

Port = Annotated[int, Field(ge=0, le=LAST_PORT)]
Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
LockDuration = Annotated[int, Field(ge=1000, le=3_600_000)]  # ms, as Kafka has it for records of share groups
OrUnlimited = Annotated[int, Field(ge=-1)]

MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")
SIMPLE_FORM = ("host", "port", "advertised_host", "advertised_port")  # of one listener; `listeners` has any number
# Beginnings of the settings that a listener may override
_PER_LISTENER = ("ssl_", "sasl_", "connections_max_reauth_ms")


def _served(names: str) -> str:
    """A list of SASL mechanisms; ValueError where one of them is not served."""
    given = [name.strip() for name in names.split(",")]
    if any(name not in MECHANISMS for name in given) or len(set(given)) < len(given):
        raise ValueError(f"it should be a list, with commas between, of {', '.join(MECHANISMS)}")
    return names


def _url(*beginnings: str) -> AfterValidator:
    """A URL that begins with one of these."""

    def checked(url: str) -> str:
        if not url.startswith(beginnings):
            raise ValueError(f"it should begin with {' or '.join(beginnings)}")
        return url

    return AfterValidator(checked)


def _principals(super_users: str) -> tuple[str, ...]:
    """`super.users`: semicolons stand between, as a distinguished name has commas."""
    return tuple(principal for text in super_users.split(";") if (principal := text.strip()))


def secret(description: str) -> Any:
    """A setting that nobody is to see: it has no option and is in no message.

    The broker's table of configs has to give it the type "password", for which DescribeConfigs shows no value.
    """
    return Field(None, description=description, repr=False, json_schema_extra={"secret": True})


def has_option(setting: str) -> bool:
    """Whether `ketch serve` has an option for it: all but secrets, which `ps` would show, and tables."""
    field = Settings.model_fields[setting]
    return not (is_secret(field) or extra(field).get("table"))


class Settings(BaseSettings):
    """All settings of `ketch serve`. Times are milliseconds, sizes bytes."""

    model_config = SettingsConfigDict(env_prefix="KETCH_", env_ignore_empty=True, extra="forbid", frozen=True)

    # -- network
    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 is every interface.")
    port: Port = Field(9092, description="Kafka port; 0 is any free one.")
    advertised_host: str | None = Field(None, description="Host name given to clients; default: the host.")
    advertised_port: Port | None = Field(None, description="Port given to clients; default: the port.")
    listeners: str | None = Field(
        None, description="NAME://host:port,... to listen on; default: one listener, PLAINTEXT, at host and port."
    )
    advertised_listeners: str | None = Field(
        None, description="NAME://host:port,... given to clients of each listener; default: as listened on."
    )
    listener_security_protocol_map: str = Field(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        description="NAME:PROTOCOL,...: the security protocol of each listener's name.",
    )
    listener: dict[str, dict[str, Any]] = Field(
        {},
        description="Tables [listener.NAME]: settings of one listener alone.",
        repr=False,
        json_schema_extra={"table": True},
    )
    allow_plaintext: bool = Field(
        False, description="No warning about listeners without TLS that other machines can reach."
    )
    workers: Annotated[int, Field(ge=1, le=64)] = Field(
        1, description="Broker processes; ports and node ids count up from the first's."
    )
    node_id: NotNegative = Field(1, description="This broker's Kafka node id, its own among brokers of one Redis.")
    max_connections: Positive = Field(10_000, description="Connections at one time; a further one is closed.")
    connections_max_idle_ms: NotNegative = Field(600_000, description="Idle connections close; 0: never.")
    socket_request_max_bytes: Positive = Field(104_857_600, description="Largest request; a larger one closes.")
    queued_max_bytes: Positive = Field(268_435_456, description="Request bytes in flight over all connections.")
    queued_max_bytes_per_connection: Positive = Field(33_554_432, description="Request bytes in flight on one.")
    fetch_max_bytes: Annotated[int, Field(ge=1024)] = Field(57_671_680, description="Largest fetch response.")
    max_incremental_fetch_session_cache_slots: NotNegative = Field(
        1000, description="Incremental fetch sessions kept (KIP-227); 0: none."
    )
    quota_window_num: Annotated[int, Field(ge=2)] = Field(
        11, description="Samples that a client's rate is averaged over."
    )
    quota_window_size_seconds: Positive = Field(1, description="Time of one of them.")
    drain_timeout_ms: NotNegative = Field(5000, description="How long a stop waits for requests in flight.")

    # -- TLS
    ssl_keystore_type: Literal["PEM"] = Field("PEM", description="Format of the broker's certificate and key.")
    ssl_keystore_location: Path | None = Field(
        None, description="File with the broker's key and its certificate chain, for listeners with TLS."
    )
    ssl_keystore_certificate_chain: str | None = Field(
        None, description="The certificate chain itself, in place of a file.", repr=False
    )
    ssl_keystore_key: str | None = secret("The key itself (PKCS#8), in place of a file.")
    ssl_key_password: str | None = secret("Password of the key, where it is encrypted.")
    ssl_truststore_type: Literal["PEM"] = Field("PEM", description="Format of the authorities' certificates.")
    ssl_truststore_location: Path | None = Field(
        None, description="File with the certificates of the authorities that clients' certificates may be of."
    )
    ssl_truststore_certificates: str | None = Field(
        None, description="These certificates themselves, in place of a file.", repr=False
    )
    ssl_client_auth: Literal["none", "requested", "required"] = Field(
        "none", description="Whether clients show a certificate."
    )
    ssl_enabled_protocols: str = Field("TLSv1.2,TLSv1.3", description="Versions of TLS.")
    ssl_cipher_suites: str | None = Field(
        None, description="Cipher suites by their names in Java or OpenSSL; default: OpenSSL's."
    )
    ssl_principal_mapping_rules: str = Field(
        "DEFAULT", description="How a client certificate's subject becomes the name of a user."
    )

    # -- authentication (SASL)
    sasl_enabled_mechanisms: Annotated[str, AfterValidator(_served)] = Field(
        "SCRAM-SHA-512,SCRAM-SHA-256", description="SASL mechanisms that clients may use: also PLAIN and OAUTHBEARER."
    )
    sasl_oauthbearer_jwks_endpoint_url: Annotated[str, _url("https://", "file:///")] | None = Field(
        None, description="URL, https:// or file://, of the key set (JWKS) whose keys sign tokens of OAUTHBEARER."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: Positive = Field(
        3_600_000, description="When the key set is read again."
    )
    sasl_oauthbearer_expected_issuer: str | None = Field(None, description="iss of tokens; default: any.")
    sasl_oauthbearer_expected_audience: str | None = Field(
        None, description="Values, with commas between, one of which is in aud of tokens; default: any."
    )
    sasl_oauthbearer_clock_skew_seconds: NotNegative = Field(
        30, description="How far the clocks of broker and issuer may be apart."
    )
    sasl_oauthbearer_scope_claim_name: str = Field("scope", description="The claim with a token's scopes.")
    sasl_oauthbearer_sub_claim_name: str = Field("sub", description="The claim with a user's name.")
    sasl_server_max_receive_size: Annotated[int, Field(ge=512)] = Field(
        65_536, description="Largest request of a client that has not authenticated yet."
    )
    authentication_timeout_ms: Positive = Field(30_000, description="How long a client may take to authenticate.")
    connection_failed_authentication_delay_ms: NotNegative = Field(
        100, description="A failed authentication is answered so long after the request."
    )
    connections_max_reauth_ms: NotNegative = Field(
        0, description="When a client has to authenticate again; 0: never, or when its token ends."
    )

    # -- Redis
    redis: str | None = Field(
        None, description="URL of Redis, a Redis Cluster or Sentinel; default: an embedded Valkey."
    )
    redis_ca: Path | None = Field(None, description="CA certificates (PEM) that rediss:// trusts.")
    redis_cert: Path | None = Field(None, description="Client certificate (PEM) for rediss://.")
    redis_key: Path | None = Field(None, description="Key (PEM) of the client certificate.")
    redis_timeout_ms: Positive = Field(5000, description="How long Redis may take to connect or answer.")
    keyspace: str = Field("korvet", description="First part of every key in Redis.")
    append: Literal["auto", "module", "multi"] = Field(
        "auto", description="How batches are appended: by the append module, by MULTI, or by what Redis has."
    )
    lane: Literal["off", "on", "coin"] = Field(
        "on", description="Whether common requests are served without Python; coin: every other one, by chance."
    )

    # -- embedded Valkey
    data_dir: Path = Field(Path("ketch-data"), description="Directory of the embedded Valkey's append-only file.")
    fsync: Literal["always", "everysec", "no"] = Field(
        "everysec", description="When the embedded Valkey syncs its append-only file to disk."
    )
    redis_port: Port = Field(0, description="Loopback TCP port of the embedded Valkey; 0 is any free one.")
    redis_auth: Literal["auto", "none", "password"] = Field(
        "auto", description="Whether the embedded Valkey asks for a password; auto: with TLS, SASL or ACLs."
    )
    shards: Annotated[int, Field(ge=1, le=32)] = Field(
        1, description="Embedded Valkeys, as one cluster; redis_port counts up from the first's."
    )

    # -- who may do what
    authorizer_class_name: Literal["", "standard", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"] = Field(
        "", description="standard, or its name in Kafka, has ACLs decide; default: everyone may do everything."
    )
    super_users: str = Field("", description="Principals that may do everything: User:a;User:b.")
    allow_everyone_if_no_acl_found: bool = Field(
        False, description="Allow everyone what no ACL at all is about, rather than nobody."
    )
    audit_log: Path | None = Field(None, description="File of the audit log; default: this broker's own log.")
    audit_level: Literal["off", "denied", "all"] = Field("denied", description="What is written into the audit log.")

    # -- archive
    archive_catalog: str = Field("ketch", description="The archive's catalog, as pyiceberg's configuration names it.")
    archive_stall_ms: Positive = Field(600_000, description="When it is logged that an archive stands still.")

    # -- topics
    auto_create_topics: bool = Field(True, description="Create a topic when a client first asks for it.")
    any_replication_factor: bool = Field(
        True, description="Take replication factors above 1; a partition has as many as Redis has all the same."
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
    copies_on_disk: bool = Field(False, description="A copy counts once it is synced to a disk (WAITAOF).")
    message_max_bytes: Positive = Field(1_048_588, description="max.message.bytes of new topics: largest batch.")
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

    # -- clients of Kafka 0.7
    legacy_port: Port | None = Field(None, description="Port for Kafka 0.7 clients; default: off.")
    legacy_host: str | None = Field(
        None, description="Address of legacy_port; default: the host, or this machine alone where listeners is given."
    )
    legacy_allow_plaintext: bool = Field(
        False, description="Let other machines reach legacy_port, whose protocol has neither TLS nor passwords."
    )
    legacy_magic: Annotated[int, Field(ge=0, le=1)] = Field(
        1, description="Magic of today's records for those clients: 1, or 0 for clients of Kafka 0.6."
    )
    zookeeper: str | None = Field(None, description="host:port,... where 0.7 clients find this broker; default: none.")
    zookeeper_session_timeout_ms: Positive = Field(6000, description="When ZooKeeper forgets a broker that is gone.")

    # -- operation
    http_port: Port | None = Field(None, description="Port of /metrics and /healthz; default: off.")
    http_host: str = Field("127.0.0.1", description="Address of http_port; 0.0.0.0 is every interface.")
    http_token_file: Path | None = Field(
        None, description="File with the token that /metrics asks for, as Authorization: Bearer TOKEN."
    )
    http_ssl_keystore_location: Path | None = Field(
        None, description="PEM file with key and certificate chain: with it http_port speaks HTTPS."
    )
    metrics_partitions_max: NotNegative = Field(
        2000, description="Partitions that a broker leads with series of their own in /metrics; others are summed."
    )
    metrics_group_partitions_max: NotNegative = Field(
        2000, description="Partitions of groups that a broker coordinates whose lag /metrics shows."
    )
    console: bool = Field(False, description="Whether http_port has the console: pages for a browser.")
    console_write: bool = Field(
        False, description="Whether the console creates, alters and deletes topics, produces, and resets groups."
    )
    console_hosts: str = Field(
        "", description="Names of this machine by which browsers may ask for the console, with commas between."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")
    log_format: Literal["text", "json"] = Field("text", description="Form of the log: text, or a line of JSON each.")
    slow_request_ms: NotNegative = Field(
        1000, description="From how long on a request is slow, and has a line in the log; 0: none is."
    )
    otlp_endpoint: Annotated[str, _url("http://", "https://")] | None = Field(
        None,
        description="URL of an OpenTelemetry collector (OTLP over HTTP) for spans of traced records; default: none.",
    )
    metrics_topics_max: NotNegative = Field(
        200, description="Topics that have metrics of their own; those of all others are summed."
    )

    # -- consumer groups
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
    group_consumer_migration_policy: Literal["bidirectional", "upgrade", "downgrade", "disabled"] = Field(
        "bidirectional",
        description="Which way a group with members may change its protocol.",
    )
    group_share_session_timeout_ms: Positive = Field(45_000, description="Session timeout in share groups.")
    group_share_min_session_timeout_ms: Positive = Field(45_000, description="Least that a group may set.")
    group_share_max_session_timeout_ms: Positive = Field(60_000, description="Greatest that a group may set.")
    group_share_heartbeat_interval_ms: Positive = Field(5000, description="Heartbeat interval in share groups.")
    group_share_min_heartbeat_interval_ms: Positive = Field(5000, description="Least that a group may set.")
    group_share_max_heartbeat_interval_ms: Positive = Field(15_000, description="Greatest that a group may set.")
    group_share_max_size: int = Field(200, ge=1, le=1000, description="Members that a share group may have.")
    group_share_record_lock_duration_ms: LockDuration = Field(30_000, description="How long a record is acquired.")
    group_share_min_record_lock_duration_ms: LockDuration = Field(15_000, description="Least that a group may set.")
    group_share_max_record_lock_duration_ms: LockDuration = Field(60_000, description="Greatest that a group may set.")
    group_share_delivery_count_limit: int = Field(5, ge=2, le=10, description="Deliveries of a record, at most.")
    group_share_partition_max_record_locks: int = Field(
        2000, ge=100, le=10_000, description="Records in flight, per share group and partition."
    )
    group_share_max_share_sessions: Positive = Field(2000, description="Share sessions that a broker keeps.")
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
        file.pop("client", None)  # the commands' own, see `ketch.cli.client_config`
        try:
            return cls(**{**file, **EnvSettingsSource(cls)(), **flags})
        except ValidationError as error:
            raise ConfigError(sentence(error, cls.model_fields, config, flags)) from None

    # -- what follows from them

    @property
    def endpoints(self) -> tuple[Listener, ...]:
        """What is listened on for Kafka's clients."""
        protocols = listening.protocols(self.listener_security_protocol_map)
        if self.listeners is not None:
            found = listening.endpoints(self.listeners, protocols)
        elif "PLAINTEXT" in protocols:
            found = (Listener("PLAINTEXT", protocols["PLAINTEXT"], self.host, self.port),)
        else:
            raise ValueError("No security protocol defined for listener PLAINTEXT")
        return tuple(replace(each, principal_rules=self.of(each.name).ssl_principal_mapping_rules) for each in found)

    def announced(self, ports: Mapping[str, int]) -> tuple[Listener, ...]:
        """What clients are told to connect to.

        Args:
            ports: those that are listened on, by listener.
        """
        if self.listeners is None:
            (own,) = self.endpoints
            host, port = self.advertised(ports.get(own.name, own.port))
            return (replace(own, host=host, port=port),)
        if self.advertised_listeners is None:
            here = listening.on_ports(self.endpoints, ports)
            return tuple(replace(each, host=socket.gethostname()) if each.everywhere else each for each in here)
        protocols = listening.protocols(self.listener_security_protocol_map)
        told = listening.advertised(self.advertised_listeners, protocols, self.endpoints)
        return tuple(replace(each, port=each.port or ports.get(each.name, 0)) for each in told)

    def advertised(self, port: int) -> tuple[str, int]:
        """Host and port that clients connect to; `port` is the one that the broker listens on."""
        host = self.advertised_host or (socket.gethostname() if listening.everywhere(self.host) else self.host)
        return host, self.advertised_port or port

    def where(self, ports: Mapping[str, int]) -> str:
        """Where Kafka's clients are listened to, for a person: HOST:PORT, or the listeners where these are given."""
        here = listening.on_ports(self.endpoints, ports)
        if self.listeners is not None:
            return ",".join(map(str, here))
        return f"{listening.bracketed(here[0].host)}:{here[0].port}"

    def of(self, listener: str) -> Self:
        """The settings as they are for one listener."""
        table = self.listener.get(listener)
        return self.model_copy(update=table) if table else self

    @property
    def legacy_address(self) -> str:
        """The host that `legacy_port` is on."""
        return self.legacy_host or (self.host if self.listeners is None else "127.0.0.1")

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The SASL mechanisms that are offered, by Kafka's names."""
        return tuple(items(self.sasl_enabled_mechanisms))

    @property
    def authorizes(self) -> bool:
        """Whether ACLs decide what clients may do."""
        return bool(self.authorizer_class_name)

    @property
    def super_user_principals(self) -> tuple[str, ...]:
        """Principals that may do everything."""
        return _principals(self.super_users)

    @property
    def authenticates(self) -> bool:
        """Whether clients of any listener say who they are, or ACLs decide what they may do."""
        return self.authorizes or any(each.protocol.sasl or each.protocol.tls for each in self.endpoints)

    @property
    def has_passwords(self) -> bool:
        """Whether users can log in with a password on some listener."""
        named = (self.of(each.name).mechanisms for each in self.endpoints if each.protocol.sasl)
        return any(mechanism != "OAUTHBEARER" for mechanisms in named for mechanism in mechanisms)

    @property
    def copies_are_on_disk(self) -> bool:
        """Whether a copy counts once it is on a disk: asked for, or what is said of the embedded Valkey's own."""
        return self.copies_on_disk or (self.redis is None and self.fsync == "always")

    # -- what each may be

    @field_validator("listeners", "advertised_listeners", mode="before")
    @classmethod
    def _one_text(cls, value: Any) -> Any:
        """TOML has arrays, Kafka's form is one line."""
        return ",".join(value) if isinstance(value, list) and all(isinstance(each, str) for each in value) else value

    @field_validator("listener")
    @classmethod
    def _tables_are_settings(cls, tables: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return {
            name.upper(): {key: _checked(name, key, value) for key, value in table.items()}
            for name, table in tables.items()
        }

    @field_validator("super_users")
    @classmethod
    def _super_users_are_principals(cls, super_users: str) -> str:
        for principal in _principals(super_users):
            kind, _, name = principal.partition(":")
            if not kind or not name:
                raise ValueError(f"it should be principals with semicolons between, User:a;User:b, not {principal!r}")
        return super_users

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

    # -- what goes together; in this order, as a later check may rely on an earlier one

    @model_validator(mode="after")
    def _listeners_agree(self) -> Self:
        given = self.model_fields_set
        named = self.listeners is not None or self.advertised_listeners is not None
        if named and (both := [name for name in SIMPLE_FORM if name in given]):
            raise ValueError(
                f"listeners says where clients connect, and so does {' and '.join(both)}: give one of the two"
            )
        if self.advertised_listeners is not None and self.listeners is None:
            raise ValueError("advertised_listeners needs listeners; with host and port it is advertised_host")
        names = {listener.name for listener in self.endpoints}
        if strange := sorted(self.listener.keys() - names):
            raise ValueError(f"[listener.{strange[0]}] is none of the listeners, which are {', '.join(sorted(names))}")
        self.announced({})
        return self

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
            ("group_share_min_session_timeout_ms", "group_share_session_timeout_ms"),
            ("group_share_session_timeout_ms", "group_share_max_session_timeout_ms"),
            ("group_share_min_heartbeat_interval_ms", "group_share_heartbeat_interval_ms"),
            ("group_share_heartbeat_interval_ms", "group_share_max_heartbeat_interval_ms"),
            ("group_share_min_record_lock_duration_ms", "group_share_record_lock_duration_ms"),
            ("group_share_record_lock_duration_ms", "group_share_max_record_lock_duration_ms"),
            ("group_share_max_size", "group_share_max_share_sessions"),
            ("broker_heartbeat_interval_ms", "broker_session_timeout_ms"),
        ):
            if getattr(self, less) > getattr(self, more):
                raise ValueError(f"{less} = {getattr(self, less)} should be at most {more} ({getattr(self, more)})")
        if self.audit_log is not None and not self.authorizer_class_name:
            raise ValueError("audit_log is for what ACLs decide: set authorizer_class_name, too")
        for first in (*(listener.port for listener in self.endpoints), self.legacy_port):
            last = (first or 0) + self.workers - 1
            if last > LAST_PORT:
                raise ValueError(f"{self.workers} workers from port {first} on would need port {last}")
        last = self.redis_port + self.shards - 1
        if last > LAST_PORT:
            raise ValueError(f"{self.shards} shards from redis_port {self.redis_port} on would need port {last}")
        return self

    @model_validator(mode="after")
    def _disks_are_synced(self) -> Self:
        if self.copies_on_disk and self.redis is None and self.fsync != "always":
            raise ValueError(f'copies_on_disk needs fsync = "always" of the embedded Valkey, not "{self.fsync}"')
        return self

    @model_validator(mode="after")
    def _legacy_fits(self) -> Self:
        if self.zookeeper is not None and self.legacy_port is None:
            raise ValueError("zookeeper is for clients of Kafka 0.7: legacy_port should say where they connect")
        host = self.announced({})[0].host
        if self.zookeeper is not None and ":" in host:
            raise ValueError(
                f"advertised_host should be a name or an IPv4 address where zookeeper is set, not {host!r}: clients of"
                " Kafka 0.7 take what stands between two colons for the host"
            )
        if self.legacy_port and not (self.legacy_allow_plaintext or listening.loopback(self.legacy_address)):
            raise ValueError(
                f"legacy_port on {self.legacy_address} would let other machines read and write everything: the protocol"
                " of Kafka 0.7 has neither TLS nor passwords; legacy_allow_plaintext says that this is meant,"
                " legacy_host = 127.0.0.1 keeps it on this machine"
            )
        return self

    @model_validator(mode="after")
    def _console_is_guarded(self) -> Self:
        if not self.console:
            if self.console_write:
                raise ValueError("console_write is for the console: set console, too")
            return self
        if self.http_port is None:
            raise ValueError("console needs http_port, the port that its pages are on")
        if self.http_token_file is not None or self.has_passwords:
            return self
        if not listening.loopback(self.http_host):
            raise ValueError(
                f"console on {self.http_host} would show other machines every record: http_token_file says what they"
                " have to know, http_host = 127.0.0.1 keeps it on this machine"
            )
        if self.authenticates:
            raise ValueError(
                "console would show every record to every user of this machine, while Kafka's clients have to say who"
                " they are: http_token_file says what its users have to know, console = false does without it"
            )
        return self

    @model_validator(mode="after")
    def _ports_are_apart(self) -> Self:
        taken = [("port" if self.listeners is None else each.name, each.port) for each in self.endpoints]
        if self.legacy_port:
            taken.insert(0, ("legacy_port", self.legacy_port))
        for n, (name, port) in enumerate(taken):
            for other, near in taken[n + 1 :]:
                if port and near and abs(port - near) < self.workers and (self.workers > 1 or name == "legacy_port"):
                    raise ValueError(
                        f"{name} = {port} should be at least {self.workers} away from {other} = {near}:"
                        " each worker has its own of both"
                    )
        return self


def _checked(name: str, key: str, value: Any) -> Any:
    """A setting's value in a listener's table, as its type; ValueError where it may not be there or have the value."""
    if key not in Settings.model_fields or not key.startswith(_PER_LISTENER):
        raise ValueError(f"{key} in [listener.{name}] is no setting of a listener, which begin with ssl_ and sasl_")
    field = Settings.model_fields[key]
    try:
        kind: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        raise ValueError(not_allowed(key, field, {**details, "input": value}, f" in [listener.{name}]")) from None
