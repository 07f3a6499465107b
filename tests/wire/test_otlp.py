"""The reader of OpenTelemetry's metrics: what it finds, and that no bytes harm it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.wire.otlp import MOST_VALUES, MalformedMetrics, Value, read_metrics
from tests.support.otlp import bytes_of_varint, field, metric, metrics_data, point

texts = st.text(max_size=20)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
points = st.lists(st.tuples(numbers, st.dictionaries(st.text("abc", min_size=1), texts, max_size=3)), max_size=4)


@given(st.lists(st.tuples(texts, st.sampled_from([5, 7]), points), max_size=5))
def test_gauges_and_sums(metrics: list[tuple[str, int, list[tuple[float, dict[str, str]]]]]) -> None:
    data = metrics_data(
        *(metric(name, *(point(value, **labels) for value, labels in each), kind=kind) for name, kind, each in metrics)
    )
    assert read_metrics(data) == [
        Value(name, tuple(sorted(labels.items())), value) for name, _, each in metrics for value, labels in each
    ]


def test_histograms_are_passed_over() -> None:
    assert read_metrics(metrics_data(metric("h", b"\x21" + bytes(8), kind=9), metric("g", point(1)))) == [
        Value("g", (), 1)
    ]


def test_a_bounded_number_of_values() -> None:
    assert len(read_metrics(metrics_data(metric("m", *[point(1)] * (MOST_VALUES + 5))))) == MOST_VALUES


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x0b",
        b"\xff" * 11,
        field(1, field(2, field(2, field(1, b"m") + field(7, field(1, bytes_of_varint(4 << 3) + b"\x01"))))),
        bytes_of_varint(1 << 3) + b"\x01",
    ],
)
def test_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMetrics):
        read_metrics(data)


@given(st.binary(max_size=200), st.integers(0, 60))
def test_no_bytes_harm_it(junk: bytes, where: int) -> None:
    good = metrics_data(metric("m", point(1.5, topic="t"), point(7)))
    for data in (junk, good[:where] + junk + good[where:], good[:where]):
        with suppress(MalformedMetrics):
            read_metrics(data)
