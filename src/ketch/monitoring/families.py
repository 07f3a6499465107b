"""A reading (`monitoring.reading`) as Prometheus's families. INFO's values are named as redis_exporter names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ketch.metrics.tally import OTHER
from ketch.monitoring.reading import Reader, Reading, Sources
from ketch.views.figures import PartitionFigures
from ketch.views.groups import GroupPartition
from ketch.views.nodes import RedisNode

T = TypeVar("T")


class Sized(Protocol):
    """Partitions with a size: one, or several summed."""

    @property
    def entries(self) -> int: ...
    @property
    def bytes(self) -> int: ...


class _Row(NamedTuple, Generic[T]):
    """A metric: its name, what it says, and its value for one thing, None where there is none."""

    name: str
    text: str
    value: Callable[[T], float | None]


_PARTITIONS: tuple[_Row[PartitionFigures], ...] = (
    _Row("ketch_partition_log_start_offset", "First offset in Redis", lambda p: p.start),
    _Row("ketch_partition_log_end_offset", "Offset after the last record", lambda p: p.end),
    _Row("ketch_partition_archived_offset", "Offset up to which it is archived", lambda p: p.through),
    _Row("ketch_partition_archive_lag_records", "Records not archived yet, about", lambda p: p.waiting),
)
_SIZES: tuple[_Row[Sized], ...] = (
    _Row("ketch_partition_entries", "Entries of the stream", lambda p: p.entries),
    _Row("ketch_partition_size_bytes", "Redis's memory that it takes, about", lambda p: p.bytes),
)
_GROUPS: tuple[_Row[GroupPartition], ...] = (
    _Row("ketch_group_committed_offset", "Committed offset", lambda p: p.committed),
    _Row("ketch_group_lag_records", "Records from the committed offset on", lambda p: p.lag),
    _Row(
        "ketch_group_lag_seconds",
        "Age of the first of them, by its timestamp; 0 without lag",
        lambda p: None if p.lag is None else 0 if not p.lag else p.age,
    ),
    _Row("ketch_group_pending_deliveries", "Deliveries not acknowledged (XPENDING)", lambda p: p.pending),
)
_NODES: tuple[_Row[RedisNode], ...] = (
    _Row("ketch_redis_uptime_in_seconds", "Since its start", lambda n: n.uptime),
    _Row("ketch_redis_loading_dump_file", "1 while it reads its data", lambda n: n.loading),
    _Row("ketch_redis_memory_used_bytes", "Memory in use", lambda n: n.memory),
    _Row("ketch_redis_memory_max_bytes", "maxmemory; 0 for no limit", lambda n: n.memory_max),
    _Row("ketch_redis_memory_used_rss_bytes", "Memory of the process", lambda n: n.memory_rss),
    _Row("ketch_redis_memory_used_peak_bytes", "Memory in use at most", lambda n: n.memory_peak),
    _Row("ketch_redis_aof_enabled", "1 with an append-only file", lambda n: n.appendonly),
    _Row("ketch_redis_aof_last_write_status", "1 if the last write to it worked", lambda n: n.append_ok),
    _Row("ketch_redis_aof_current_size_bytes", "Size of it", lambda n: n.append_bytes),
    _Row("ketch_redis_rdb_last_save_timestamp_seconds", "Last snapshot", lambda n: n.saved),
    _Row("ketch_redis_rdb_last_bgsave_status", "1 if it worked", lambda n: n.save_ok),
    _Row("ketch_redis_rdb_changes_since_last_save", "Changes since then", lambda n: n.changes),
    _Row("ketch_redis_connected_clients", "Connections", lambda n: n.clients),
    _Row("ketch_redis_blocked_clients", "Those that wait in a command", lambda n: n.blocked),
    _Row("ketch_redis_connected_replicas", "Replicas that are connected", lambda n: n.following.connected),
    _Row("ketch_redis_replicas_in_sync", "Those that are in sync", lambda n: n.following.in_sync),
    _Row("ketch_redis_replication_lag_bytes", "How far the last one is behind", lambda n: n.following.behind),
    _Row("ketch_redis_instantaneous_ops_per_sec", "Commands per second", lambda n: n.commands_per_second),
    _Row("ketch_redis_keys", "Keys in all databases", lambda n: n.keys),
)
_NODE_COUNTERS: tuple[_Row[RedisNode], ...] = (
    _Row("ketch_redis_commands_processed", "Commands", lambda n: n.done.commands),
    _Row("ketch_redis_connections_received", "Connections made", lambda n: n.done.connections),
    _Row("ketch_redis_rejected_connections", "Connections refused (maxclients)", lambda n: n.done.rejected),
    _Row("ketch_redis_net_input_bytes", "Bytes received", lambda n: n.done.bytes_in),
    _Row("ketch_redis_net_output_bytes", "Bytes sent", lambda n: n.done.bytes_out),
    _Row("ketch_redis_evicted_keys", "Keys thrown away for want of memory", lambda n: n.done.evicted),
    _Row("ketch_redis_expired_keys", "Keys that have expired", lambda n: n.done.expired),
    _Row("ketch_redis_keyspace_hits", "Keys that were found", lambda n: n.done.hits),
    _Row("ketch_redis_keyspace_misses", "Keys that were not", lambda n: n.done.misses),
    _Row("ketch_redis_cpu_seconds", "CPU, user and system", lambda n: n.done.cpu),
)


class SharedMetrics(Collector):
    """The last reading, in prometheus_client's registry while the HTTP port is open.

    Args:
        sources: what is read.
        brokers: how many live.
    """

    def __init__(self, sources: Sources, brokers: Callable[[], int]) -> None:
        self._reader, self._brokers = Reader(sources), brokers

    async def refresh(self) -> None:
        """Reads, unless that was done just now; see `Reader.refresh`."""
        await self._reader.refresh()

    def open(self) -> None:
        """Adds it to the registry."""
        REGISTRY.register(self)

    def close(self) -> None:
        """Takes it away, and reads no more."""
        self._reader.stop()
        REGISTRY.unregister(self)

    def describe(self) -> Iterator[Metric]:
        return self._families(Reading())

    def collect(self) -> Iterator[Metric]:
        found = self._reader.last
        return iter(()) if found is None else self._families(found)

    def _families(self, of: Reading) -> Iterator[Metric]:
        yield GaugeMetricFamily("ketch_brokers", "Live brokers as this one sees them", value=self._brokers())
        yield from _about(of)
        yield from _partitions(of)
        yield from _groups(of)
        yield from _nodes(of)


def _about(of: Reading) -> Iterator[Metric]:
    taken, at = "ketch_metrics_reading_seconds", "ketch_metrics_reading_timestamp_seconds"
    yield GaugeMetricFamily(taken, "How long the last reading took", value=of.seconds)
    yield GaugeMetricFamily(at, "When it began", value=of.began)
    left_out = GaugeMetricFamily("ketch_metrics_left_out", "What has no series of its own", labels=["what"])
    left_out.add_metric(["partitions"], of.others.partitions)
    left_out.add_metric(["groups"], of.groups_left_out)
    left_out.add_metric(["group_partitions"], of.group_partitions_left_out)
    yield left_out
    yield GaugeMetricFamily("ketch_topics", "Topics of all brokers", value=of.topics)
    led, under, under_min = of.held
    yield GaugeMetricFamily("ketch_partitions_led", "Partitions that this broker leads", value=led)
    text = "Those of them with a replica that is not in sync"
    yield GaugeMetricFamily("ketch_under_replicated_partitions", text, value=under)
    text = "Those of them with fewer copies than min.insync.replicas"
    yield GaugeMetricFamily("ketch_under_min_isr_partitions", text, value=under_min)


def _partitions(of: Reading) -> Iterator[Metric]:
    labels = ["topic", "partition"]
    for name, text, value in _PARTITIONS:
        family = GaugeMetricFamily(name, text, labels=labels)
        for each in of.partitions:
            _add(family, [each.topic, str(each.partition)], value(each))
        yield family
    for name, text, size in _SIZES:
        family = GaugeMetricFamily(name, text, labels=labels)
        for each in of.partitions:
            _add(family, [each.topic, str(each.partition)], size(each))
        if of.others.partitions:
            _add(family, [OTHER, ""], size(of.others))
        yield family
    text = "When the archive job has announced something last"
    updated = GaugeMetricFamily("ketch_archive_updated_timestamp_seconds", text, labels=["topic"])
    for topic, ms in of.archived.items():
        updated.add_metric([topic], ms / 1000)
    yield updated


def _groups(of: Reading) -> Iterator[Metric]:
    for name, text, value in _GROUPS:
        family = GaugeMetricFamily(name, text, labels=["group", "topic", "partition"])
        for group in of.groups:
            for each in group.partitions:
                _add(family, [group.name, each.topic, str(each.partition)], value(each))
        yield family
    members = GaugeMetricFamily("ketch_group_members", "Members", labels=["group"])
    for group in of.groups:
        members.add_metric([group.name], len(group.members))
    yield members
    states = GaugeMetricFamily("ketch_groups", "Groups that this broker coordinates and shows", labels=["state"])
    for state, count in of.states.items():
        states.add_metric([state], count)
    yield states


def _nodes(of: Reading) -> Iterator[Metric]:
    up = GaugeMetricFamily("ketch_redis_up", "1 if it answers", labels=["node"])
    info = GaugeMetricFamily("ketch_redis_instance_info", "Kind, version and role", labels=["node", "version", "role"])
    for name, node in of.nodes.items():
        up.add_metric([name], node is not None)
        if node is not None:
            info.add_metric([name, node.version, node.role], 1)
    yield from (up, info)
    for kind, table in ((GaugeMetricFamily, _NODES), (CounterMetricFamily, _NODE_COUNTERS)):
        for metric, text, value in table:
            family = kind(metric, text, labels=["node"])
            for name, node in of.nodes.items():
                if node is not None:
                    _add(family, [name], value(node))
            yield family


def _add(family: GaugeMetricFamily | CounterMetricFamily, labels: list[str], value: float | None) -> None:
    if value is not None:
        family.add_metric(labels, value)
