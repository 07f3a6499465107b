"""Idempotent producers of one partition (KIP-98): which batch may come next, which one was here already.

Sans-IO. The truth is the hash `{ks}:producers:{stream}`, written in the transaction that writes the batch; this is what
the broker knows of it, a batch in flight counting as written. Whether a producer has a transaction open is the same
kind of knowledge; its truth is the hash `{ks}:transactions:{stream}`.
"""

from __future__ import annotations

from asyncio import Future
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from ketch.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    NotInTransaction,
    OutOfOrderSequence,
    RedisError,
)
from ketch.store.append.producers import StoredProducer, head
from ketch.store.offsets import LAST_OFFSET, OffsetNumbering

RETAINED_BATCHES = 5  # Kafka's ProducerStateEntry.NUM_BATCHES_TO_RETAIN
_SEQUENCE_MASK = 2**31 - 1


def sequence_behind(sequence: int, count: int) -> int:
    """The sequence `count` records on; 0 follows 2^31 - 1 (Kafka's DefaultRecordBatch.incrementSequence)."""
    return (sequence + count) & _SEQUENCE_MASK


class Sequenced(NamedTuple):
    """What the header of a batch says of its idempotent producer.

    Attributes:
        first: the batch's first sequence.
        transactional: whether it belongs to a transaction.
        started: ms, when that began, where its coordinator has just said that the partition belongs to it.
    """

    id: int
    epoch: int
    first: int
    transactional: bool = False
    started: int | None = None


@dataclass(slots=True)
class Appended:
    """A batch of this producer: its first and last sequence, and its base offset or the future of it."""

    first: int
    last: int
    offset: int | Future[int]


@dataclass(slots=True)
class ProducerState:
    """One producer id's state on one partition."""

    epoch: int = -1
    last_sequence: int = -1
    batches: deque[Appended] = field(default_factory=lambda: deque(maxlen=RETAINED_BATCHES))
    in_transaction: bool = False  # of transactional producers alone is it read

    @property
    def head(self) -> str:
        """What the scripts compare; empty for a producer never seen here."""
        return head(self.epoch, self.last_sequence)

    @classmethod
    def of(cls, stored: StoredProducer, numbering: OffsetNumbering, in_transaction: bool = False) -> ProducerState:
        """The state that Redis holds.

        Raises:
            RedisError: another client wrote it, and a batch in it is beyond Kafka's offsets: no answer could name it.
        """
        batches = [Appended(each.first, each.last, numbering.to_offset(*each.entry)) for each in stored.batches]
        for batch in batches:
            if isinstance(batch.offset, int) and batch.offset > LAST_OFFSET:
                raise RedisError(f"the state of an idempotent producer names offset {batch.offset}")
        return cls(stored.epoch, stored.last_sequence, deque(batches, RETAINED_BATCHES), in_transaction)

    def check(self, epoch: int, first: int, count: int) -> Appended | None:
        """None where the batch is the next one; the earlier batch where it is a duplicate of one of the last five.

        Raises:
            InvalidProducerEpoch: an older epoch than the one seen (47).
            OutOfOrderSequence: a gap, or a duplicate too old to know its offset (45).
        """
        if epoch < self.epoch:
            raise InvalidProducerEpoch(f"epoch {epoch} is older than {self.epoch}")
        if epoch > self.epoch:
            # An unknown producer may start anywhere: its state may have expired. A new epoch starts at 0.
            if self.epoch >= 0 and first != 0:
                raise OutOfOrderSequence(f"sequence {first} at the start of epoch {epoch}")
            return None
        last = sequence_behind(first, count - 1)
        for batch in self.batches:
            if (batch.first, batch.last) == (first, last):
                return batch
        if first != sequence_behind(self.last_sequence, 1):
            raise OutOfOrderSequence(f"sequence {first} where {sequence_behind(self.last_sequence, 1)} is next")
        return None

    def check_transaction(self, batch: Sequenced) -> None:
        """For a batch that `check` has passed.

        Raises:
            NotInTransaction: it belongs to a transaction that is not open here, and may not open it.
            InvalidTransactionState: it belongs to none, and its producer has one open here.
        """
        if batch.transactional and not self.in_transaction and batch.started is None:
            raise NotInTransaction(f"producer {batch.id} has no open transaction on the partition")
        if self.in_transaction and not batch.transactional:
            raise InvalidTransactionState(f"producer {batch.id} has an open transaction on the partition")

    def end_transaction(self, epoch: int) -> None:
        """Takes a marker of this epoch."""
        self.in_transaction = False
        if epoch > self.epoch:
            self.epoch, self.last_sequence = epoch, -1
            self.batches.clear()

    def advance(
        self, epoch: int, first: int, count: int, offset: int | Future[int], transactional: bool = False
    ) -> Appended:
        """Takes a batch that `check` has passed."""
        self.in_transaction |= transactional
        if epoch != self.epoch:
            self.batches.clear()
        self.epoch, self.last_sequence = epoch, sequence_behind(first, count - 1)
        batch = Appended(first, self.last_sequence, offset)
        self.batches.append(batch)
        return batch
