"""Search by time against a look at every record, over a stream in a list: no server."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.store.stream.ranges import EntrySizes, PartitionStream
from ketch.store.stream.search import Found, first_at_or_after, latest_timestamp
from tests.support.stored import Batch, Stored, offsets, partition

BITS = 10
START_MS = 1_700_000_000_000

layouts = st.sampled_from(["record", "batch"])
# Bytes that an entry is thought to take; with large ones a read has few entries, and longer logs are bisected.
entry_sizes = st.sampled_from([100.0, 200_000.0, 600_000.0])


@st.composite
def dense_logs(draw: st.DrawFn, rising: bool) -> list[Batch]:
    """Batches without gaps between their offsets, whose timestamps rise or not."""
    sizes = draw(st.lists(st.integers(1, 3), max_size=120))
    steps = st.integers(0, 3) if rising else st.integers(-50, 50)
    moves = draw(st.lists(steps, min_size=sum(sizes), max_size=sum(sizes)))
    timestamps = list(accumulate(moves, initial=1_000))[1:]
    ends = list(accumulate(sizes))
    return [Batch(end - size, timestamps[end - size : end]) for end, size in zip(ends, sizes, strict=True)]


@st.composite
def time_logs(draw: st.DrawFn, lead: int) -> list[Batch]:
    """Batches whose offsets are times of appending; a timestamp lies at most `lead` ms ahead of its own."""
    log: list[Batch] = []
    end = START_MS << BITS
    gaps = st.sampled_from([0, 1, 5, 40_000, 200_000])  # ms
    ages = st.sampled_from([0, 1, 40_000, 80_000, 200_000, 400_000])  # ms; the same times come again and again
    for gap, batch in draw(st.lists(st.tuples(gaps, st.lists(ages, min_size=1, max_size=3)), max_size=40)):
        base = end if gap == 0 else ((end >> BITS) + gap) << BITS
        log.append(Batch(base, [(base >> BITS) + lead - age for age in batch]))
        end = log[-1].last + 1
    return log


def records(log: list[Batch], least: int = 0) -> list[Found]:
    """Every record from offset `least` on."""
    every = [Found(batch.base + n, timestamp) for batch in log for n, timestamp in enumerate(batch.timestamps)]
    return [record for record in every if record.offset >= least]


def first_of(log: list[Batch], least: int, timestamp: int) -> Found | None:
    return next((record for record in records(log, least) if record.timestamp >= timestamp), None)


def latest_of(log: list[Batch], least: int) -> Found | None:
    return max(records(log, least), key=lambda record: record.timestamp, default=None)


def sizes(of: PartitionStream, known: float) -> EntrySizes:
    return EntrySizes(of.layout, of.topic.largest_record, known)


def least_offset(log: list[Batch], position: float) -> int:
    """A record's offset, or the end of the log (1.0)."""
    places = [*offsets(log), log[-1].last + 1 if log else 0]
    return places[int((len(places) - 1) * position)]


def timestamps_near(log: list[Batch], position: float, shift: int) -> int:
    """A record's timestamp, or one near it."""
    known = sorted(record.timestamp for record in records(log)) or [0]
    return known[int((len(known) - 1) * position)] + shift


positions = st.floats(0, 1)
shifts = st.sampled_from([0, 0, 0, -1, 1, -100_000, 100_000])


@given(layouts, st.booleans(), st.data(), positions, positions, shifts, entry_sizes)
def test_the_first_record_as_late_with_dense_ids(
    layout: str, rising: bool, data: st.DataObject, start: float, at: float, shift: int, size: float
) -> None:
    log = data.draw(dense_logs(rising))
    of, least, timestamp = partition(layout, dense=True), least_offset(log, start), timestamps_near(log, at, shift)
    stored = Stored(of, log)
    question = first_at_or_after(of, sizes(of, size), stored.info, least, timestamp, rising)
    assert stored.ask(question) == first_of(log, least, timestamp)


def test_nothing_is_found_below_the_offset_to_begin_at() -> None:
    log = [Batch(base=0, timestamps=[1000])]
    of = partition("record", dense=True)
    stored = Stored(of, log)
    assert stored.ask(first_at_or_after(of, sizes(of, 0), stored.info, 1, 1000)) is None


@given(layouts, st.sampled_from([0, 5_000, 70_000]), st.data(), positions, positions, shifts, entry_sizes)
def test_the_first_record_as_late_with_time_ids(
    layout: str, lead: int, data: st.DataObject, start: float, at: float, shift: int, size: float
) -> None:
    log = data.draw(time_logs(lead))
    of, least, timestamp = partition(layout, lead=lead), least_offset(log, start), timestamps_near(log, at, shift)
    stored = Stored(of, log)
    question = first_at_or_after(of, sizes(of, size), stored.info, least, timestamp)
    assert stored.ask(question) == first_of(log, least, timestamp)


@given(layouts, st.booleans(), st.data(), positions, entry_sizes)
def test_the_latest_timestamp(layout: str, dense: bool, data: st.DataObject, start: float, size: float) -> None:
    """Of records with the same timestamp the first (KIP-734)."""
    lead = 70_000
    log = data.draw(dense_logs(rising=False) if dense else time_logs(lead))
    of, least = partition(layout, dense, lead=lead), least_offset(log, start)
    stored = Stored(of, log)
    assert stored.ask(latest_timestamp(of, sizes(of, size), stored.info, least)) == latest_of(log, least)


@pytest.mark.parametrize("later", [50_000, 69_999, 70_000])
def test_the_latest_timestamp_may_lie_far_from_the_end(later: int) -> None:
    """The last minute of the log is looked through first; a record before it lies as far ahead as the lead allows."""
    log = [Batch(START_MS << BITS, [START_MS + 70_000]), Batch((START_MS + 61_000) << BITS, [START_MS + later])]
    of = partition("record", lead=70_000)
    stored = Stored(of, log)
    found = stored.ask(latest_timestamp(of, sizes(of, 100.0), stored.info, log[0].base))
    assert found == Found(log[0].base, START_MS + 70_000)


@pytest.mark.parametrize("layout", ["record", "batch"])
def test_a_long_log_is_not_read_from_its_begin(layout: str) -> None:
    dense = [Batch(n, [n]) for n in range(100_000)]
    times = [Batch((START_MS + n) << BITS, [START_MS + n]) for n in range(100_000)]
    for of, log in ((partition(layout, dense=True), dense), (partition(layout), times)):
        stored, wanted = Stored(of, log), log[90_000]
        question = first_at_or_after(of, sizes(of, 100.0), stored.info, log[0].base, wanted.timestamps[0])
        assert stored.ask(question) == Found(wanted.base, wanted.timestamps[0])
        assert stored.asked < 20
