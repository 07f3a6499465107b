"""Cutting a range by records, from replies made here: no server."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.store.stream.boundary import boundary
from tests.support.stored import Batch, Stored, logs, offsets, partition

LOGS = logs(gap=50, records=30, batches=60)


@given(LOGS, st.integers(0, 800), st.integers(0, 2000), st.integers(1, 1000))
def test_the_boundary_is_exact_where_records_are_counted(log: list[Batch], start: int, end: int, records: int) -> None:
    within = [offset for offset in offsets(log) if start <= offset < end]
    of = partition("batch")
    found = Stored(of, log).ask(boundary(of, start, end, records))
    assert found == (within[records] if records < len(within) else end)


@given(LOGS, LOGS, st.integers(0, 800), st.integers(1, 1000))
def test_later_records_have_no_say(log: list[Batch], later: list[Batch], start: int, records: int) -> None:
    of, end = partition("batch"), max(offsets(log), default=0) + 1
    grown = log + [Batch(end + batch.base, batch.timestamps) for batch in later]
    question = boundary(of, start, end, records)
    assert Stored(of, grown).ask(question) == Stored(of, log).ask(boundary(of, start, end, records))


@given(st.lists(st.integers(1, 40), max_size=80), st.integers(0, 800), st.integers(0, 2000), st.integers(1, 100))
def test_records_are_counted_alike_however_large_they_may_be(
    gaps: list[int], start: int, end: int, records: int
) -> None:
    log = [Batch(offset, [7]) for offset in accumulate(gaps)]
    within = [offset for offset in offsets(log) if start <= offset < end]
    for largest in (1 << 10, 1 << 20):
        of = partition("record", largest=largest)
        found = Stored(of, log).ask(boundary(of, start, end, records))
        assert found == (within[records] if records < len(within) else end)


@pytest.mark.parametrize("largest", [1 << 10, 1 << 20])
def test_a_steady_log_is_leapt_over(largest: int) -> None:
    of = partition("record", largest=largest)
    log = [Batch(2 * n, [7]) for n in range(300_000)]
    stored = Stored(of, log)
    found = stored.ask(boundary(of, 0, 600_000, 200_000))
    assert abs(found - 400_000) < 4_000
    assert stored.asked < 30


def test_a_burst_within_a_leap_costs_no_more_than_the_leap() -> None:
    of = partition("record")
    steady, dense = range(0, 400_000, 4), range(50_000, 60_000)
    log = [Batch(offset, [7]) for offset in sorted({*steady, *dense})]
    found = Stored(of, log).ask(boundary(of, 0, 400_000, 50_000))
    records = sum(offset < found for offset in offsets(log))
    assert 40_000 < records < 65_000
