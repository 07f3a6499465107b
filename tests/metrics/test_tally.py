"""The histograms, of both kernels, against a slow model, and the bounds on series."""

from __future__ import annotations

import time
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, inf
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from ketch.metrics.histogram import Histogram
from ketch.metrics.tally import DEPTH, LATENCY, OTHER, Histograms, Names, quantile

SECONDS = st.one_of(st.floats(0, 100), st.sampled_from(LATENCY))


@pytest.fixture(params=["_kernel", "_pure_histogram"])
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    return pytest.importorskip(f"ketch.metrics.{request.param}", exc_type=ImportError)


@dataclass
class Request:
    received: float
    begun: float
    waited: float
    appended: tuple[str, ...] = ()
    traces: tuple[object, ...] = ()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(SECONDS), bounds=st.sampled_from([LATENCY, DEPTH, ()]))
def test_a_count_has_the_values_up_to_its_bound(
    kernel: ModuleType, values: list[float], bounds: tuple[float, ...]
) -> None:
    histogram = kernel.Histogram(bounds)
    for value in values:
        histogram.observe(value)
    up_to = [sum(value <= bound for value in values) for bound in (*bounds, inf)]
    assert list(accumulate(histogram.counts)) == up_to
    assert histogram.total.tolist() == [sum(values)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=st.lists(st.tuples(*[SECONDS] * 4, st.lists(st.sampled_from("ab"), unique=True)), max_size=200))
def test_times_are_observed_part_by_part(
    kernel: ModuleType, requests: list[tuple[float, float, float, float, list[str]]]
) -> None:
    latencies = {topic: kernel.Histogram(LATENCY) for topic in "ab"}
    times = kernel.Times(*(kernel.Histogram(LATENCY) for _ in range(5)), latencies)
    parts: dict[str, list[float]] = {name: [] for name in ("total", "queue", "redis", "wait", "send", "a", "b")}
    for queue, redis, wait, send, appended in requests:
        received, begun = 1000.0, 1000.0 + queue
        made = begun + redis + wait
        written = made + send
        request = Request(received, begun, wait, tuple(appended))
        assert times.note(request, made, written, written - received - wait)
        parts["total"].append(written - received)
        parts["queue"].append(begun - received)
        parts["redis"].append(made - begun - wait)
        parts["send"].append(written - made)
        parts["wait"] += [wait] * bool(wait)  # a request that did not wait is not among those that did
        for topic in appended:
            parts[topic].append(written - received)
    for name, values in parts.items():
        expected = kernel.Histogram(LATENCY)
        for value in values:
            expected.observe(value)
        found = latencies.get(name) or getattr(times, name)
        assert (found.counts, found.total) == (expected.counts, expected.total)


def test_more_is_to_be_said_of_a_request_that_was_slow_or_is_traced(kernel: ModuleType) -> None:
    times = kernel.Times(*(kernel.Histogram(LATENCY) for _ in range(5)), {})
    request = Request(1.0, 1.5, 2.0)
    assert [times.note(request, 4.0, 4.5, after) for after in (1.5, 1.6)] == [True, False]  # what it waited is not slow
    request.traces = ("a trace",)
    assert times.note(request, 4.0, 4.5, inf)


@given(st.lists(SECONDS, min_size=1))
def test_what_is_shown(values: list[float]) -> None:
    histograms = Histograms("a_test_seconds", "None", "of")
    try:
        for value in values:
            histograms.of("busy").observe(value)
        (family,) = histograms.collect()
        shown = {sample.labels["le"]: sample.value for sample in family.samples if "le" in sample.labels}
        assert {float(bound) for bound in shown} == {*LATENCY, inf}
        assert all(count == sum(value <= float(bound) for value in values) for bound, count in shown.items())
    finally:
        REGISTRY.unregister(histograms)


def test_so_many_names_and_one_for_all_others() -> None:
    names = Names(2)
    assert [names[name] for name in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]
    names.most = 3
    assert [names["c"], names["d"], len(names)] == ["c", OTHER, 3]


def test_a_series_without_a_value_is_not_shown() -> None:
    histograms = Histograms("a_test_seconds", "None", "of")
    try:
        histograms.of("quiet")
        histograms.of("busy").observe(0.2)
        (family,) = histograms.collect()
        assert {sample.labels["of"] for sample in family.samples} == {"busy"}
        assert {sample.value for sample in family.samples if sample.name.endswith("_sum")} == {0.2}
    finally:
        REGISTRY.unregister(histograms)


@given(st.lists(SECONDS, min_size=1), st.floats(0.01, 1))
def test_a_quantile_lies_in_the_bucket_of_the_value(values: list[float], share: float) -> None:
    histogram = Histogram(LATENCY)
    for value in values:
        histogram.observe(value)
    found = quantile(share, histogram.counts)
    value = sorted(values)[ceil(share * len(values)) - 1]
    place = bisect_left(LATENCY, value)
    assert found is not None
    assert (0.0, *LATENCY)[min(place, len(LATENCY))] <= found <= (*LATENCY, LATENCY[-1])[place]


def test_no_values_have_no_quantile() -> None:
    assert quantile(0.5, Histogram(LATENCY).counts) is None


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_round_trips_are_counted_with_how_many_were_on_their_way(kernel: ModuleType, count: int) -> None:
    trips = kernel.Trips(taken := kernel.Histogram(LATENCY), depth := kernel.Histogram(DEPTH))
    began = time.monotonic()
    for n in range(count):
        trips.sent(1 + n % 7)
        if n % 3:
            assert sum(depth.counts) == n  # looked at while one is on its way, which stays
        trips.answered(2)
    assert trips.commands == 2 * count
    assert sum(taken.counts) == count
    assert 0 < taken.total[0] <= time.monotonic() - began
    assert depth.total[0] == sum(1 + n % 7 for n in range(count))
