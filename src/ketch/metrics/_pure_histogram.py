"""The plain-Python twin of the kernel of histograms."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol


class _Request(Protocol):
    received: float
    begun: float
    waited: float


class Histogram:
    """One series: how many values there were up to each bound, and their sum.

    Args:
        bounds: rising.

    Attributes:
        counts: values by the first bound that is not below them; the last are above all bounds.
        total: the sum, in an array of one.
    """

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = array("q", bytes(8 * (len(bounds) + 1)))
        self.total = array("d", [0.0])

    def observe(self, value: float) -> None:
        """There was one more."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total[0] += value


class Times:
    """The histograms of one API, of seconds: in all, and the parts, see `broker.timekeeper`."""

    __slots__ = ("queue", "redis", "send", "total", "wait")

    def __init__(self, total: Histogram, queue: Histogram, redis: Histogram, wait: Histogram, send: Histogram) -> None:
        self.total, self.queue, self.redis, self.wait, self.send = total, queue, redis, wait, send

    def note(self, request: _Request, made: float, written: float) -> float:
        """A request is done with; the seconds that it took, but for those that it waited on purpose.

        Args:
            made: when its answer was, on the clock of the request's times.
            written: when its response was.
        """
        received, begun, waited = request.received, request.begun, request.waited
        self.total.observe(written - received)
        self.queue.observe(begun - received)
        self.redis.observe(made - begun - waited)
        self.send.observe(written - made)
        if waited:
            self.wait.observe(waited)
        return written - received - waited
