"""Counters and gauges for Prometheus, named as Kafka users would look for them. Served on `--http-port`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from prometheus_client import REGISTRY, Counter, Gauge, disable_created_metrics
from prometheus_client.core import CounterMetricFamily

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter


class _Tally:
    """A counter by one label for what every request counts: Counter, with its lock, takes five times as long."""

    def __init__(self, name: str, documentation: str, label: str) -> None:
        self._name, self._documentation, self._label = name, documentation, label
        self.counts: defaultdict[str, int] = defaultdict(int)
        REGISTRY.register(self)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """For prometheus_client."""
        family = CounterMetricFamily(self._name, self._documentation, labels=[self._label])
        for value, count in self.counts.copy().items():
            family.add_metric([value], count)
        yield family


messages_in = _Tally("ketch_messages_in", "Records produced", "topic")
bytes_in = _Tally("ketch_bytes_in", "Bytes of record batches produced", "topic")
_bytes_out = _Tally("ketch_bytes_out", "Bytes of record batches fetched", "topic")
# RemoteFetchRequestsPerSec, RemoteFetchBytesPerSec and RemoteFetchErrorsPerSec of KIP-405.
_remote_requests = Counter("ketch_remote_fetch_requests", "Reads of the archive for fetches", ["topic"])
_remote_bytes = Counter("ketch_remote_fetch_bytes", "Bytes of record batches fetched from the archive", ["topic"])
_remote_errors = Counter("ketch_remote_fetch_errors", "Reads of the archive that failed", ["topic"])
requests = _Tally("ketch_requests", "Requests answered", "request")
lane_taken = _Tally("ketch_lane_requests", "Those of ketch_requests that were taken without Python", "request")
lane_taken_back = _Tally("ketch_lane_requests_taken_back", "Those of them whose answer Python made", "request")

_commits = Counter("ketch_group_commits", "Offsets committed", ["group", "topic"])
_transactions = Counter("ketch_transactions", "Transactions that this broker has finished", ["result"])
_rebalances = Counter("ketch_group_rebalances", "Generations begun", ["group"])
_deliveries = Counter(
    "ketch_group_deliveries",
    "Records given to members; tracked ones are in XPENDING until they are committed (group_pending_max)",
    ["group", "topic", "tracked"],
)

# kafka.log:type=LogCleaner and LogCleanerManager.
_compactions = Counter("ketch_log_cleaner_runs", "Compactions of a partition", ["topic"])
_compacted = Counter("ketch_log_cleaner_records_removed", "Records that compaction removed", ["topic"])
_recopied = Gauge("ketch_log_cleaner_recopy_percent", "Records of the last compaction that stayed")
_clean_time = Gauge("ketch_log_cleaner_max_clean_time_seconds", "Longest compaction since the start")
_table_used = Gauge("ketch_log_cleaner_max_buffer_utilization_percent", "Fullest log_cleaner_dedupe_buffer_size so far")
_dirty = Gauge("ketch_log_cleaner_max_dirty_percent", "Dirtiest compacted partition at the last look")
_uncleanable = Gauge("ketch_log_cleaner_uncleanable_partitions", "Partitions whose compaction failed at the last look")
_looked = Gauge("ketch_log_cleaner_last_run_timestamp_seconds", "When was last looked for what to compact")

connections = Gauge("ketch_connections", "Open client connections")
connections_refused = Counter("ketch_connections_refused", "Connections closed because of max_connections")
bad_requests = Counter("ketch_bad_requests", "Connections closed because of what they sent")
appends_refused = Counter("ketch_appends_refused", "Batches sent again because another writer came in between")
writes_refused = Counter("ketch_writes_refused", "Requests refused because Redis takes no writes (maxmemory)")
# kafka.server:type=socket-server-metrics. What fails before a mechanism is agreed upon counts as "(other)",
# a TLS handshake that fails as "(TLS)".
_authentications = {
    (again, failed): Counter(f"ketch_{result}_{what}", f"{text} by SASL", ["listener", "mechanism"])
    for again, failed, result, what, text in (
        (False, False, "successful", "authentication", "Logins"),
        (False, True, "failed", "authentication", "Logins that failed"),
        (True, False, "successful", "reauthentication", "Re-authentications"),
        (True, True, "failed", "reauthentication", "Re-authentications that failed"),
    )
}
_expired_connections = Counter(
    "ketch_expired_connections_killed", "Connections closed as their session had ended", ["listener"]
)
queued_bytes = Gauge("ketch_queued_request_bytes", "Bytes of requests received and not yet answered")

# The 0.7 listener (legacy07); without it these stay 0.
legacy_connections = Gauge("ketch_legacy_connections", "Open connections of Kafka 0.7 clients")
legacy_invalid = Counter("ketch_legacy_invalid_messages", "Kafka 0.7 produces with a flaw", ["flaw"])
legacy_errors = Counter("ketch_legacy_errors", "Kafka 0.7 requests that failed, by error code", ["error"])
legacy_registered = Gauge("ketch_legacy_registered", "1 while ZooKeeper has this broker")


def produced(topic: str, records: int, size: int) -> None:
    """A batch was taken in."""
    messages_in.counts[topic] += records
    bytes_in.counts[topic] += size


def fetched(topic: str, size: int) -> None:
    """Batches were sent out."""
    _bytes_out.counts[topic] += size


@cache
def _remote(topic: str) -> tuple[Counter, Counter, Counter]:
    return _remote_requests.labels(topic), _remote_bytes.labels(topic), _remote_errors.labels(topic)


def remote_fetched(topic: str, size: int | None) -> None:
    """The archive was read for a fetch; `size` is None where that failed."""
    requests, total, errors = _remote(topic)
    requests.inc()
    if size is None:
        errors.inc()
    else:
        total.inc(size)


_longest = _fullest = 0.0


def compacted(topic: str, before: int, after: int, seconds: float, used: float) -> None:
    """A partition was compacted.

    Args:
        before, after: its records.
        used: which part of the memory for keys was needed.
    """
    global _longest, _fullest
    _longest, _fullest = max(_longest, seconds), max(_fullest, used)
    _compactions.labels(topic).inc()
    _compacted.labels(topic).inc(before - after)
    _recopied.set(100 * after / before if before else 0)
    _clean_time.set(_longest)
    _table_used.set(100 * _fullest)


def cleaner_looked(dirtiest: float, failed: int) -> None:
    """All partitions were looked at."""
    _dirty.set(100 * dirtiest)
    _uncleanable.set(failed)
    _looked.set_to_current_time()


class _Bounded:
    """The children of a counter whose labels are the clients' to choose: so many, and one for all others."""

    _MOST = 1_000

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._children: dict[tuple[str, ...], Counter] = {}

    def __call__(self, *labels: str) -> Counter:
        child = self._children.get(labels)
        if child is None:
            known = labels if len(self._children) < self._MOST else ("(other)",) * len(labels)
            child = self._children[known] = self._counter.labels(*known)
        return child


_commit, _rebalance, _delivery = _Bounded(_commits), _Bounded(_rebalances), _Bounded(_deliveries)


def committed(group: str, topic: str, partitions: int) -> None:
    """Offsets of so many partitions were committed."""
    _commit(group, topic).inc(partitions)


def transaction_ended(commit: bool) -> None:
    """All markers of a transaction are written."""
    _transactions.labels("commit" if commit else "abort").inc()


def rebalanced(group: str) -> None:
    """A generation has begun."""
    _rebalance(group).inc()


def delivered(group: str, topic: str, records: int, tracked: bool) -> None:
    """A member was given records."""
    _delivery(group, topic, "yes" if tracked else "no").inc(records)


def authenticated(listener: str, mechanism: str, again: bool, failed: bool) -> None:
    """A client has authenticated by SASL, or has failed to; `again` on a connection where it had done so before."""
    _authentications[again, failed].labels(listener, mechanism).inc()


def session_expired(listener: str) -> None:
    """A connection is closed because its client did not authenticate again in time."""
    _expired_connections.labels(listener).inc()


def requested(name: str) -> None:
    """A request was answered."""
    requests.counts[name] += 1
