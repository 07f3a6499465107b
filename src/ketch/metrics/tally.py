"""Counters and histograms for what every request counts, as prometheus_client shows them. Its own, with their locks,
take five times as long; these belong to the event loop's thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from ketch.metrics.histogram import Histogram

OTHER = "(other)"  # what is beyond a bound on series, summed; no topic, group or listener can have this name
# s: from half of what Redis takes at the least, up to where clients give up.
LATENCY = (
    *(0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
DEPTH = tuple(float(1 << n) for n in range(11))


class Names(dict[str, str]):
    """The value of a label for each name: the name itself for so many, then `OTHER`.

    Attributes:
        most: how many.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __missing__(self, name: str) -> str:
        if len(self) >= self.most:
            return OTHER
        self[name] = name
        return name


class Tally:
    """A counter by one label.

    Args:
        names: what is shown of its values; without it all are.

    Attributes:
        counts: by value, whether it is shown or summed with others.
    """

    def __init__(self, name: str, documentation: str, label: str, names: Names | None = None) -> None:
        self._name, self._documentation, self._label, self._names = name, documentation, label, names
        self.counts: defaultdict[str, int] = defaultdict(int)
        REGISTRY.register(self)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """For prometheus_client."""
        family = CounterMetricFamily(self._name, self._documentation, labels=[self._label])
        shown = self.counts if self._names is None else self._summed(self._names)
        for value, count in shown.copy().items():
            family.add_metric([value], count)
        yield family

    def _summed(self, names: Names) -> dict[str, int]:
        found: defaultdict[str, int] = defaultdict(int)
        for value, count in self.counts.copy().items():
            found[names[value]] += count
        return found


def quantile(share: float, counts: Sequence[int], bounds: Sequence[float] = LATENCY) -> float | None:
    """The value that this share of all do not exceed, as Prometheus's histogram_quantile has it: values lie evenly
    between two bounds, and those above the last count as the last. None where there are no values.

    Args:
        share: from 0 to 1.
        counts: as those of a `Histogram`, or the difference of two looks at them.
    """
    total = sum(counts)
    if not total:
        return None
    left, low = share * total, 0.0
    for count, high in zip(counts, bounds, strict=False):
        if count and left <= count:
            return low + (high - low) * left / count
        left, low = left - count, high
    return bounds[-1]


class Histograms:
    """A histogram by some labels. A series without a value is not shown."""

    def __init__(self, name: str, documentation: str, *labels: str, bounds: Sequence[float] = LATENCY) -> None:
        self._name, self._documentation, self._labels, self._bounds = name, documentation, labels, bounds
        self._names = [*map(floatToGoString, bounds), "+Inf"]
        self._series: dict[tuple[str, ...], Histogram] = {}
        REGISTRY.register(self)

    def of(self, *labels: str) -> Histogram:
        """The series with these values of the labels."""
        found = self._series.get(labels)
        if found is None:
            found = self._series[labels] = Histogram(self._bounds)
        return found

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """For prometheus_client."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=self._labels)
        for labels, series in self._series.copy().items():
            counts = list(accumulate(series.counts))
            if counts[-1]:
                buckets = list(zip(self._names, map(float, counts), strict=True))
                family.add_metric(labels, buckets, series.total[0])
        yield family
