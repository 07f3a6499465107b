"""The plain-Python twin of the kernel of histograms."""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Protocol


class _Request(Protocol):
    received: float
    begun: float
    waited: float
    appended: tuple[str, ...]

    @property
    def traces(self) -> tuple[object, ...]: ...


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
    """The histograms of one API, of seconds: in all, and the parts, see `broker.timekeeper`.

    Args:
        latencies: those that have the whole time, too, by the topics that were appended to.
    """

    __slots__ = ("_latencies", "queue", "redis", "send", "total", "wait")

    def __init__(
        self,
        total: Histogram,
        queue: Histogram,
        redis: Histogram,
        wait: Histogram,
        send: Histogram,
        latencies: Mapping[str, Histogram],
    ) -> None:
        self.total, self.queue, self.redis, self.wait, self.send = total, queue, redis, wait, send
        self._latencies = latencies

    def note(self, request: _Request, made: float, written: float, slow_after: float) -> bool:
        """A request is done with; whether there is more to say of it, as it was slow or is traced.

        Args:
            made: when its answer was, on the clock of the request's times.
            written: when its response was.
            slow_after: the seconds from which on it was slow, not counting those that it waited on purpose.
        """
        received, begun, waited = request.received, request.begun, request.waited
        self.total.observe(written - received)
        self.queue.observe(begun - received)
        self.redis.observe(made - begun - waited)
        self.send.observe(written - made)
        if waited:
            self.wait.observe(waited)
        for topic in request.appended:
            self._latencies[topic].observe(written - received)
        return bool(request.traces) or written - received - waited >= slow_after


class Trips:
    """Round trips of commands on one connection to Redis, of which one at a time is timed.

    Args:
        taken: of seconds.
        depth: of how many commands were on their way when the one that is timed was sent, itself among them.

    Attributes:
        commands: how many were sent, but for some on their way.
    """

    __slots__ = ("_depth", "_on_their_way", "_sent_at", "_taken", "commands")

    def __init__(self, taken: Histogram, depth: Histogram) -> None:
        self._taken, self._depth = taken, depth
        self.commands = 0
        self._on_their_way, self._sent_at = 0, 0.0

    def sent(self, depth: int) -> None:
        """The command that is timed was sent.

        Args:
            depth: how many are on their way, with it.
        """
        self._on_their_way, self._sent_at = depth, time.monotonic()

    def answered(self, commands: int) -> None:
        """The command that is timed was answered.

        Args:
            commands: how many were sent since the last call.
        """
        self.commands += commands
        self._taken.observe(time.monotonic() - self._sent_at)
        self._depth.observe(self._on_their_way)
