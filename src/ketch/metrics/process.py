"""The broker's process: what runs, and how busy its event loop is."""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import REGISTRY, Gauge
from prometheus_client.core import GaugeMetricFamily

from ketch.metrics.tally import Histograms

_EVERY_S = 0.1

_build = Gauge("ketch_build_info", "What runs", ["version", "python"])
_delay = Histograms("ketch_event_loop_delay_seconds", "How late a timer ran")


class _Kernels:
    """Which kernels are in use now."""

    LABELS = ("metrics", "records", "wire", "lane", "append")

    def __init__(self) -> None:
        self.ask: Callable[[], Mapping[str, str]] | None = None
        REGISTRY.register(self)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """For prometheus_client."""
        family = GaugeMetricFamily("ketch_kernel_info", "Which kernels are in use", labels=self.LABELS)
        if self.ask is not None:
            found = self.ask()
            family.add_metric([found[label] for label in self.LABELS], 1)
        yield family


_kernels = _Kernels()


def running(version: str, kernels: Callable[[], Mapping[str, str]]) -> None:
    """A broker runs in this process.

    Args:
        kernels: says which are in use, by `metrics`, `records`, `wire`, `lane` and `append`.
    """
    _build.labels(version, platform.python_version()).set(1)
    _kernels.ask = kernels


async def watch_loop() -> None:
    """Measures how late timers of the running event loop are, until it is cancelled."""
    series = _delay.of()
    while True:
        due = time.monotonic() + _EVERY_S
        await asyncio.sleep(_EVERY_S)
        series.observe(max(0.0, time.monotonic() - due))
