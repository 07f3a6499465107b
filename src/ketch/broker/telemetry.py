"""Client telemetry (KIP-714): what clients are asked to push, and the numbers they pushed last, for Prometheus.

Subscriptions are configs of the resource type CLIENT_METRICS, kept in Redis and followed by every broker. Without one
nothing is asked of a client but to come again in five minutes. Numbers are cumulative (Prometheus wants them so), live
in this process only, and go when their client says that it ends or has missed three pushes. Clients choose names and
number of their series, so both are bounded.
"""

from __future__ import annotations

import logging
import re
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ketch.broker.following import follow
from ketch.configs.key import ConfigKey
from ketch.errors import InvalidConfig
from ketch.log.log import Log
from ketch.store.cluster import resource_configs
from ketch.wire.otlp import Value

log = logging.getLogger(__name__)

# ClientMetricsConfigs
CONFIGS: Mapping[str, ConfigKey] = {
    config.name: config
    for config in (
        ConfigKey("interval.ms", "int", "How often clients push, in ms.", "300000"),
        ConfigKey("metrics", "list", "Prefixes of the metrics that clients push; *: all.", ""),
        ConfigKey("match", "list", "Which clients: selector=regular expression, all of them.", ""),
    )
}
FAMILY = "ketch_client_metric"
_SELECTORS = ("client_id", "client_instance_id", "client_software_name", "client_software_version",
              "client_source_address", "client_source_port")  # fmt: skip
_LEAST_MS, _MOST_MS = 100, 3_600_000
_DEFAULT_MS = 300_000
_MISSED = 3  # pushes, after which a client counts as gone
_INSTANCES_MAX = 1_000
_SERIES_MAX = 20_000  # of all clients
_TEXT_MAX = 200


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks, as selectors name it."""

    instance: UUID
    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a client is to push."""

    metrics: tuple[str, ...]
    interval_ms: int

    @property
    def id(self) -> int:
        """Changes with it, so that a client which pushes by an older one is told to ask again."""
        return zlib.crc32(repr((self.metrics, self.interval_ms)).encode()) - 2**31


@dataclass(slots=True)
class _Pushed:
    client: str
    until: float  # when it counts as gone
    next: float = 0.0  # when it may push again
    values: list[Value] = field(default_factory=list)


class Telemetry(Collector):
    """The subscriptions and the last pushes.

    Args:
        interval: s between two looks at the subscriptions.
    """

    def __init__(self, log_: Log, interval: float) -> None:
        self._log, self._interval = log_, interval
        self.subscriptions: dict[str, dict[str, str]] = {}
        self._pushed: dict[UUID, _Pushed] = {}

    async def stay(self) -> None:
        """Follows the subscriptions, until cancelled."""
        REGISTRY.register(self)
        try:
            await follow(self.refresh, self._interval, "client metrics", at_once=True)
        finally:
            REGISTRY.unregister(self)

    async def refresh(self) -> None:
        """Reads the subscriptions."""
        self._forget_gone(time.monotonic())
        self.subscriptions = await self._log.driver.ask(resource_configs.read(self._log.keys.client_metrics))

    async def alter(self, name: str, configs: Mapping[str, str]) -> None:
        """Replaces the configs of a subscription; without any it is gone."""
        await self._log.driver.ask(resource_configs.write(self._log.keys.client_metrics, name, configs))
        await self.refresh()

    # -- clients

    def wanted(self, client: Client) -> Wanted:
        """What the client is to push."""
        chosen = [each for each in self.subscriptions.values() if _matches(each.get("match", ""), client)]
        prefixes = sorted({prefix for each in chosen for prefix in each.get("metrics", "").split(",") if prefix})
        intervals = [int(each.get("interval.ms", _DEFAULT_MS)) for each in chosen]
        metrics = ("*",) if "*" in prefixes else tuple(prefixes)
        return Wanted(metrics, min(intervals) if metrics and intervals else _DEFAULT_MS)

    def may_push(self, instance: UUID, now: float) -> bool:
        """Whether it is not too early for this client's next push."""
        pushed = self._pushed.get(instance)
        return pushed is None or now >= pushed.next

    def push(self, client: Client, wanted: Wanted, values: list[Value], now: float) -> None:
        """Takes what a client has pushed in place of what it pushed before."""
        self._forget_gone(now)
        self._pushed.pop(client.instance, None)
        room = _SERIES_MAX - sum(len(each.values) for each in self._pushed.values())
        if len(self._pushed) < _INSTANCES_MAX and room > 0:
            seconds = wanted.interval_ms / 1000
            # A client's clock may be a little faster.
            kept = _Pushed(client.facts["client_id"], now + _MISSED * seconds, now + seconds / 2, values[:room])
            self._pushed[client.instance] = kept

    def end(self, instance: UUID) -> None:
        """The client has ended: its numbers go."""
        self._pushed.pop(instance, None)

    def _forget_gone(self, now: float) -> None:
        for instance in [instance for instance, each in self._pushed.items() if each.until < now]:
            del self._pushed[instance]

    # -- Prometheus

    def describe(self) -> Iterable[Metric]:
        return [self._family()]

    def collect(self) -> Iterator[Metric]:
        """For prometheus_client: in a thread, while the event loop takes pushes. So it changes nothing."""
        family, now = self._family(), time.monotonic()
        for instance, each in self._pushed.copy().items():
            for metric, attributes, value in each.values if each.until >= now else ():
                said = ",".join(f"{name}={content}" for name, content in attributes)
                family.add_metric([_short(metric), _short(each.client), str(instance), _short(said)], value)
        yield family

    @staticmethod
    def _family() -> GaugeMetricFamily:
        labels = ["metric", "client", "instance", "attributes"]
        return GaugeMetricFamily(FAMILY, "What clients have pushed of themselves (KIP-714)", labels=labels)


def new_instance() -> UUID:
    """An id for a client that has none."""
    return uuid4()


def check(name: str, value: str) -> str:
    """A value of a subscription's config (ClientMetricsConfigs.validateProperties).

    Raises:
        InvalidConfig: it cannot be.
    """
    if name == "interval.ms":
        number = int(CONFIGS[name].check(value))
        if not _LEAST_MS <= number <= _MOST_MS:
            text = f"interval must be between {_LEAST_MS} and {_MOST_MS} (1 hour)"
            raise IntervalOutOfRange(f"Invalid value {value} for interval.ms, {text}")
        return str(number)
    if name == "match":
        for pattern in filter(None, value.split(",")):
            selector, found, expression = pattern.partition("=")
            if selector.strip() not in _SELECTORS or not found or not _compiles(expression.strip()):
                raise InvalidConfig(f"Illegal client matching pattern: {pattern}")
    return value


class IntervalOutOfRange(InvalidConfig):
    """Kafka's code for it is another than for other values."""


def _compiles(expression: str) -> bool:
    try:
        re.compile(expression)
    except re.error:
        return False
    return True


def _matches(match: str, client: Client) -> bool:
    """Whether all selectors fit; one that was written by hand and cannot be fits nobody."""
    for pattern in filter(None, match.split(",")):
        selector, _, expression = (part.strip() for part in pattern.partition("="))
        if not _compiles(expression) or not re.fullmatch(expression, client.facts.get(selector, "")):
            return False
    return True


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."
