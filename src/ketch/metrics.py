"""Counters and gauges for Prometheus, named as Kafka users would look for them. Served on `--http-port`."""

from __future__ import annotations

from functools import cache

from prometheus_client import Counter, Gauge

_messages_in = Counter("ketch_messages_in", "Records produced", ["topic"])
_bytes_in = Counter("ketch_bytes_in", "Bytes of record batches produced", ["topic"])
_bytes_out = Counter("ketch_bytes_out", "Bytes of record batches fetched", ["topic"])
_requests = Counter("ketch_requests", "Requests answered", ["request"])

connections = Gauge("ketch_connections", "Open client connections")
connections_refused = Counter("ketch_connections_refused", "Connections closed because of max.connections")
bad_requests = Counter("ketch_bad_requests", "Connections closed because of what they sent")
appends_refused = Counter("ketch_appends_refused", "Batches sent again because another writer came in between")
queued_bytes = Gauge("ketch_queued_request_bytes", "Bytes of requests received and not yet answered")


@cache
def _produce(topic: str) -> tuple[Counter, Counter]:
    return _messages_in.labels(topic), _bytes_in.labels(topic)


def produced(topic: str, records: int, size: int) -> None:
    """A batch was taken in."""
    messages, total = _produce(topic)
    messages.inc(records)
    total.inc(size)


@cache
def _fetch(topic: str) -> Counter:
    return _bytes_out.labels(topic)


def fetched(topic: str, size: int) -> None:
    """Batches were sent out."""
    _fetch(topic).inc(size)


@cache
def _request(name: str) -> Counter:
    return _requests.labels(name)


def requested(name: str) -> None:
    """A request was answered."""
    _request(name).inc()
