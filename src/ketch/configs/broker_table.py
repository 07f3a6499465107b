"""The table of broker configs: Kafka's names for Ketch's settings, which of them change at run time, and their types.

Three kinds: a setting under Kafka's name; the default of a topic config under its broker-wide name (`message.max.bytes`
is `max.message.bytes` of topics that do not set it); and every other setting as `ketch.<setting>`. No I/O:
`broker.dynamic` keeps the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import get_args

from ketch.configs.key import LONG_MAX, ConfigKey, ConfigType
from ketch.configs.settings import SIMPLE_FORM, Settings
from ketch.configs.topic_table import CONFIGS


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """One broker config.

    Attributes:
        key: its type, range, default and documentation.
        dynamic: it can change while brokers run (AlterConfigs).
        topic: the topic config whose default it is; "" for none.
    """

    key: ConfigKey
    dynamic: bool = False
    topic: str = ""

    @property
    def name(self) -> str:
        return self.key.name

    def static(self, settings: Settings) -> str | None:
        """Its value by the settings that the broker was started with."""
        if not self.key.setting:
            return self.key.constant
        value = getattr(settings, self.key.setting)
        return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    def default(self) -> str | None:
        """Its value where nobody gives one."""
        return self.static(_UNSET)


_UNSET = Settings.model_construct()  # each setting has its default

_KAFKA: dict[str, tuple[str, ConfigType]] = {
    "node.id": ("node_id", "int"),
    "broker.id": ("node_id", "int"),
    "authorizer.class.name": ("authorizer_class_name", "string"),
    "super.users": ("super_users", "string"),
    "allow.everyone.if.no.acl.found": ("allow_everyone_if_no_acl_found", "boolean"),
    "auto.create.topics.enable": ("auto_create_topics", "boolean"),
    "num.partitions": ("default_partitions", "int"),
    "socket.request.max.bytes": ("socket_request_max_bytes", "int"),
    "queued.max.request.bytes": ("queued_max_bytes", "long"),
    "connections.max.idle.ms": ("connections_max_idle_ms", "long"),
    "sasl.enabled.mechanisms": ("sasl_enabled_mechanisms", "list"),
    "sasl.oauthbearer.jwks.endpoint.url": ("sasl_oauthbearer_jwks_endpoint_url", "string"),
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": ("sasl_oauthbearer_jwks_endpoint_refresh_ms", "long"),
    "sasl.oauthbearer.expected.issuer": ("sasl_oauthbearer_expected_issuer", "string"),
    "sasl.oauthbearer.expected.audience": ("sasl_oauthbearer_expected_audience", "list"),
    "sasl.oauthbearer.clock.skew.seconds": ("sasl_oauthbearer_clock_skew_seconds", "int"),
    "sasl.oauthbearer.scope.claim.name": ("sasl_oauthbearer_scope_claim_name", "string"),
    "sasl.oauthbearer.sub.claim.name": ("sasl_oauthbearer_sub_claim_name", "string"),
    "sasl.server.max.receive.size": ("sasl_server_max_receive_size", "int"),
    "connection.failed.authentication.delay.ms": ("connection_failed_authentication_delay_ms", "int"),
    "connections.max.reauth.ms": ("connections_max_reauth_ms", "long"),
    "fetch.max.bytes": ("fetch_max_bytes", "int"),
    "log.retention.check.interval.ms": ("retention_check_interval_ms", "long"),
    "quota.window.num": ("quota_window_num", "int"),
    "quota.window.size.seconds": ("quota_window_size_seconds", "int"),
    "log.cleaner.enable": ("log_cleaner_enable", "boolean"),
    "log.cleaner.backoff.ms": ("log_cleaner_backoff_ms", "long"),
    "log.cleaner.dedupe.buffer.size": ("log_cleaner_dedupe_buffer_size", "long"),
    "log.cleaner.io.max.bytes.per.second": ("log_cleaner_io_max_bytes_per_second", "long"),
    "max.incremental.fetch.session.cache.slots": ("max_incremental_fetch_session_cache_slots", "int"),
    "broker.heartbeat.interval.ms": ("broker_heartbeat_interval_ms", "int"),
    "broker.session.timeout.ms": ("broker_session_timeout_ms", "int"),
    "group.min.session.timeout.ms": ("group_min_session_timeout_ms", "int"),
    "group.max.session.timeout.ms": ("group_max_session_timeout_ms", "int"),
    "group.initial.rebalance.delay.ms": ("group_initial_rebalance_delay_ms", "int"),
    "group.max.size": ("group_max_size", "int"),
    "group.consumer.session.timeout.ms": ("group_consumer_session_timeout_ms", "int"),
    "group.consumer.min.session.timeout.ms": ("group_consumer_min_session_timeout_ms", "int"),
    "group.consumer.max.session.timeout.ms": ("group_consumer_max_session_timeout_ms", "int"),
    "group.consumer.heartbeat.interval.ms": ("group_consumer_heartbeat_interval_ms", "int"),
    "group.consumer.min.heartbeat.interval.ms": ("group_consumer_min_heartbeat_interval_ms", "int"),
    "group.consumer.max.heartbeat.interval.ms": ("group_consumer_max_heartbeat_interval_ms", "int"),
    "group.consumer.max.size": ("group_consumer_max_size", "int"),
    "group.consumer.assignors": ("group_consumer_assignors", "list"),
    "group.consumer.migration.policy": ("group_consumer_migration_policy", "string"),
    "group.share.session.timeout.ms": ("group_share_session_timeout_ms", "int"),
    "group.share.min.session.timeout.ms": ("group_share_min_session_timeout_ms", "int"),
    "group.share.max.session.timeout.ms": ("group_share_max_session_timeout_ms", "int"),
    "group.share.heartbeat.interval.ms": ("group_share_heartbeat_interval_ms", "int"),
    "group.share.min.heartbeat.interval.ms": ("group_share_min_heartbeat_interval_ms", "int"),
    "group.share.max.heartbeat.interval.ms": ("group_share_max_heartbeat_interval_ms", "int"),
    "group.share.max.size": ("group_share_max_size", "int"),
    "group.share.record.lock.duration.ms": ("group_share_record_lock_duration_ms", "int"),
    "group.share.min.record.lock.duration.ms": ("group_share_min_record_lock_duration_ms", "int"),
    "group.share.max.record.lock.duration.ms": ("group_share_max_record_lock_duration_ms", "int"),
    "group.share.delivery.count.limit": ("group_share_delivery_count_limit", "int"),
    "group.share.partition.max.record.locks": ("group_share_partition_max_record_locks", "int"),
    "group.share.max.share.sessions": ("group_share_max_share_sessions", "int"),
    "transaction.max.timeout.ms": ("transaction_max_timeout_ms", "int"),
    "transactional.id.expiration.ms": ("transactional_id_expiration_ms", "int"),
    "offset.metadata.max.bytes": ("offset_metadata_max_bytes", "int"),
    "offsets.retention.minutes": ("offsets_retention_minutes", "int"),
    "listener.security.protocol.map": ("listener_security_protocol_map", "string"),
    "ssl.keystore.type": ("ssl_keystore_type", "string"),
    "ssl.keystore.location": ("ssl_keystore_location", "string"),
    "ssl.keystore.certificate.chain": ("ssl_keystore_certificate_chain", "password"),
    "ssl.keystore.key": ("ssl_keystore_key", "password"),
    "ssl.key.password": ("ssl_key_password", "password"),
    "ssl.truststore.type": ("ssl_truststore_type", "string"),
    "ssl.truststore.location": ("ssl_truststore_location", "string"),
    "ssl.truststore.certificates": ("ssl_truststore_certificates", "password"),
    "ssl.client.auth": ("ssl_client_auth", "string"),
    "ssl.enabled.protocols": ("ssl_enabled_protocols", "list"),
    "ssl.cipher.suites": ("ssl_cipher_suites", "list"),
    "ssl.principal.mapping.rules": ("ssl_principal_mapping_rules", "string"),
}
# Shown under other names: as listeners, as facts of the broker (`broker.configs`), or not at all for their secrets.
_ELSEWHERE = {*SIMPLE_FORM, "listeners", "advertised_listeners", "listener", "redis", "keyspace"}
_THROTTLE = "Bytes a second for replicas."


def _documentation(setting: str) -> str:
    return Settings.model_fields[setting].description or ""


def _of_setting(name: str, setting: str, kind: ConfigType, low: int | None = None) -> ConfigKey:
    return ConfigKey(name, kind, _documentation(setting), setting=setting, low=low)


def _own_kind(setting: str) -> ConfigType:
    annotation = Settings.model_fields[setting].annotation
    kinds = {annotation, *get_args(annotation)}
    return "boolean" if bool in kinds else "long" if int in kinds else "string"


def _all() -> list[BrokerConfig]:
    found = [BrokerConfig(_of_setting(name, setting, kind)) for name, (setting, kind) in _KAFKA.items()]
    found += [
        BrokerConfig(_of_setting("max.connections", "max_connections", "int", 1), dynamic=True),
        BrokerConfig(_of_setting("producer.id.expiration.ms", "producer_id_expiration_ms", "long", 1), dynamic=True),
        BrokerConfig(ConfigKey("delete.topic.enable", "boolean", "Topics can be deleted.", "true")),
        BrokerConfig(ConfigKey("default.replication.factor", "int", "Redis replicates.", "1")),
        BrokerConfig(ConfigKey("group.share.assignors", "list", "The assignor of share groups.", "simple")),
        BrokerConfig(ConfigKey("process.roles", "list", "There are no controllers.", "broker")),
    ]
    found += [
        BrokerConfig(ConfigKey(name, "long", _THROTTLE, str(LONG_MAX), low=0, idle="Redis replicates"), dynamic=True)
        for name in ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    ]
    found += [
        BrokerConfig(replace(config, name=config.synonym, field=""), dynamic=True, topic=config.name)
        for config in CONFIGS.values()
        if config.synonym
    ]
    named = {config.key.setting for config in found} | _ELSEWHERE
    found += [
        BrokerConfig(_of_setting(f"ketch.{setting.replace('_', '.')}", setting, _own_kind(setting)))
        for setting in Settings.model_fields
        if setting not in named
    ]
    return found


def of_listener(listener: str, setting: str, value: object) -> BrokerConfig:
    """What a listener's table sets, by Kafka's name: listener.name.internal.ssl.client.auth."""
    known = next((config for config in BROKER_CONFIGS.values() if config.key.setting == setting), None)
    name = f"listener.name.{listener.lower()}.{known.name if known else setting.replace('_', '.')}"
    kind: ConfigType = known.key.type if known else "string"
    return BrokerConfig(ConfigKey(name, kind, _documentation(setting), str(value)))


BROKER_CONFIGS: Mapping[str, BrokerConfig] = {config.name: config for config in _all()}
