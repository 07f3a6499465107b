"""Finds in a history what a log must never do. Pure functions: a history in, violations out.

`check` looks for, partition by partition:

- lost: an acknowledged record is not in the log.
- doubled: a record is in the log twice, or a session was given it twice.
- reordered: records of one producer lie in another order than they were sent in; or a record was acknowledged before
  another one was sent, and has the higher offset; or a session was given a lower offset after a higher one.
- skipped: a session went past a record; or a group's commit is past a record that no member has read.
- phantom: the log holds a record that was never sent; or a reader was given a record that is not in the log.
- offset given twice: two records were acknowledged with one offset, the log has an offset twice, or a record lies
  at another offset than the acknowledged one.
- commit went back: after a commit was acknowledged, OffsetFetch answered with a lower offset, a reader began at a
  lower one, or a commit of a lower one was acknowledged.
- torn: some of a transaction's records are in the log and others are not; or one that was aborted was read.
- failure: what the clients themselves noted (`History.failures`).

Where Redis replicates (`History.replicated`), a reader may be given a record before it has its copies: a Redis client
always, a consumer while too few replicas are in sync. A failover may then lose the record. `ahead` finds these reads.
They are counted, and are no phantoms; a session may go back after one. A record that was acknowledged at the offset is
never among them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple, TypeVar

from tests.chaos.history import Commit, Committed, History, Partition, Session, Write

LOST = "lost"
DOUBLED = "doubled"
REORDERED = "reordered"
SKIPPED = "skipped"
PHANTOM = "phantom"
OFFSET_TWICE = "offset given twice"
COMMIT_BACK = "commit went back"
TORN = "torn"
FAILURE = "failure"
KINDS = (LOST, DOUBLED, REORDERED, SKIPPED, PHANTOM, OFFSET_TWICE, COMMIT_BACK, TORN, FAILURE)

Log = list[tuple[int, str]]  # offset and value of each record
Row = TypeVar("Row", Write, Session, Commit, Committed)


class Violation(NamedTuple):
    """One thing that must not happen, in words that name the record or the offset."""

    kind: str
    partition: Partition | None
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.partition or 'everywhere'}: {self.what}"


def check(history: History) -> list[Violation]:
    """Everything that is wrong in a history, grouped by partition."""
    found = [Violation(FAILURE, None, failure) for failure in history.failures]
    found += [Violation(TORN, None, what) for what in check_transactions(history)]
    writes, sessions = _by_partition(history.writes), _by_partition(history.sessions)
    commits, told = _by_partition(history.commits), _by_partition(history.committed)
    for partition in sorted({*history.log, *writes, *sessions, *commits, *told}):
        log = history.log.get(partition, [])
        early = ahead(log, writes[partition], sessions[partition]) if history.replicated else set()
        wrong = [
            *check_log(log, writes[partition]),
            *check_order(log, writes[partition]),
            *check_sessions(log, sessions[partition], early),
            *check_groups(log, sessions[partition], commits[partition]),
            *check_commits(commits[partition], told[partition], sessions[partition]),
        ]
        found += [Violation(kind, partition, what) for kind, what in wrong]
    return found


def counts(violations: Iterable[Violation]) -> dict[str, int]:
    """How many there are of each kind, also of those there are none of."""
    found = Counter(violation.kind for violation in violations)
    return {kind: found[kind] for kind in KINDS}


def check_transactions(history: History) -> Iterator[str]:
    """Each transaction as a whole or not at all, and as its producer was told."""
    stored = {(partition, value) for partition, log in history.log.items() for _, value in log}
    read = {(session.partition, value) for session in history.sessions for _, value in session.reads}
    for transaction in history.transactions:
        records = {(write.partition, write.value) for write in transaction.writes}
        if transaction.committed is False:
            for _, value in records & (stored | read):
                yield f"{value!r} was read, and its transaction was aborted"
        elif missing := records - stored:
            there = len(records) - len(missing)
            if there or transaction.committed:
                yield f"{there} of {len(records)} records of a transaction are there, not {min(missing)[1]!r}"


def check_log(log: Log, writes: list[Write]) -> Iterator[tuple[str, str]]:
    """Each acknowledged record once and at its offset, and nothing that was not sent."""
    places: dict[str, list[int]] = defaultdict(list)
    for offset, value in log:
        places[value].append(offset)
    sent = {write.value for write in writes}
    for value, offsets in places.items():
        if value not in sent:
            yield PHANTOM, f"{value!r} at {offsets[0]} was never sent"
        if len(offsets) > 1:
            yield DOUBLED, f"{value!r} is at {offsets}"
    for one, next_one in pairwise(log):
        if one[0] == next_one[0]:
            yield OFFSET_TWICE, f"offset {one[0]} is that of {one[1]!r} and of {next_one[1]!r}"
    yield from _check_acknowledged(places, writes)


def _check_acknowledged(places: dict[str, list[int]], writes: list[Write]) -> Iterator[tuple[str, str]]:
    owners: dict[int, str] = {}
    for write in writes:
        if write.offset is None:
            continue
        other = owners.setdefault(write.offset, write.value)
        if other != write.value:
            yield OFFSET_TWICE, f"offset {write.offset} was acknowledged for {other!r} and for {write.value!r}"
        if write.value not in places:
            yield LOST, f"{write.value!r}, acknowledged at {write.offset}"
        elif write.offset not in places[write.value]:
            yield OFFSET_TWICE, f"{write.value!r} was acknowledged at {write.offset} and is at {places[write.value]}"


def check_order(log: Log, writes: list[Write]) -> Iterator[tuple[str, str]]:
    """The log's order agrees with each ordered writer's numbers, and with time.

    By time: a record that was acknowledged before another one was sent has the lower offset, also across writers.
    """
    known = {write.value: write for write in writes}
    last: dict[str, Write] = {}
    latest: Write | None = None  # of those seen so far, the one that was sent last
    for offset, value in log:
        write = known.get(value)
        if write is None:
            continue
        before = last.get(write.writer)
        if write.ordered and before is not None and before.number > write.number:
            yield REORDERED, f"{value!r} at {offset} comes after {before.value!r}"
        last[write.writer] = write
        if latest is not None and write.acked is not None and write.acked < latest.sent:
            yield (
                REORDERED,
                f"{value!r} at {offset} was acknowledged before {latest.value!r} was sent, and comes after it",
            )
        if latest is None or write.sent > latest.sent:
            latest = write


def ahead(log: Log, writes: list[Write], sessions: list[Session]) -> set[tuple[int, str]]:
    """Offset and value of what was read, is not in the log, and was acknowledged to nobody there."""
    kept = {*log, *((write.offset, write.value) for write in writes)}
    sent = {write.value for write in writes}
    return {read for session in sessions for read in session.reads if read not in kept and read[1] in sent}


def read_ahead(history: History) -> int:
    """How many records were read that a failover lost, see `ahead`."""
    writes, sessions = _by_partition(history.writes), _by_partition(history.sessions)
    return sum(len(ahead(log, writes[each], sessions[each])) for each, log in history.log.items())


def check_sessions(
    log: Log, sessions: list[Session], early: Container[tuple[int, str]] = ()
) -> Iterator[tuple[str, str]]:
    """Each session was given exactly the log's records between its start and its end, in their order.

    Args:
        early: what it may have been given all the same, see `ahead`.
    """
    offsets = [offset for offset, _ in log]
    values = dict(log)
    for session in sessions:
        yield from _check_arrival(session, early)
        for offset, value in session.reads:
            if values.get(offset) != value and (offset, value) not in early:
                yield PHANTOM, f"{session.reader} read {value!r} at {offset}, where the log has {values.get(offset)!r}"
        begin, end = _span(session)
        given = {offset for offset, _ in session.reads}
        for place in range(bisect_left(offsets, begin), bisect_left(offsets, end)):
            if offsets[place] not in given:
                yield SKIPPED, f"{session.reader} went past {log[place][1]!r} at {offsets[place]}"


def _span(session: Session) -> tuple[int, int]:
    """The first offset that a session should have read, and the first one after its end."""
    first, last = (session.reads[0][0], session.reads[-1][0]) if session.reads else (0, -1)
    begin = first if session.start is None else session.start
    return begin, last + 1 if session.end is None else session.end


def _check_arrival(session: Session, early: Container[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    for before, (next_one, value) in pairwise(session.reads):
        one = before[0]
        if before in early:
            continue  # its position may lie behind the end now: it is told so, and begins anew
        if next_one == one:
            yield DOUBLED, f"{session.reader} was given {value!r} at {one} twice"
        elif next_one < one:
            yield REORDERED, f"{session.reader} was given {value!r} at {next_one} after {one}"


def check_groups(log: Log, sessions: list[Session], commits: list[Commit]) -> Iterator[tuple[str, str]]:
    """What lies below a group's acknowledged commit was read by one of its members."""
    for group in sorted({commit.group for commit in commits}):
        reached = max((commit.offset for commit in commits if commit.group == group and commit.ok), default=0)
        read = {offset for session in sessions if session.group == group for offset, _ in session.reads}
        for offset, value in log:
            if offset < reached and offset not in read:
                yield (
                    SKIPPED,
                    f"{group} has committed {reached}, and none of its members has read {value!r} at {offset}",
                )


def check_commits(commits: list[Commit], told: list[Committed], sessions: list[Session]) -> Iterator[tuple[str, str]]:
    """What begins after a commit was acknowledged neither sees nor makes a lower one, nor sees one that nobody made."""
    for group in sorted({commit.group for commit in commits} | {answer.group for answer in told}):
        own = [commit for commit in commits if commit.group == group]
        floor = _Floor(own)
        made = {commit.offset for commit in own}
        for answer in told:
            if answer.group != group:
                continue
            least = floor.at(answer.began)
            if (answer.offset or 0) < least:
                yield COMMIT_BACK, f"{group} was told {answer.offset} at {answer.ended:.3f}, and had committed {least}"
            elif answer.offset is not None and answer.offset not in made:
                yield PHANTOM, f"{group} was told {answer.offset} at {answer.ended:.3f}, which nobody committed"
        for commit in own:
            if commit.ok and commit.offset < floor.at(commit.began):
                least = floor.at(commit.began)
                yield COMMIT_BACK, f"{group} committed {commit.offset} at {commit.ended:.3f} after {least}"
        for session in sessions:
            if session.group == group and session.reads and session.reads[0][0] < floor.at(session.began):
                least = floor.at(session.began)
                yield (
                    COMMIT_BACK,
                    f"{session.reader} began at {session.reads[0][0]} though {group} had committed {least}",
                )


class _Floor:
    """The highest offset that had been acknowledged to a group at a given time."""

    def __init__(self, commits: list[Commit]) -> None:
        done = sorted((commit for commit in commits if commit.ok), key=lambda commit: commit.ended)
        self._times = [commit.ended for commit in done]
        self._highest = [0]
        for commit in done:
            self._highest.append(max(self._highest[-1], commit.offset))

    def at(self, time: float) -> int:
        return self._highest[bisect_left(self._times, time)]


def _by_partition(rows: Iterable[Row]) -> dict[Partition, list[Row]]:
    found: dict[Partition, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.partition].append(row)
    return found
