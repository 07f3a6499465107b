"""What a transactional Produce needs before its batches are appended: that the partitions belong to the transaction.

A producer of version 2 of the protocol (Produce 12 on) has its partitions added by the broker that it writes to. An
older one has added them itself (AddPartitionsToTxn), and the broker only verifies that (KIP-890). Either is asked of
the transaction's coordinator once for each partition and transaction: then the partition knows that it is open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from ketch.broker.api import Request
from ketch.broker.errors import Refused
from ketch.coordinator.transactions.transaction import Add, Added
from ketch.errors import CorruptRecord, KetchError
from ketch.log.appending.producers import Sequenced
from ketch.log.partition import Partition
from ketch.records import peek_header

_ADDS_SINCE = 12
_ABORTABLE_SINCE = 11


@dataclass(frozen=True, slots=True)
class Consent:
    """What the coordinator says of one partition.

    Attributes:
        started: ms, when the transaction began.
        error: why the partition does not belong to it.
    """

    started: int = 0
    error: ErrorCode = ErrorCode.none

    def given(self, producer: Sequenced) -> Sequenced:
        """The producer with the consent; raises Refused where there is none."""
        if self.error:
            raise Refused(self.error, "the partition could not be added to the transaction")
        return producer._replace(started=self.started)


async def enter(request: Request, producers: Mapping[Partition, tuple[int, int]]) -> dict[Partition, Consent]:
    """Asks the coordinator about the partitions on which the transaction is not known to be open.

    Args:
        producers: producer id and epoch of what is to be appended, by partition.
    """
    wanted: dict[tuple[int, int], list[Partition]] = {}
    for partition, producer in producers.items():
        if not partition.in_transaction(*producer):
            wanted.setdefault(producer, []).append(partition)
    found: dict[Partition, Consent] = {}
    for producer, partitions in wanted.items():
        found |= await _ask(request, producer, partitions)
    return found


def transactional(data: bytes) -> tuple[int, int] | None:
    """Producer id and epoch of a transactional batch; None for others, and for what the append will refuse anyway."""
    try:
        header = peek_header(data)
    except CorruptRecord:
        return None
    return (header.producer_id, header.producer_epoch) if header.transactional else None


async def _ask(request: Request, producer: tuple[int, int], partitions: list[Partition]) -> dict[Partition, Consent]:
    id, names = request.body.transactional_id, {each: (each.topic.name, each.index) for each in partitions}
    verify = request.version < _ADDS_SINCE
    lease = request.broker.cluster.leased_at(request.received)
    try:
        added: Added = await request.broker.transactions.visit(
            id, lambda token: Add(token, *producer, frozenset(names.values()), verify=verify), lease, verify
        )
    except KetchError as error:
        request.complain(f"Produce: transactional id {id}: {error}", error)
        return dict.fromkeys(partitions, Consent(error=ErrorCode.not_enough_replicas))
    return {each: _consent(request, added, names[each]) for each in partitions}


def _consent(request: Request, added: Added, partition: tuple[str, int]) -> Consent:
    """In codes that a client of the request's version knows how to take (ReplicaManager.handleProduceAppend)."""
    error = added.error
    if partition in added.missing:
        knows = request.version >= _ABORTABLE_SINCE
        error = ErrorCode.transaction_abortable if knows else ErrorCode.invalid_txn_state
    elif error is ErrorCode.producer_fenced:
        error = ErrorCode.invalid_producer_epoch
    elif error is ErrorCode.coordinator_not_available or (
        error is ErrorCode.concurrent_transactions and request.version < _ADDS_SINCE
    ):
        error = ErrorCode.not_enough_replicas  # retriable to every client
    return Consent(added.started, error)
