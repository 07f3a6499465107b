"""The checker finds each kind of violation in a history made by hand, and nothing in a right one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos import checker
from tests.chaos.checker import (
    COMMIT_BACK,
    DOUBLED,
    FAILURE,
    LOST,
    OFFSET_TWICE,
    PHANTOM,
    REORDERED,
    SKIPPED,
    check,
)
from tests.chaos.history import Commit, Committed, History, Partition, Session, Write

P = Partition("t", 0)
G = "group"


def write(number: int, writer: str = "w", at: float | None = None, ordered: bool = True) -> Write:
    """Sent at `at`, by default its number; acknowledged half a second later at the offset ten times its number."""
    sent = float(number if at is None else at)
    return Write(writer, P, number, sent, ordered, sent + 0.5, number * 10)


def unanswered(number: int, writer: str = "w", ordered: bool = True) -> Write:
    return replace(write(number, writer, ordered=ordered), acked=None, offset=None)


def session(*reads: int, began: float = 0.0, **more: object) -> Session:
    """A session that read these numbers, each at ten times its number."""
    given = [(number * 10, f"w t-0 {number}") for number in reads]
    return Session("r", P, began, **{"reads": given, **more})  # type: ignore[arg-type]


def history(numbers: int = 4) -> History:
    """Of that many records, acknowledged, stored, read by a group, and committed: nothing is wrong with it."""
    writes = [write(number) for number in range(1, numbers + 1)]
    return History(
        writes,
        [session(*range(1, numbers + 1), group=G, start=0)],
        [Commit(G, P, 11, 10.0, 10.1, True), Commit(G, P, numbers * 10 + 1, 11.0, 11.1, True)],
        [Committed(G, P, None, 9.0, 9.1), Committed(G, P, 11, 10.2, 10.3)],
        {P: [(each.number * 10, each.value) for each in writes]},
    )


def found(given: History) -> set[str]:
    return {violation.kind for violation in check(given)}


def test_nothing_is_wrong_with_a_right_history() -> None:
    assert check(history()) == []
    assert checker.counts(check(history())) == dict.fromkeys(checker.KINDS, 0)


def test_nothing_is_wrong_with_an_empty_one() -> None:
    assert check(History()) == []


@pytest.mark.parametrize("stored", [True, False])
def test_a_record_without_an_answer_may_be_stored(stored: bool) -> None:
    given = history()
    given.writes.append(unanswered(5))
    if stored:
        given.log[P].append((50, "w t-0 5"))
    assert check(given) == []


def test_lost() -> None:
    given = history()
    given.writes.append(write(5))
    assert [violation.kind for violation in check(given)] == [LOST]
    assert "'w t-0 5', acknowledged at 50" in str(check(given)[0])


def test_lost_from_an_empty_log() -> None:
    assert found(History([write(1)])) == {LOST}


def test_doubled_in_the_log() -> None:
    given = history()
    given.log[P].append((50, "w t-0 4"))
    assert found(given) == {DOUBLED}


def test_doubled_for_a_reader() -> None:
    given = history()
    given.sessions.append(session(1, 2, 2, 3))
    assert found(given) == {DOUBLED}


def test_reordered_by_number() -> None:
    given = history(2)
    given.writes[:] = [unanswered(1), unanswered(2)]
    given.log[P] = [(10, "w t-0 2"), (20, "w t-0 1")]
    given.sessions.clear()
    given.commits.clear()
    given.committed.clear()
    assert found(given) == {REORDERED}


def test_a_native_writer_has_no_order_without_answers() -> None:
    given = History([unanswered(1, ordered=False), unanswered(2, ordered=False)])
    given.log[P] = [(10, "w t-0 2"), (20, "w t-0 1")]
    assert check(given) == []


def test_reordered_by_time_across_writers() -> None:
    """One record was acknowledged before the other one's writer sent it, and comes after it."""
    early, late = replace(write(1, "a", at=1.0), offset=20), replace(write(1, "b", at=2.0), offset=10)
    assert found(History([early, late], log={P: [(10, late.value), (20, early.value)]})) == {REORDERED}


def test_records_that_were_under_way_together_may_lie_either_way() -> None:
    early, late = replace(write(1, "a", at=1.0), offset=20), replace(write(1, "b", at=1.4), offset=10)
    assert check(History([early, late], log={P: [(10, late.value), (20, early.value)]})) == []


def test_reordered_for_a_reader() -> None:
    given = history()
    given.sessions.append(session(1, 3, 2, 4))
    assert found(given) == {REORDERED}


@pytest.mark.parametrize(
    "wrong",
    [session(1, 3, 4), session(2, 3, 4, start=0), session(1, 2, 3, end=41), session(start=0, end=11)],
    ids=["within", "at the start", "at the end", "everything"],
)
def test_skipped_by_a_session(wrong: Session) -> None:
    given = history()
    given.sessions.append(wrong)
    assert found(given) == {SKIPPED}


@pytest.mark.parametrize(
    "right", [session(2, 3), session(), session(3, 4, start=21, end=41), session(start=41, end=41)]
)
def test_a_session_may_begin_and_end_anywhere(right: Session) -> None:
    given = history()
    given.sessions.append(right)
    assert check(given) == []


def test_skipped_by_a_group() -> None:
    """Another member goes on where the first one's commit says, but what lies between was read by nobody."""
    given = history()
    given.sessions[:] = [session(1, group=G), session(3, 4, group=G, began=10.5)]
    assert [str(violation) for violation in check(given)] == [
        "skipped: t-0: group has committed 41, and none of its members has read 'w t-0 2' at 20"
    ]


def test_another_group_reads_for_itself() -> None:
    given = history()
    given.sessions[:] = [session(1, 2, 3, 4, group="other")]
    assert found(given) == {SKIPPED}


def test_phantom_in_the_log() -> None:
    given = history()
    given.log[P].append((50, "nobody's"))
    assert found(given) == {PHANTOM}


@pytest.mark.parametrize("read", [(50, "w t-0 5"), (40, "w t-0 9"), (45, "w t-0 4")])
def test_phantom_for_a_reader(read: tuple[int, str]) -> None:
    given = history()
    given.sessions.append(session(reads=[read]))
    assert found(given) == {PHANTOM}


def test_an_offset_acknowledged_twice() -> None:
    given = history()
    given.writes.append(replace(write(5), offset=40))
    given.log[P].append((50, "w t-0 5"))
    assert found(given) == {OFFSET_TWICE}


def test_a_record_at_another_offset_than_acknowledged() -> None:
    given = history()
    given.writes.append(write(5))
    given.log[P].append((60, "w t-0 5"))
    assert found(given) == {OFFSET_TWICE}


def test_an_offset_twice_in_the_log() -> None:
    given = history()
    given.writes += [unanswered(5), unanswered(6)]
    given.log[P] += [(50, "w t-0 5"), (50, "w t-0 6")]
    assert found(given) == {OFFSET_TWICE}


@pytest.mark.parametrize("told", [None, 11])
def test_a_commit_that_went_back_is_told(told: int | None) -> None:
    given = history()
    given.committed.append(Committed(G, P, told, 12.0, 12.1))
    assert found(given) == {COMMIT_BACK}


def test_an_answer_may_be_older_than_a_commit_that_was_under_way() -> None:
    given = history()
    given.committed.append(Committed(G, P, 11, 11.05, 11.3))
    assert check(given) == []


def test_a_commit_without_an_answer_may_count_or_not() -> None:
    given = history(5)
    given.commits[-1] = given.commits[-1]._replace(ok=False)
    given.committed += [Committed(G, P, 11, 12.0, 12.1), Committed(G, P, 51, 13.0, 13.1)]
    assert check(given) == []


def test_a_lower_commit_is_taken() -> None:
    given = history()
    given.commits.append(Commit(G, P, 21, 12.0, 12.1, True))
    assert found(given) == {COMMIT_BACK}


def test_a_lower_commit_is_refused() -> None:
    given = history()
    given.commits.append(Commit(G, P, 21, 12.0, 12.1, False))
    assert check(given) == []


def test_a_member_begins_below_the_commit() -> None:
    given = history()
    given.sessions.append(session(3, 4, group=G, began=12.0))
    assert found(given) == {COMMIT_BACK}


def test_a_commit_that_nobody_made() -> None:
    given = history()
    given.committed.append(Committed(G, P, 42, 12.0, 12.1))
    assert found(given) == {PHANTOM}


def test_partitions_are_apart() -> None:
    given = history()
    given.writes.append(Write("w", Partition("t", 1), 1, 1.0, True, 1.5, 10))
    assert [(v.kind, v.partition) for v in check(given)] == [(LOST, Partition("t", 1))]


def test_what_a_client_noted_is_a_failure() -> None:
    given = history()
    given.failures.append("producer-0 met a fatal error")
    (violation,) = check(given)
    assert (violation.kind, str(violation)) == (FAILURE, "failure: everywhere: producer-0 met a fatal error")


def test_what_was_read_ahead_of_its_copies_is_a_phantom_only_on_one_redis() -> None:
    """A failover lost record 5 and its offset; the producer's retry of it is at 60."""
    given = history()
    given.sessions[0].reads.append((50, "w t-0 5"))
    given.writes.append(replace(write(5), offset=60))
    given.log[P].append((60, "w t-0 5"))
    assert found(given) == {PHANTOM}
    given.replicated = True
    assert found(given) == set()
    assert checker.read_ahead(given) == 1


def test_what_was_acknowledged_is_a_phantom_all_the_same() -> None:
    given = history()
    given.replicated = True
    given.sessions[0].reads.append((50, "w t-0 5"))
    given.writes.append(write(5))
    assert found(given) == {LOST, PHANTOM}
    given = history()
    given.replicated = True
    given.sessions[0].reads.append((50, "never sent"))
    assert found(given) == {PHANTOM}
