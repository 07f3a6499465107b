"""The transactions of one partition in Redis: which are open, and how one is ended (KIP-98).

`{ks}:transactions:{stream}` is a hash with a field for each producer whose transaction is open on the partition:
`epoch first_id started_ms`. It is set with the transaction's first batch (transactional_producer.lua) and removed with
the marker (end_transaction.lua), so a partition without open transactions has no such key. `{ks}:aborted:{stream}` is a
stream with an entry for each aborted transaction, whose id is the marker's: `producer`, and `first`, the id that the
first offset of the transaction stands for. Who may open and end a transaction is for
`store.coordination.transactional_ids`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ketch.errors import InvalidProducerEpoch, RedisError
from ketch.records.control import Marker
from ketch.redis.question import Command, Question, call
from ketch.redis.resp import checked, parse
from ketch.store import scripts
from ketch.store.keys import Keyspace
from ketch.store.layouts.layout import Layout
from ketch.store.offsets import EntryId, OffsetNumbering
from ketch.store.scripts import TransactionKeys


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open on a partition.

    Attributes:
        first: the id that its first offset stands for.
        started: ms, when it began, as its coordinator knows it.
    """

    producer: int
    epoch: int
    first: EntryId
    started: int

    @classmethod
    def parse(cls, producer: bytes, text: bytes) -> OpenTransaction:
        """From the hash's field and value.

        Raises:
            RedisError: another client wrote it, and it is no such text.
        """
        try:
            epoch, first, started = text.split()
            return cls(int(producer), int(epoch), OffsetNumbering.parse_id(first), int(started))
        except ValueError as error:
            raise RedisError(f"an open transaction cannot be read: {error}") from None


def keys_of(keys: Keyspace, stream: bytes) -> TransactionKeys:
    """The keys of a partition's transactions."""
    return TransactionKeys(stream, keys.producers(stream), keys.transactions(stream), keys.aborted(stream))


def is_open(transactions: bytes, producer: int | str) -> Question[bool]:
    """Whether a producer has a transaction open on the partition."""
    return bool((yield from call(transactions, "HEXISTS", transactions, producer)))


def all_open(transactions: bytes) -> Question[list[OpenTransaction]]:
    """The transactions that are open on the partition; raises RedisError as `OpenTransaction.parse`."""
    pairs = yield from call(transactions, "HGETALL", transactions)
    return [OpenTransaction.parse(*pair) for pair in zip(pairs[::2], pairs[1::2], strict=True)]


def trim_aborted(aborted: bytes, least: EntryId) -> Question[None]:
    """Forgets the aborted transactions whose marker lies below an id: none of their records can be read any more."""
    yield from call(aborted, "XTRIM", aborted, "MINID", "=", OffsetNumbering.format_id(*least))


class End(NamedTuple):
    """The end of a transaction, ready to be sent.

    Attributes:
        read: takes the command's reply; None where there was no such transaction (any more). It raises
            InvalidProducerEpoch where the producer has written here with a later epoch, and as `resp.checked`.
    """

    command: Command
    read: Callable[[bytes], Ended | None]


class Ended(NamedTuple):
    """A marker is written.

    Attributes:
        id: of its entry.
        follows: last-generated-id before it.
    """

    id: EntryId
    follows: EntryId


def end(keys: TransactionKeys, layout: Layout, numbering: OffsetNumbering, floor: int, marker: Marker, now: int) -> End:
    """The command that writes a marker, and how its reply is read.

    Args:
        floor: the least offset of the marker.
        now: ms.
    """
    producer = (marker.producer, marker.epoch)
    fields = layout.marker(marker, now)
    command = scripts.end_transaction(keys, numbering, floor, producer, marker.commit, marker.started, now, fields)
    return End(command, partial(_read_end, marker))


def _read_end(marker: Marker, reply: bytes) -> Ended | None:
    answer = checked(parse(reply))
    if answer == -1:
        raise InvalidProducerEpoch(f"a marker of epoch {marker.epoch} is older than the producer's epoch")
    return Ended(*map(OffsetNumbering.parse_id, answer)) if answer else None
