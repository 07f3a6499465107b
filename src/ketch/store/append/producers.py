"""The state of idempotent producers on one partition (KIP-98), as the hash `{ks}:producers:{stream}` holds it.

A field is one producer: `epoch last_sequence updated_ms` and up to five batches `first:last:entry_id`, by which a retry
is recognised. The transaction or script that writes a batch writes it too (producer.lua), and compares its `head`. What
may come next is decided by `log.appending.producers`. Fields whose names are no numbers are Spark's: of its tasks that
write, and of queries that read (`note_reader`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from ketch.errors import RedisError
from ketch.redis.question import Question, ask, call, calls, keyed
from ketch.store import scripts
from ketch.store.offsets import EntryId, OffsetNumbering
from ketch.store.scripts import Producer

READER = "spark-read:"  # begins the field of a query that reads; its id follows
_SCANNED = 1000  # writers that one look goes through


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch of a producer: its first and last sequence, and the id of its first offset."""

    first: int
    last: int
    entry: EntryId


@dataclass(frozen=True, slots=True)
class StoredProducer:
    """One producer's state. `epoch` -1 stands for a producer that was never seen on the partition.

    Attributes:
        updated: ms of the last write.
        batches: the last ones, oldest first.
    """

    epoch: int = -1
    last_sequence: int = -1
    updated: int = 0
    batches: Sequence[StoredBatch] = ()

    @property
    def head(self) -> str:
        return head(self.epoch, self.last_sequence)

    @classmethod
    def parse(cls, text: bytes | None) -> StoredProducer:
        """From the hash's field; None for a field that is not there.

        Raises:
            RedisError: another client wrote the field, and it holds no such state.
        """
        if not text:
            return cls()
        try:
            epoch, last, updated, *batches = text.decode().split()
            return cls(int(epoch), int(last), int(updated), tuple(map(_batch, batches)))
        except ValueError as error:
            raise RedisError(f"the state of an idempotent producer cannot be read: {error}") from None


def _batch(text: str) -> StoredBatch:
    first, last, entry = text.split(":")
    return StoredBatch(int(first), int(last), OffsetNumbering.parse_id(entry.encode()))


def head(epoch: int, last_sequence: int) -> str:
    """What the scripts compare; empty for a producer never seen on the partition."""
    return f"{epoch} {last_sequence}" if epoch >= 0 else ""


def moved(
    producer: int | str,
    expected: str,
    epoch: int,
    first: int,
    last: int,
    now: int,
    transactions: bytes | None = None,
    started: int | None = None,
) -> Producer:
    """A producer's state after a batch, for the scripts of appending.

    Args:
        expected: the head before the batch.
        first, last: the batch's sequences.
        now: ms.
        transactions: the key of the partition's open transactions, where the batch belongs to one.
        started: ms, when that began, where the batch may be its first one here.
    """
    return Producer(producer, expected, head(epoch, last), f"{first}:{last}:", now, transactions, started)


def load(producers: bytes, producer: int | str) -> Question[StoredProducer]:
    """A producer's state; raises RedisError as `StoredProducer.parse`."""
    return StoredProducer.parse((yield from call(producers, "HGET", producers, producer)))


def load_all(producers: bytes) -> Question[dict[int, StoredProducer]]:
    """Every Kafka producer's state; what cannot be read is passed over, and so are other writers, which have names."""
    pairs = yield from call(producers, "HGETALL", producers)
    found = {}
    for name, text in zip(pairs[::2], pairs[1::2], strict=True):
        if name.isdigit():
            with contextlib.suppress(RedisError):
                found[int(name)] = StoredProducer.parse(text)
    return found


def some_named(of: Sequence[bytes], prefix: str) -> Question[list[dict[str, StoredProducer]]]:
    """Of each of these hashes the writers whose names begin so, as far as one HSCAN goes; in one round trip."""
    replies = yield from calls([keyed("HSCAN", key, 0, "MATCH", f"{prefix}*", "COUNT", _SCANNED) for key in of])
    found = []
    for _, pairs in replies:
        states: dict[str, StoredProducer] = {}
        for name, text in zip(pairs[::2], pairs[1::2], strict=True):
            with contextlib.suppress(RedisError):
                states[name.decode(errors="replace")] = StoredProducer.parse(text)
        found.append(states)
    return found


def of_reader(of: Sequence[bytes], query: str) -> Question[list[StoredProducer | None]]:
    """How far a query has read the partition of each of these hashes (`note_reader`); None where nothing is noted that
    can be read. In one round trip."""
    replies = yield from calls([keyed("HGET", key, READER + query) for key in of])
    found: list[StoredProducer | None] = []
    for text in replies:
        found.append(None)
        with contextlib.suppress(RedisError):
            found[-1] = StoredProducer.parse(text) if text else None
    return found


def note_reader(stream: bytes, producers: bytes, query: str, batch: int, through: int, now: int) -> Question[bool]:
    """Notes how far a streaming query has read a partition. The broker forgets it as it forgets producers (`expire`).

    Args:
        batch: the micro-batch; it takes the place of a producer's epoch.
        through: the offset behind what was read; it takes the place of a producer's last sequence.
        now: ms.

    Returns:
        Whether it did: not where the partition has no stream.
    """
    done = yield from ask(scripts.note_reader(stream, producers, READER + query, batch, through, now))
    return bool(done)


def forget(producers: bytes, producer: int | str) -> Question[None]:
    """Removes a producer's state: it will not write again."""
    yield from call(producers, "HDEL", producers, producer)


def expire(producers: bytes, transactions: bytes, oldest: int) -> Question[None]:
    """Forgets the producers that have not written since `oldest` (ms) and have no transaction open.

    A state that cannot be read stays.
    """
    cursor: bytes | int = 0
    while True:
        cursor, pairs = yield from call(producers, "HSCAN", producers, cursor, "COUNT", 1000)
        old = [pair for pair in zip(pairs[::2], pairs[1::2], strict=True) if _is_older(pair[1], oldest)]
        yield from calls([scripts.expire_producer(producers, transactions, *pair) for pair in old])
        if int(cursor) == 0:
            return


def _is_older(state: bytes, oldest: int) -> bool:
    try:
        return StoredProducer.parse(state).updated < oldest
    except RedisError:
        return False
