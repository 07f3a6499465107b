"""Counters, gauges and histograms for Prometheus, named as Kafka users would look for them (docs/metrics.md). Served on
`--http-port`. A module per concern; `tally` has what they are made of.
"""

from prometheus_client import disable_created_metrics

from ketch.metrics.cleaner import cleaner_looked, compacted
from ketch.metrics.clients import (
    authenticated,
    bad_requests,
    connections,
    connections_refused,
    legacy_connections,
    legacy_errors,
    legacy_invalid,
    legacy_registered,
    queued_bytes,
    session_expired,
)
from ketch.metrics.groups import committed, delivered, rebalanced, transaction_ended
from ketch.metrics.histogram import Times
from ketch.metrics.process import running, watch_loop
from ketch.metrics.records import (
    append_latency,
    appends_refused,
    bytes_in,
    bytes_out,
    fetched,
    limit_topics,
    messages_in,
    produced,
    remote_fetched,
    topics,
    writes_refused,
)
from ketch.metrics.timing import lane_taken, lane_taken_back, requested, requests, slow, times

__all__ = [
    "Times",
    "append_latency",
    "appends_refused",
    "authenticated",
    "bad_requests",
    "bytes_in",
    "bytes_out",
    "cleaner_looked",
    "committed",
    "compacted",
    "connections",
    "connections_refused",
    "delivered",
    "fetched",
    "lane_taken",
    "lane_taken_back",
    "legacy_connections",
    "legacy_errors",
    "legacy_invalid",
    "legacy_registered",
    "limit_topics",
    "messages_in",
    "produced",
    "queued_bytes",
    "rebalanced",
    "remote_fetched",
    "requested",
    "requests",
    "running",
    "session_expired",
    "slow",
    "times",
    "topics",
    "transaction_ended",
    "watch_loop",
    "writes_refused",
]

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter
