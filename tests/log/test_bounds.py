"""Where a log starts and ends, held against a model that trims, deletes, compacts and archives it. No server."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ketch.errors import OffsetOutOfRange
from ketch.log.bounds import Bounds, BoundsState
from ketch.store.topics.archives import ArchivedRange
from ketch.store.xinfo import StreamInfo
from tests.support.log_model import CREATED, LogModel

LAYOUTS = pytest.mark.parametrize("layout", ["record", "batch"])
NUMBERINGS = pytest.mark.parametrize("dense", [False, True], ids=["time", "dense"])


class Broker:
    """Looks at a log as `PartitionBounds` does, with what one broker knows."""

    def __init__(self) -> None:
        self.state = BoundsState()
        self.last: Bounds | None = None

    def look(self, log: LogModel, info: StreamInfo | None = None, archived: ArchivedRange | None = None) -> Bounds:
        """The bounds, of an earlier `info` where one is given."""
        info = log.info if info is None else info
        if self.state.asks_compaction(log.topic, info):
            self.state.compacted(info, log.noted(info))
        bounds = self.last = self.state.extent(log.topic, info, archived or log.archived).bounds(log.transactions)
        return bounds


class Logs(RuleBasedStateMachine):
    """A log, the broker that does everything to it and looks at once, and one that looks now and then."""

    counts = True

    @initialize(layout=st.sampled_from(["record", "batch"]), dense=st.booleans(), compacts=st.booleans())
    def create(self, layout: str, dense: bool, compacts: bool) -> None:
        self.log = LogModel(layout, dense, compacts, self.counts)
        self.compacts = compacts
        self.owner, self.other = Broker(), Broker()

    @rule(gap=st.integers(0, 5000), records=st.integers(1, 5))
    def append(self, gap: int, records: int) -> None:
        self.log.append(gap, records)

    @rule(entries=st.integers(1, 4))
    def trim(self, entries: int) -> None:
        self.log.trim(entries)

    @rule()
    def trim_empty(self) -> None:
        self.log.trim(len(self.log.entries))

    @precondition(lambda self: self.log.entries)
    @rule(data=st.data())
    def xdel(self, data: st.DataObject) -> None:
        self.log.xdel(data.draw(st.integers(0, len(self.log.entries) - 1)))

    @precondition(lambda self: self.log.end > self.log.log_start)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        log = self.log
        marks = [at for entry in log.entries for at in (entry.base, entry.last, entry.last + 1)]
        anywhere = st.integers(log.log_start + 1, log.end)
        offset = data.draw(anywhere | st.sampled_from([at for at in marks if at > log.log_start] or [log.end]))
        if log.delete_records(offset):
            self.owner.state.removed_below(offset, log.info)

    @precondition(lambda self: self.compacts)
    @rule(kept=st.sets(st.integers(0, 20)))
    def compact(self, kept: set[int]) -> None:
        self.log.compact(kept, self.owner.look(self.log).local_start)

    @rule(entries=st.integers(1, 4))
    def archive(self, entries: int) -> None:
        self.log.archive(entries)

    @rule(above=st.integers(0, 6000))
    def expire(self, above: int) -> None:
        self.log.expire(self.log.log_start + above)

    @rule(producer=st.integers(0, 3), records=st.integers(1, 3))
    def append_in_transaction(self, producer: int, records: int) -> None:
        self.log.open.setdefault(producer, self.log.end)
        self.log.append(0, records)

    @rule(producer=st.integers(0, 3))
    def end_transaction(self, producer: int) -> None:
        self.log.open.pop(producer, None)

    @rule()
    def look(self) -> None:
        self._checked(self.other)

    @rule(gap=st.integers(0, 5000), records=st.integers(1, 3))
    def append_between_looks(self, gap: int, records: int) -> None:
        before = self._checked(self.other)
        self.log.append(gap, records)
        after = self._checked(self.other)
        assert after.high_watermark > before.high_watermark
        if self.counts:
            assert (after.log_start, after.local_start) == (before.log_start, before.local_start)

    @invariant()
    def owner_knows_it_exactly(self) -> None:
        found, log = self._checked(self.owner), self.log
        if self.counts:
            assert found == Bounds(log.log_start, log.end, log.start, log.last_stable)

    def _checked(self, broker: Broker) -> Bounds:
        """What a broker sees, held against what any broker may see."""
        before, found = broker.last, broker.look(self.log)
        assert found.high_watermark == self.log.end
        assert found.log_start <= found.local_start <= found.high_watermark
        assert found.log_start <= found.last_stable <= found.high_watermark
        assert all(found.local_start <= entry.last for entry in self.log.entries)
        if before is not None:
            assert found.log_start >= before.log_start, "the start went back"
            assert found.local_start >= before.local_start
            assert found.high_watermark >= before.high_watermark
        return found


class LogsOfRedis6(Logs):
    """Redis does not count what was removed: the start follows the first entry."""

    counts = False


TestLogs = Logs.TestCase
TestLogs.settings = settings(max_examples=70, stateful_step_count=25)
TestLogsOfRedis6 = LogsOfRedis6.TestCase
TestLogsOfRedis6.settings = settings(max_examples=25, stateful_step_count=25)


def made(layout: str, dense: bool, compacts: bool = False, counts: bool = True) -> tuple[LogModel, Broker]:
    return LogModel(layout, dense, compacts, counts), Broker()


@LAYOUTS
@NUMBERINGS
def test_a_new_log_starts_where_its_topic_was_created(layout: str, dense: bool) -> None:
    log, broker = made(layout, dense)
    first = 0 if dense else CREATED << 10
    assert broker.look(log) == Bounds(first, first, first, first)
    log.append(3000, 5)
    assert broker.look(log).log_start == first


@LAYOUTS
@NUMBERINGS
def test_a_stream_that_is_trimmed_empty_keeps_its_end(layout: str, dense: bool) -> None:
    log, broker = made(layout, dense)
    log.append(100, 5)
    end = broker.look(log).high_watermark
    log.trim(5)
    assert broker.look(log) == Bounds(end, end, end, end) == Broker().look(log)
    log.append(700, 1)
    assert broker.look(log).log_start == end, "a consumer at the end is not out of range when the next record comes"


@NUMBERINGS
def test_records_are_deleted_within_a_batch(dense: bool) -> None:
    """This broker knows the offset; another one, and this one after a restart, where the batch begins."""
    log, broker = made("batch", dense)
    log.append(0, 10)
    log.append(0, 10)
    base = log.entries[1].base
    assert log.delete_records(base + 4)
    broker.state.removed_below(base + 4, log.info)
    assert broker.look(log).log_start == base + 4
    assert Broker().look(log).log_start == base
    log.append(0, 1)
    assert broker.look(log).log_start == base + 4
    log.xdel(1)
    assert broker.look(log).log_start == base + 4, "a removal further on does not bring deleted records back"


@LAYOUTS
def test_records_are_deleted_in_the_gap_that_compaction_left(layout: str) -> None:
    log, broker = made(layout, True, compacts=True)
    for _ in range(6):
        log.append(0, 1)
    log.trim(1)
    broker.look(log)
    log.compact({3, 4}, broker.look(log).local_start)
    assert Broker().look(log).log_start == broker.look(log).log_start == 1
    assert log.delete_records(3)
    broker.state.removed_below(3, log.info)
    assert broker.look(log).log_start == 3


@LAYOUTS
@NUMBERINGS
def test_an_answer_that_was_overtaken_by_a_removal_is_not_remembered(layout: str, dense: bool) -> None:
    """A fetch that asked before DeleteRecords goes on after it."""
    log, broker = made(layout, dense)
    for _ in range(4):
        log.append(0, 5)
    log.trim(2)
    early = log.info
    offset = log.end - 3
    assert log.delete_records(offset)
    broker.state.removed_below(offset, log.info)
    broker.look(log, early)
    assert broker.look(log).log_start == offset


@LAYOUTS
def test_two_deletions_whose_answers_cross(layout: str) -> None:
    log, broker = made(layout, True)
    log.append(0, 10)
    for offset in (4, 7):
        assert log.delete_records(offset)
    broker.state.removed_below(7, log.info)
    broker.state.removed_below(4, log.info)
    assert broker.look(log).log_start == 7


@LAYOUTS
@NUMBERINGS
def test_a_stream_that_another_client_deletes_and_writes_again(layout: str, dense: bool) -> None:
    log, broker = made(layout, dense)
    log.append(50, 10)
    log.trim(8)
    broker.look(log)
    again, _ = made(layout, dense)
    assert broker.look(again) == Broker().look(again)
    again.append(60, 2)
    assert broker.look(again) == Broker().look(again)
    again.trim(2)
    found = broker.look(again)
    assert found.log_start == found.high_watermark == again.end


@LAYOUTS
def test_the_archive_comes_before_the_stream(layout: str) -> None:
    log, broker = made(layout, True)
    log.append(0, 10)
    log.append(0, 10)
    log.archive(len(log.entries) // 2)
    log.trim(len(log.entries) // 2)
    assert broker.look(log) == Bounds(0, 20, 10, 20)
    log.expire(4)
    assert broker.look(log) == Bounds(4, 20, 10, 20)
    log.expire(10)
    assert broker.look(log) == Bounds(10, 20, 10, 20)


@pytest.mark.parametrize("start", [20, 25])
def test_an_archive_that_holds_nothing_says_nothing(start: int) -> None:
    log, broker = made("record", True)
    log.append(0, 30)
    log.trim(25)
    assert broker.look(log, archived=ArchivedRange(start, 20)).log_start == 25


@LAYOUTS
def test_only_a_compacted_log_that_was_trimmed_asks_what_compaction_noted(layout: str) -> None:
    log, broker = made(layout, True, compacts=True)
    log.append(0, 1)
    log.append(0, 1)
    assert not broker.state.asks_compaction(log.topic, log.info)
    log.trim(1)
    info = log.info
    assert broker.state.asks_compaction(log.topic, info)
    broker.state.compacted(info, None)
    assert not broker.state.asks_compaction(log.topic, info)
    assert not broker.state.asks_compaction(log.topic, dataclasses.replace(info, length=2, added=3)), "after an append"
    assert not broker.state.asks_compaction(made(layout, True)[0].topic, info)


def test_a_reader_of_committed_records_ends_sooner() -> None:
    bounds = Bounds(10, 30, 10, 20)
    assert (bounds.end(committed=True), bounds.end(committed=False)) == (20, 30)


@pytest.mark.parametrize("offset", [9, 31])
def test_what_cannot_be_read_from(offset: int) -> None:
    bounds = Bounds(10, 30, 20, 30)
    for within in (10, 30):
        bounds.check(within)
    with pytest.raises(OffsetOutOfRange, match=f"offset {offset} is not in 10 to 30"):
        bounds.check(offset)
