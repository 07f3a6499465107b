"""Rates through this broker: the counters that /metrics has, read every two seconds while somebody looks, and not else.

One task reads for all pages that are open; it starts with the first and ends with the last.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass

from prometheus_client import REGISTRY

from ketch.errors import KetchError
from ketch.metrics import messages_in, times
from ketch.metrics.histogram import Histogram
from ketch.metrics.tally import quantile
from ketch.redis.driver import Driver
from ketch.views import nodes

_EVERY_S = 2.0
_KEPT = 300  # samples
_LOOK_LEAST_S, _LOOK_MOST_S = 1.0, 60.0  # between two looks that a rate is made of
_COUNTERS = ("ketch_messages_in_total", "ketch_bytes_in_total", "ketch_bytes_out_total", "ketch_requests_total")


@dataclass(frozen=True, slots=True)
class Sample:
    """Rates per second over the time since the sample before, through this broker.

    Attributes:
        at: s since the epoch.
        redis: s that Redis took for a round trip; None where it did not answer.
        clients: connections.
        append, append_slow: s that half and 99 % of the Produce requests did not exceed; None where there were none.
        fetch_slow: s that 99 % of the Fetch requests did not exceed, but for their wait for records.
    """

    at: float
    records_in: float
    bytes_in: float
    bytes_out: float
    requests: float
    redis: float | None
    clients: int
    append: float | None = None
    append_slow: float | None = None
    fetch_slow: float | None = None


class _Counted:
    """What a histogram has counted since the last look."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram, self._before = histogram, histogram.counts[:]

    def look(self) -> list[int]:
        before, self._before = self._before, self._histogram.counts[:]
        return [now - then for now, then in zip(self._before, before, strict=True)]


class Traffic:
    """The samples, and who waits for the next."""

    def __init__(self, driver: Driver, clients: Callable[[], int]) -> None:
        self._driver, self._clients = driver, clients
        self.samples = deque[Sample](maxlen=_KEPT)
        self._waiting: set[asyncio.Queue[Sample]] = set()
        self._task: asyncio.Task[None] | None = None

    async def follow(self) -> AsyncIterator[Sample]:
        """The samples as they are taken."""
        queue = asyncio.Queue[Sample](maxsize=4)
        self._waiting.add(queue)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            while True:
                yield await queue.get()
        finally:
            self._waiting.discard(queue)
            if not self._waiting and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _run(self) -> None:
        before, then = totals(), time.monotonic()
        appends, fetches = _Counted(times("produce").total), _Counted(times("fetch").redis)
        if self.samples and time.time() - self.samples[-1].at > 3 * _EVERY_S:
            self.samples.clear()  # nobody looked meanwhile
        while True:
            await asyncio.sleep(_EVERY_S)
            counted, now = totals(), time.monotonic()
            rates = [max(0.0, (counted[name] - before[name]) / (now - then)) for name in _COUNTERS]
            records_in, bytes_in, bytes_out, requests = rates
            taken = await self._round_trip()
            appended, fetched = appends.look(), fetches.look()
            spread = quantile(0.5, appended), quantile(0.99, appended), quantile(0.99, fetched)
            sample = Sample(time.time(), records_in, bytes_in, bytes_out, requests, taken, self._clients(), *spread)
            before, then = counted, now
            self.samples.append(sample)
            for queue in self._waiting:
                with suppress(asyncio.QueueFull):  # its page does not read
                    queue.put_nowait(sample)

    async def _round_trip(self) -> float | None:
        begun = time.monotonic()
        try:
            await self._driver.ask(nodes.ping())
        except KetchError:
            return None
        return time.monotonic() - begun


class TopicRates:
    """Records per second by topic, from one look at a page to the next."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._at = 0.0
        self._rates: dict[str, float] = {}

    def look(self) -> dict[str, float]:
        """The rates since the look before; none where that is long ago."""
        now = time.monotonic()
        if now - self._at < _LOOK_LEAST_S:
            return self._rates
        counts, passed, before = messages_in.counts.copy(), now - self._at, self._counts
        self._counts, self._at = counts, now
        fresh = before and passed < _LOOK_MOST_S
        self._rates = (
            {name: (count - before.get(name, 0.0)) / passed for name, count in counts.items()} if fresh else {}
        )
        return self._rates


def totals() -> dict[str, float]:
    """What was counted since the broker started, over all topics."""
    found = dict.fromkeys(_COUNTERS, 0.0)
    for family in REGISTRY.restricted_registry(list(_COUNTERS)).collect():
        for sample in family.samples:
            if sample.name in found:
                found[sample.name] += sample.value
    return found


def by_topic(counter: str) -> dict[str, float]:
    """One counter since the broker started, by topic."""
    families = REGISTRY.restricted_registry([counter]).collect()
    return {s.labels["topic"]: s.value for family in families for s in family.samples if s.name == counter}
