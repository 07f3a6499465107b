"""Requests: how many, and where their time went. kafka.network:type=RequestMetrics."""

from __future__ import annotations

from bisect import bisect_left
from functools import cache

from ketch.metrics.tally import LATENCY, Histograms, Tally

requests = Tally("ketch_requests", "Requests answered", "request")
lane_taken = Tally("ketch_lane_requests", "Those of ketch_requests that were taken without Python", "request")
lane_taken_back = Tally("ketch_lane_requests_taken_back", "Those of them whose answer Python made", "request")
slow = Tally("ketch_slow_requests", "Those that took more than slow_request_ms, but for waits", "request")

_total = Histograms("ketch_request_total_time_seconds", "From its last byte to its response's last byte", "request")
_queue = Histograms("ketch_request_queue_time_seconds", "Received, and behind others of its connection", "request")
_redis = Histograms("ketch_request_redis_time_seconds", "Being handled, mostly by Redis", "request")
_wait = Histograms("ketch_request_wait_time_seconds", "Waiting for records or members, where it did", "request")
_send = Histograms("ketch_request_send_time_seconds", "Answered, and not written yet", "request")


class Times:
    """The histograms of one API."""

    __slots__ = ("queue", "redis", "send", "total", "wait")

    def __init__(self, name: str) -> None:
        self.total, self.queue, self.redis = _total.of(name), _queue.of(name), _redis.of(name)
        self.wait, self.send = _wait.of(name), _send.of(name)

    def add(self, total: float, queue: float, redis: float, wait: float, send: float) -> None:
        """A request took so long, in seconds: in all, and the parts.

        As `Histogram.observe` of each, written out: every request comes here, and four calls take as long again.
        """
        for_total, for_queue, for_redis, for_send = self.total, self.queue, self.redis, self.send
        for_total.counts[bisect_left(LATENCY, total)] += 1
        for_total.total[0] += total
        for_queue.counts[bisect_left(LATENCY, queue)] += 1
        for_queue.total[0] += queue
        for_redis.counts[bisect_left(LATENCY, redis)] += 1
        for_redis.total[0] += redis
        for_send.counts[bisect_left(LATENCY, send)] += 1
        for_send.total[0] += send
        if wait:
            self.wait.observe(wait)


@cache
def times(name: str) -> Times:
    """The histograms of an API by its name in metrics."""
    return Times(name)


def requested(name: str) -> None:
    """A request was answered."""
    requests.counts[name] += 1
