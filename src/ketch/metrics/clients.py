"""Connections of clients: how many, why they were closed, and who logged in."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

connections = Gauge("ketch_connections", "Open client connections")
connections_refused = Counter("ketch_connections_refused", "Connections closed because of max_connections")
bad_requests = Counter("ketch_bad_requests", "Connections closed because of what they sent")
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


def authenticated(listener: str, mechanism: str, again: bool, failed: bool) -> None:
    """A client has authenticated by SASL, or has failed to; `again` on a connection where it had done so before."""
    _authentications[again, failed].labels(listener, mechanism).inc()


def session_expired(listener: str) -> None:
    """A connection is closed because its client did not authenticate again in time."""
    _expired_connections.labels(listener).inc()
