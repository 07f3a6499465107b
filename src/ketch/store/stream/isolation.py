"""What readers must know of a partition's transactions (KIP-98): up to where they are decided, and which were aborted.

Two keys in the stream's slot say it, and neither is there where it would be empty:

- `{ks}:transactions:{stream}` is a hash with a field for each producer whose transaction is open on the partition:
  `epoch first_id started_ms`.
- `{ks}:aborted:{stream}` is a stream with an entry for each aborted transaction. The entry's id is its marker's. Its
  field `producer` is the producer's id, `first` the id that the transaction's first offset stands for. `stable`, where
  it is there, is the smallest `first` of the transactions that were open after the marker, or the marker's id: no later
  entry has a smaller `first`.

The script that appends a transaction's first batch, or its marker, writes them in the same step
(`store.append.markers`). So a client that reads the stream first and these keys after it knows enough of every
transaction that it has seen a record of. This file writes nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ketch.errors import RedisError
from ketch.records import DecodedBatch
from ketch.redis.question import Command, Question, call
from ketch.redis.resp import checked, parse
from ketch.store import scripts
from ketch.store.keys import Keyspace
from ketch.store.offsets import OffsetNumbering
from ketch.store.stream.ranges import PartitionStream

_NEWEST = 64  # aborted transactions that are known without a further question: those of readers at the tail
_PAGE = 1_000


class IsolationKeys(NamedTuple):
    """The keys of one partition that say it."""

    transactions: bytes
    aborted: bytes


class Aborted(NamedTuple):
    """An aborted transaction: offsets of its first record and of its marker."""

    producer: int
    first: int
    marker: int
    stable: int = -1  # no transaction whose marker comes later begins below it


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions of one partition at one moment.

    Attributes:
        open: by producer id the first offset.
        aborted: the newest that were aborted, in the order of their markers.
        complete: there are no others.
    """

    open: dict[int, int]
    aborted: Sequence[Aborted] = ()
    complete: bool = True

    def begun(self, producer: int, offset: int) -> Transactions:
        """The same, after the first batch of one more."""
        return replace(self, open={**self.open, producer: offset})

    def ended(self, producer: int) -> Transactions:
        """The same, after the marker that commits a producer's transaction."""
        return replace(self, open={each: first for each, first in self.open.items() if each != producer})

    def last_stable(self, start: int, end: int) -> int:
        """The last stable offset of a log: all below it is decided. As in Kafka it never lies below the log's start."""
        return max(start, min(end, *self.open.values())) if self.open else end

    def aborted_in(self, start: int, end: int) -> list[Aborted] | None:
        """Those with a record or the marker from `start` to below `end`; None where Redis has to be asked."""
        if not self.complete and start <= self.aborted[0].marker:
            return None
        return _within(self.aborted, start, end)


NOTHING = Transactions({})


def keys_of(keys: Keyspace, stream: bytes) -> IsolationKeys:
    """The keys of a partition."""
    return IsolationKeys(keys.transactions(stream), keys.aborted(stream))


def look_command(keys: IsolationKeys) -> Command:
    """What `parse_look` reads the reply of. It reads both keys, so client tracking watches both."""
    return scripts.transactions(*keys, _NEWEST)


def parse_look(reply: Any, numbering: OffsetNumbering) -> Transactions:
    """Transactions from the parsed reply to `look_command`.

    Raises:
        RedisError: another client has written what cannot be read. Nothing may be taken for committed then.
    """
    pairs, newest = checked(reply)
    try:
        open_ = {int(producer): _first(text, numbering) for producer, text in zip(pairs[::2], pairs[1::2], strict=True)}
        aborted = [_aborted(entry, numbering) for entry in reversed(newest)]
    except (ValueError, IndexError, KeyError) as error:
        raise RedisError(f"the transactions of a partition cannot be read: {error}") from None
    return Transactions(open_, aborted, len(newest) < _NEWEST) if open_ or aborted else NOTHING


def look(keys: IsolationKeys, numbering: OffsetNumbering) -> Question[Transactions]:
    """The transactions as they are now; raises as `parse_look`."""
    (reply,) = yield (look_command(keys),)
    return parse_look(parse(reply), numbering)


def looks(of: Sequence[PartitionStream], keys: Keyspace) -> Question[list[Transactions]]:
    """As `look`, of many partitions in one round trip."""
    if not of:
        return []
    replies = yield [look_command(keys_of(keys, stream.key)) for stream in of]
    return [parse_look(parse(reply), stream.numbering) for stream, reply in zip(of, replies, strict=True)]


def aborted_in(keys: IsolationKeys, numbering: OffsetNumbering, start: int, end: int) -> Question[list[Aborted]]:
    """Those aborted with a record or the marker from offset `start` to below `end`; raises as `parse_look`."""
    found: list[Aborted] = []
    first = numbering.format_id(*numbering.to_id(start))
    while True:
        page = yield from call(keys.aborted, "XRANGE", keys.aborted, first, "+", "COUNT", _PAGE)
        try:
            read = [_aborted(entry, numbering) for entry in page]
        except (ValueError, IndexError, KeyError) as error:
            raise RedisError(f"the aborted transactions of a partition cannot be read: {error}") from None
        found += _within(read, start, end)
        if len(page) < _PAGE or read[-1].stable >= end:
            return found
        first = b"(" + page[-1][0]


class AbortedIndex:
    """Tells the batches of aborted transactions among those of a range.

    Args:
        aborted: all aborted transactions with a record in the range, in the order of their markers.
    """

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._by_producer: dict[int, list[Aborted]] = {}
        for each in aborted:
            self._by_producer.setdefault(each.producer, []).append(each)

    def holds(self, batch: DecodedBatch) -> bool:
        """Whether a batch is part of one. A producer's transactions follow each other."""
        return batch.transactional and self.has(batch.producer_id, batch.base_offset)

    def has(self, producer: int, offset: int) -> bool:
        """Whether a record that was produced in a transaction is part of one."""
        known = self._by_producer.get(producer, [])
        at = bisect_right(known, offset, key=lambda each: each.marker)
        return at < len(known) and known[at].first <= offset


def readable(batches: list[DecodedBatch], aborted: AbortedIndex | None) -> list[DecodedBatch]:
    """The batches that hold records: no markers, and for a reader of committed records no aborted ones.

    Args:
        aborted: None for a reader of all records.
    """
    if not any(batch.attributes for batch in batches):
        return batches
    return [batch for batch in batches if not (batch.control or (aborted is not None and aborted.holds(batch)))]


def _within(aborted: Iterable[Aborted], start: int, end: int) -> list[Aborted]:
    return [each for each in aborted if start <= each.marker and each.first < end]


def _first(text: bytes, numbering: OffsetNumbering) -> int:
    """The offset in `epoch first_id started_ms`."""
    return numbering.to_offset(*numbering.parse_id(text.split()[1]))


def _aborted(entry: Any, numbering: OffsetNumbering) -> Aborted:
    marker, words = entry
    fields = dict(zip(words[::2], words[1::2], strict=True))
    first, last = (numbering.to_offset(*numbering.parse_id(each)) for each in (fields[b"first"], marker))
    stable = numbering.to_offset(*numbering.parse_id(fields[b"stable"])) if b"stable" in fields else -1
    return Aborted(int(fields[b"producer"]), first, last, stable)
