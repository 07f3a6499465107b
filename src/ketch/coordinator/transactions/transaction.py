"""The coordinator of one transactional id, as Kafka's TransactionCoordinator of 4.1 decides (KIP-98, KIP-360, KIP-890).

A machine without I/O: events come in, effects go out. It owns the state, the producer's id and epoch, what belongs to
the transaction, and its timeout. It writes no marker and stores nothing: `broker.coordination.transactions` does, in
this order:

    Empty, Complete* --AddPartitions, AddGroup--> Ongoing --End--> Prepare* --Finished--> Complete*

Prepare* is the decision: once it is stored, the coordinator of that time writes the markers (`Finish`), as often as
need be. An End is answered when they are written, or when that takes long (`Delayed`).

Versions of the protocol: since version 2 (KIP-890) the epoch rises with each transaction, and a partition is added by
the broker that leads it. The epoch of a marker is always the one that the producer has afterwards.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.coordinator.machine import Persist, Reply, Tick

Partition = tuple[str, int]

NO_ID = NO_EPOCH = -1
MAX_EPOCH = 2**15 - 1
KEPT_S = 60.0  # how long a machine without an open transaction stays in memory


class State(enum.StrEnum):
    """Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_PREPARED = {State.PREPARE_COMMIT: State.COMPLETE_COMMIT, State.PREPARE_ABORT: State.COMPLETE_ABORT}


# -- events


@dataclass(frozen=True, slots=True)
class Init:
    """InitProducerId.

    Attributes:
        known: the id and epoch that the producer has, where it says so (KIP-360).
        fresh: a producer id never given before; None before one is known to be needed.
    """

    token: Hashable
    timeout_ms: int
    known: tuple[int, int] | None = None
    fresh: int | None = None


@dataclass(frozen=True, slots=True)
class Add:
    """AddPartitionsToTxn and AddOffsetsToTxn.

    Attributes:
        verify: only asks whether the partitions belong to the transaction.
    """

    token: Hashable
    producer: int
    epoch: int
    partitions: frozenset[Partition] = frozenset()
    groups: frozenset[str] = frozenset()
    verify: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """EndTxn.

    Attributes:
        bumps: version 2 of the protocol: the epoch rises.
        fresh: as in `Init`.
    """

    token: Hashable
    producer: int
    epoch: int
    commit: bool
    bumps: bool
    fresh: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """All markers of the transaction that began then are written."""

    started: int


@dataclass(frozen=True, slots=True)
class Delayed:
    """They are decided and cannot be written now."""

    started: int


Event = Init | Add | End | Finished | Delayed | Tick


# -- effects


@dataclass(frozen=True, slots=True)
class Identity:
    """The answer to Init and End."""

    error: ErrorCode = ErrorCode.none
    producer: int = NO_ID
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Added:
    """The answer to Add.

    Attributes:
        started: ms, when the transaction began.
        missing, groups_missing: what does not belong to it, of what was to be verified.
    """

    error: ErrorCode = ErrorCode.none
    started: int = 0
    missing: frozenset[Partition] = frozenset()
    groups_missing: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NeedsProducerId:
    """The answer to an event that is to come again with a fresh producer id."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The effect that the markers are written, and what is decided of groups' offsets."""

    producer: int
    epoch: int
    commit: bool
    started: int
    partitions: frozenset[Partition]
    groups: frozenset[str]


Effects = list[Any]


@dataclass(slots=True, eq=False)
class Transaction:
    """One transactional id.

    Attributes:
        clock: ms since the epoch at the zero of the clock that `handle` is told.
        epoch: the producer's, -1 before its first InitProducerId.
        last_epoch: the one before, where its producer may repeat a request with it; -1 where not.
        previous, next: the producer id before an overflow of the epoch, and the one after.
        started: ms, when the current or last transaction began; it always rises.
        updated: ms, of the last change.
    """

    id: str
    clock: float
    term: str = "0"  # see `Machine`, as the next one
    held_at: float = -math.inf
    state: State = State.EMPTY
    producer: int = NO_ID
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    previous: int = NO_ID
    next: int = NO_ID
    timeout_ms: int = 0
    started: int = 0
    updated: int = 0
    partitions: set[Partition] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    waiting: list[Hashable] = field(default_factory=list)  # Ends that wait for the markers
    finishing: bool = False
    retired: bool = False
    due: float | None = None
    idle: bool = True

    # -- the machine

    def handle(self, event: Event, now: float) -> Effects:
        """See `machine.Machine`."""
        if self.retired:
            return [] if isinstance(event, Tick | Finished | Delayed) else [_answer(event, _AGAIN)]
        effects = _HANDLERS[type(event)](self, event, now)
        self._schedule(event, now)
        return effects

    @property
    def deadline(self) -> float | None:
        return self.due

    @property
    def is_idle(self) -> bool:
        return self.idle and self.state not in _PREPARED and self.state is not State.ONGOING

    @property
    def is_open(self) -> bool:
        """Whether there is something to be decided or finished."""
        return self.state in _PREPARED or self.state is State.ONGOING

    @property
    def begun(self) -> int:
        """ms, when the current or last transaction began; -1 before the producer's first one."""
        return -1 if self.state is State.EMPTY else self.started

    def retire(self) -> bool:
        self.retired = not self.is_open
        return self.retired

    def _schedule(self, event: Event, now: float) -> None:
        self.idle = isinstance(event, Tick) and not self.is_open
        self.wake(now)

    def wake(self, now: float) -> None:
        """Sets when the next Tick is due."""
        if self.state is State.ONGOING:
            self.due = (self.started + self.timeout_ms - self.clock) / 1000
        elif self.state in _PREPARED:
            self.due = None if self.finishing else now
        else:
            self.due = None if self.idle else now + KEPT_S

    def _ms(self, now: float) -> int:
        return int(self.clock + now * 1000)

    # -- InitProducerId

    def _init(self, event: Init, now: float) -> Effects:
        if event.known is not None and self._becomes(event.known[0]):
            return [_answer(event, ErrorCode.concurrent_transactions)]
        if not self._may_continue(event.known):
            return [_answer(event, ErrorCode.producer_fenced)]
        if self.state in _PREPARED:
            return [_answer(event, ErrorCode.concurrent_transactions)]
        if self.state is State.ONGOING:  # the client asks again until it is aborted
            return [*self._abort_with_fence(now), _answer(event, ErrorCode.concurrent_transactions)]
        known = None if event.known is None else event.known[1]
        rotates = self.epoch >= MAX_EPOCH - 1 and known in (None, self.epoch)
        if (rotates or self.producer == NO_ID) and event.fresh is None:
            return [Reply(event.token, NeedsProducerId())]
        if rotates:
            assert event.fresh is not None
            self.previous, self.producer = self.producer, event.fresh
            self.last_epoch, self.epoch = NO_EPOCH if known is None else self.epoch, 0
        elif not self._next_epoch(known, event.fresh):
            return [_answer(event, ErrorCode.producer_fenced)]
        self.state, self.timeout_ms, self.updated = State.EMPTY, event.timeout_ms, self._ms(now)
        return [Persist(), Reply(event.token, self._identity)]

    def _may_continue(self, known: tuple[int, int] | None) -> bool:
        """KIP-360: whether a producer that has this id and epoch is the last one, or the one before an overflow."""
        if known is None or self.epoch == NO_EPOCH:
            return True
        producer, epoch = known
        return producer == self.producer or (producer == self.previous and epoch >= MAX_EPOCH - 1)

    def _next_epoch(self, known: int | None, fresh: int | None) -> bool:
        """Raises the epoch; not for a producer that repeats its request. False where the producer is fenced."""
        if self.producer == NO_ID:
            assert fresh is not None
            self.producer = fresh
        if known is None:
            self.epoch, self.last_epoch = self.epoch + 1, NO_EPOCH
        elif self.epoch in (known, NO_EPOCH):
            self.epoch, self.last_epoch = self.epoch + 1, self.epoch
        elif known != self.last_epoch:
            return False
        return True

    def _becomes(self, producer: int) -> bool:
        """Whether this producer id follows the one whose epoch overflows with the transaction that is being finished.

        The client has it as soon as the markers are written, which may be before the coordinator has stored it.
        """
        return self.state in _PREPARED and NO_ID != self.next == producer

    @property
    def _identity(self) -> Identity:
        return Identity(ErrorCode.none, self.producer, self.epoch)

    # -- AddPartitionsToTxn, AddOffsetsToTxn

    def _add(self, event: Add, now: float) -> Effects:
        if self._becomes(event.producer):
            return [_answer(event, ErrorCode.concurrent_transactions)]
        if self.epoch == NO_EPOCH or self.producer != event.producer:
            return [_answer(event, ErrorCode.invalid_producer_id_mapping)]
        if self.epoch != event.epoch:
            return [_answer(event, ErrorCode.producer_fenced)]
        if self.state in _PREPARED:
            return [_answer(event, ErrorCode.concurrent_transactions)]
        ongoing = self.state is State.ONGOING
        if event.verify:
            missing = event.partitions - self.partitions if ongoing else event.partitions
            groups = event.groups - self.groups if ongoing else event.groups
            return [Reply(event.token, Added(ErrorCode.none, self.started, missing, groups))]
        if not ongoing:
            self._begin(now)
        self.partitions |= event.partitions
        self.groups |= event.groups
        self.updated = self._ms(now)
        # Also where all are known: what is known may be an earlier transaction, which another broker has ended.
        return [Persist(), Reply(event.token, Added(ErrorCode.none, self.started))]

    def _begin(self, now: float) -> None:
        self.state = State.ONGOING
        self.started = max(self._ms(now), self.started + 1)

    # -- EndTxn

    def _end(self, event: End, now: float) -> Effects:
        if self.epoch == NO_EPOCH:
            return [_answer(event, ErrorCode.invalid_producer_id_mapping)]
        return self._end_bumping(event, now) if event.bumps else self._end_plain(event, now)

    def _end_plain(self, event: End, now: float) -> Effects:
        """Version 0 and 1 of the protocol: the epoch stays."""
        if self.producer != event.producer:
            return [_answer(event, ErrorCode.invalid_producer_id_mapping)]
        if self.epoch != event.epoch:
            return [_answer(event, ErrorCode.producer_fenced)]
        if self.state is State.ONGOING:
            return self._decide(event, now, bumps=False)
        return [_answer(event, self._repeated(event.commit))]

    def _end_bumping(self, event: End, now: float) -> Effects:
        """Version 2 (KIP-890): an epoch below the current one shows that a request is repeated."""
        if self._becomes(event.producer):
            return [_answer(event, ErrorCode.concurrent_transactions)]
        overflowed = self.previous == event.producer and event.epoch == MAX_EPOCH - 1 and self.epoch == 0
        repeated = self.epoch == event.epoch + 1 or overflowed
        if self.producer != event.producer and not overflowed:
            return [_answer(event, ErrorCode.invalid_producer_id_mapping)]
        if not self._epoch_fits(event.epoch, repeated):
            return [_answer(event, ErrorCode.producer_fenced)]
        if self.state is State.ONGOING or (self.state not in _PREPARED and not repeated and not event.commit):
            return self._decide(event, now, bumps=True)
        if self.state in _PREPARED or repeated:
            error = self._repeated(event.commit)
            return [_answer(event, error) if error else Reply(event.token, self._identity)]
        return [_answer(event, ErrorCode.invalid_txn_state)]

    def _epoch_fits(self, epoch: int, repeated: bool) -> bool:
        if self.state in (State.ONGOING, State.EMPTY):
            return epoch == self.epoch
        return repeated if self.state in _PREPARED else repeated or epoch == self.epoch

    def _repeated(self, commit: bool) -> ErrorCode:
        """The answer to an End of a transaction that was decided."""
        if self.state is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT):
            return ErrorCode.concurrent_transactions
        done = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
        return ErrorCode.none if self.state is done else ErrorCode.invalid_txn_state

    def _decide(self, event: End, now: float, bumps: bool) -> Effects:
        if bumps and self.epoch >= MAX_EPOCH - 1 and event.fresh is None:
            return [Reply(event.token, NeedsProducerId())]
        if self.state is not State.ONGOING:  # version 2 aborts what has no partitions, to raise the epoch
            self._begin(now)
        if bumps:
            self.next = NO_ID
            if self.epoch >= MAX_EPOCH - 1:
                assert event.fresh is not None
                self.next = event.fresh
            self.last_epoch, self.epoch = self.epoch, min(self.epoch + 1, MAX_EPOCH)
        self.waiting.append(event.token)
        return self._prepare(event.commit, now)

    def _prepare(self, commit: bool, now: float) -> Effects:
        self.state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
        self.updated, self.finishing = self._ms(now), True
        return [Persist(), self._finish]

    @property
    def _finish(self) -> Finish:
        commit = self.state is State.PREPARE_COMMIT
        groups, partitions = frozenset(self.groups), frozenset(self.partitions)
        return Finish(self.producer, self.epoch, commit, self.started, partitions, groups)

    def _abort_with_fence(self, now: float) -> Effects:
        """Aborts for the coordinator's own reasons: the epoch rises, so that the producer is fenced."""
        self.last_epoch, self.epoch, self.next = NO_EPOCH, min(self.epoch + 1, MAX_EPOCH), NO_ID
        return self._prepare(commit=False, now=now)

    # -- after the decision

    def _finished(self, event: Finished, now: float) -> Effects:
        if self.state not in _PREPARED or event.started != self.started:
            return []
        self.state, self.finishing, self.updated = _PREPARED[self.state], False, self._ms(now)
        self.partitions.clear()
        self.groups.clear()
        if self.next != NO_ID:
            self.previous, self.producer, self.next, self.epoch = self.producer, self.next, NO_ID, 0
        # A client may be answered once the markers are written: its transaction is over for every reader. Where another
        # broker gets the next one before this state is stored, it looks again (`broker.coordination.transactions`
        # `visit`).
        return [*self._answer_waiting(), Persist()]

    def _delayed(self, event: Delayed, now: float) -> Effects:
        return self._answer_waiting() if event.started == self.started else []

    def _answer_waiting(self) -> Effects:
        """An epoch that has overflowed is the last of its producer id; the client goes on with the next one."""
        identity = self._identity if self.next == NO_ID else Identity(ErrorCode.none, self.next, 0)
        waiting, self.waiting = self.waiting, []
        return [Reply(token, identity) for token in waiting]

    def _tick(self, event: Tick, now: float) -> Effects:
        if self.state in _PREPARED and not self.finishing:  # it was loaded so
            self.finishing = True
            return [self._finish]
        if self.state is State.ONGOING and self._ms(now) >= self.started + self.timeout_ms:
            return self._abort_with_fence(now)
        return []


_AGAIN = ErrorCode.concurrent_transactions


def _answer(event: Any, error: ErrorCode) -> Reply:
    return Reply(event.token, Added(error) if isinstance(event, Add) else Identity(error))


_HANDLERS: Mapping[type, Callable[[Transaction, Any, float], Effects]] = {
    Init: Transaction._init,
    Add: Transaction._add,
    End: Transaction._end,
    Finished: Transaction._finished,
    Delayed: Transaction._delayed,
    Tick: Transaction._tick,
}
