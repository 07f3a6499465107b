"""Requests: how many, and where their time went. kafka.network:type=RequestMetrics."""

from __future__ import annotations

from functools import cache

from ketch.metrics.histogram import Times
from ketch.metrics.records import append_latency
from ketch.metrics.tally import Histograms, Tally

requests = Tally("ketch_requests", "Requests answered", "request")
lane_taken = Tally("ketch_lane_requests", "Those of ketch_requests that were taken without Python", "request")
lane_taken_back = Tally("ketch_lane_requests_taken_back", "Those of them whose answer Python made", "request")
slow = Tally("ketch_slow_requests", "Those that took more than slow_request_ms, but for waits", "request")

_total = Histograms("ketch_request_total_time_seconds", "From its last byte to its response's last byte", "request")
_queue = Histograms("ketch_request_queue_time_seconds", "Received, and behind others of its connection", "request")
_redis = Histograms("ketch_request_redis_time_seconds", "Being handled, mostly by Redis", "request")
_wait = Histograms("ketch_request_wait_time_seconds", "Waiting for records or members, where it did", "request")
_send = Histograms("ketch_request_send_time_seconds", "Answered, and not written yet", "request")


@cache
def times(name: str) -> Times:
    """The histograms of an API by its name in metrics."""
    parts = _total.of(name), _queue.of(name), _redis.of(name), _wait.of(name), _send.of(name)
    return Times(*parts, latencies=append_latency)


def requested(name: str) -> None:
    """A request was answered."""
    requests.counts[name] += 1
