"""The histograms against a slow model, and the bounds on series."""

from __future__ import annotations

from bisect import bisect_left
from math import ceil

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from ketch.metrics.tally import LATENCY, OTHER, Histogram, Histograms, Names, quantile
from ketch.metrics.timing import Times

SECONDS = st.one_of(st.floats(0, 100), st.sampled_from(LATENCY))


@given(st.lists(SECONDS))
def test_a_bucket_has_all_values_up_to_its_bound(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    expected = [sum(value <= bound for value in values) for bound in (*LATENCY, float("inf"))]
    assert [count for _, count in histogram.buckets()] == expected
    assert [float(bound) for bound, _ in histogram.buckets()] == [*LATENCY, float("inf")]
    assert histogram.total == [sum(values)]


@given(st.lists(st.tuples(*[SECONDS] * 5)))
def test_times_are_observed_part_by_part(requests: list[tuple[float, ...]]) -> None:
    times, parts = Times("a test"), [Histogram() for _ in range(5)]
    made = [times.total, times.queue, times.redis, times.wait, times.send]
    before = [(list(each.counts), each.total[0]) for each in made]
    for request in requests:
        times.add(*request)
        for n, (part, seconds) in enumerate(zip(parts, request, strict=True)):
            if n != 3 or seconds:  # a request that did not wait is not among those that did
                part.observe(seconds)
    for each, (counts, _), part in zip(made, before, parts, strict=True):
        assert [now - then for now, then in zip(each.counts, counts, strict=True)] == part.counts


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
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    found = quantile(share, histogram.counts)
    value = sorted(values)[ceil(share * len(values)) - 1]
    place = bisect_left(LATENCY, value)
    assert found is not None
    assert (0.0, *LATENCY)[min(place, len(LATENCY))] <= found <= (*LATENCY, LATENCY[-1])[place]


def test_no_values_have_no_quantile() -> None:
    assert quantile(0.5, Histogram().counts) is None
