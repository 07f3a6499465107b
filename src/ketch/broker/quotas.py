"""The Throttle stage: the quotas in force, and what each client has used of them on this broker.

It has the limits as they were read last, owns the rates of who is limited, and says for how long a client waits. To
tell the client, and to read nothing more from it for that time, is the connection's. Without any quota `in_force` is
False, and nothing is counted.

Limits are per broker, as in Kafka. Creating and deleting partitions is limited over all brokers (Kafka has one
controller for that): each broker grants its share of the rate.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import partial
from typing import Any

from ketch.configs.settings import Settings
from ketch.log.log import Log
from ketch.security.quotas import Bucket, Entity, Limit, Limits, Quota, Rate, Window, ip_limit, limit
from ketch.store.access import quotas

log = logging.getLogger(__name__)

_UNUSED_S = 3600.0  # a rate that was not used for so long is forgotten (ClientQuotaManager)
_DELAY_MAX_S = 3600.0  # a client that is told to wait for longer is as good as refused
_UNLIMITED = 2.0**31 - 1
_KNOWN_MAX = 10_000  # clients whose limit is remembered: they choose their own ids


class Quotas:
    """The quotas of a broker.

    Args:
        brokers: how many share the rate of mutations.

    Attributes:
        in_force: whether there is any.
        timing: whether requests are limited by the time that they take.
    """

    def __init__(self, settings: Settings, log_: Log, brokers: Callable[[], int]) -> None:
        self._log, self._brokers = log_, brokers
        self._window = Window(settings.quota_window_num, float(settings.quota_window_size_seconds))
        self.limits: Limits = {}
        self.in_force = self.timing = False
        self._known: dict[tuple[Quota, str, str], Limit | None] = {}
        self._rates: dict[tuple[Quota, str, str], Rate] = {}
        self._buckets: dict[tuple[str, str], Bucket] = {}

    # -- what is in force

    async def refresh(self) -> None:
        """Reads the limits."""
        found = await self._log.driver.ask(quotas.read(self._log.keys))
        if found != self.limits:
            self.limits = found
            self._known.clear()
            self.in_force = bool(found)
            self.timing = any(Quota.REQUEST in rates for rates in found.values())
            log.info("client quotas changed: %d entities have some", len(found))
        self._forget_unused(time.monotonic())

    async def alter(self, whom: Entity, changes: Mapping[str, float | None]) -> None:
        """Changes limits of an entity on all brokers; None takes one away.

        Raises:
            StorageUnavailable: Redis is gone.
        """
        await self._log.driver.ask(quotas.alter(self._log.keys, whom, changes))
        await self.refresh()

    def _forget_unused(self, now: float) -> None:
        self._rates = {key: rate for key, rate in self._rates.items() if now - rate.used <= _UNUSED_S}
        self._buckets = {key: bucket for key, bucket in self._buckets.items() if now - bucket.used <= _UNUSED_S}

    # -- how long a client waits, seconds

    def use(self, quota: Quota, principal: str, client: str | None, amount: float) -> float:
        """Counts what a client has used of a quota; for how long it has to wait now."""
        found = self._limit(quota, principal, client)
        if found is None:
            return 0.0
        now = time.monotonic()
        rate = self._rate(quota, found)
        rate.record(amount, now)
        delay = rate.delay(found.rate, now)
        return min(delay, self._window.seconds if quota is Quota.REQUEST else _DELAY_MAX_S)

    def most(self, quota: Quota, principal: str, client: str | None) -> float:
        """The most that a client may use at once: its limit for a whole window, 2 GB where it has none."""
        found = self._limit(quota, principal, client)
        if found is None:
            return _UNLIMITED
        return min(_UNLIMITED, found.rate * (self._window.samples - 1) * self._window.seconds)

    def mutate(self, principal: str, client: str | None, partitions: int, strict: bool) -> float:
        """Counts partitions that are created or deleted; for how long the client has to wait before it may do so.

        Args:
            strict: whether nothing is counted where it has to wait (KIP-599).
        """
        found = self._limit(Quota.MUTATION, principal, client)
        if found is None:
            return 0.0
        now, share = time.monotonic(), found.rate / self._brokers()
        bucket = self._buckets.setdefault(found.shared, Bucket(self._window))
        delay = bucket.delay(share, now)
        if strict and delay:
            return delay
        bucket.take(partitions, share, now)
        return 0.0 if strict else bucket.delay(share, now)

    def connect(self, address: str) -> float:
        """Counts a connection from an address; after how many seconds it is to be closed, 0 where it may stay."""
        found = ip_limit(self.limits, address)
        if found is None:
            return 0.0
        now = time.monotonic()
        rate = self._rate(Quota.CONNECTION, found)
        rate.record(1, now)
        delay = rate.delay(found.rate, now)
        if delay:
            rate.record(-1, now)
        return min(delay, self._window.seconds)

    def _rate(self, quota: Quota, found: Limit) -> Rate:
        key = (quota, *found.shared)
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = Rate(self._window)
        return rate

    def _limit(self, quota: Quota, principal: str, client: str | None) -> Limit | None:
        key = quota, principal, client or ""
        try:
            return self._known[key]
        except KeyError:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            user = principal.partition(":")[2]
            found = self._known[key] = limit(self.limits, quota, user, client or "")
            return found


class Timed:
    """Awaits something, and measures the time that the event loop is busy with it, seconds in `busy`."""

    __slots__ = ("_work", "busy")

    def __init__(self, work: Awaitable[Any]) -> None:
        self._work = work
        self.busy = 0.0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps: Any = self._work.__await__()
        step: Callable[[], Any] = partial(steps.send, None)
        while True:
            began = time.perf_counter()
            try:
                waited = step()
            except StopIteration as end:
                return end.value
            finally:
                self.busy += time.perf_counter() - began
            try:
                step = partial(steps.send, (yield waited))
            except BaseException as error:  # a cancellation, which the work is to see
                step = partial(steps.throw, error)
