"""Counting records and moving by them, against a list of all offsets: no server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.store.stream.counting import count, entry_heads, shifted
from tests.support.stored import Batch, Stored, logs, offsets, partition

LOGS = logs(gap=9, records=9, batches=40)
layouts = st.sampled_from(["record", "batch"])
places = st.integers(0, 400)


@given(layouts, LOGS, places, st.none() | places)
def test_counting(layout: str, log: list[Batch], start: int, end: int | None) -> None:
    of = partition(layout)
    expected = sum(start <= offset < (1 << 62 if end is None else end) for offset in offsets(log))
    assert Stored(of, log).ask(count(of, start, end)) == expected


@given(layouts, LOGS, places, st.integers(0, 100))
def test_counting_may_stop_when_there_are_enough(layout: str, log: list[Batch], start: int, most: int) -> None:
    of = partition(layout)
    expected = sum(start <= offset for offset in offsets(log))
    assert min(most, expected) <= Stored(of, log).ask(count(of, start, most=most)) <= expected


@given(layouts, LOGS, st.data(), st.integers(-200, 200))
def test_so_many_records_further_on(layout: str, log: list[Batch], data: st.DataObject, records: int) -> None:
    """From a record's offset, or the end of the log."""
    of, known = partition(layout), offsets(log)
    ends = [*known, known[-1] + 1 if known else 0]
    at = data.draw(st.integers(0, len(ends) - 1))
    wanted = at + records
    expected: int | None = None
    if records <= 0:
        expected = ends[wanted] if wanted >= 0 else None
    elif wanted <= len(known):
        expected = known[wanted - 1] + 1  # right behind the last of them
    assert Stored(of, log).ask(shifted(of, ends[at], records)) == expected


@given(layouts, LOGS, places, st.booleans(), st.integers(1, 5))
def test_the_heads_of_entries(layout: str, log: list[Batch], offset: int, back: bool, most: int) -> None:
    of = partition(layout)
    entries = [(batch.last, len(batch.timestamps)) for batch in log]
    if layout == "record":
        entries = [(offset, 1) for offset in offsets(log)]
    expected = [each for each in entries if (each[0] < offset if back else each[0] >= offset)]
    expected = expected[::-1][:most] if back else expected[:most]
    assert Stored(of, log).ask(entry_heads(of, offset, back, most)) == expected


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_more_entries_than_one_reply_holds(layout: str) -> None:
    of = partition(layout)
    entries = 2 * of.layout.count_step + 3
    log = [Batch(n + (n + 1) // 2, [7]) for n in range(entries)]  # a gap before every other one
    stored, end = Stored(of, log), log[-1].last + 1
    assert stored.ask(count(of, 0)) == entries
    assert stored.ask(count(of, 1, end - 1)) == entries - 2
    assert stored.ask(shifted(of, 0, entries)) == end
    assert stored.ask(shifted(of, 0, entries + 1)) is None
    assert stored.ask(shifted(of, end, -entries)) == 0
    assert stored.ask(shifted(of, end, -entries - 1)) is None
