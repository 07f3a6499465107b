"""Calls of the Lua scripts (`store.lua`), one function for each: typed arguments in, a `Command` out.

Scripts of appending: a batch with ids chosen by the caller goes into MULTI between `guard` and `release`, or, where it
is one entry, into `single`. `append` has Redis choose the ids. The headers of the .lua files have the cases;
`store.append.appends` tells the ways apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ketch.redis.question import Command, Word
from ketch.redis.resp import pack
from ketch.store.lua import load
from ketch.store.offsets import LAST_OFFSET, EntryId, OffsetNumbering

# Lua's stack takes so many values in one unpack (LUAI_MAXCSTACK is 8000, some of them used by the call itself).
WIDEST = 7000
SHARE_RANGE = 200_000  # offsets in one range that a member of a share group acknowledges
BEYOND = "the next entry id would be beyond Kafka's offsets"

_GUARD = load("guard")
_RELEASE = load("release")
_SINGLE = load("single")
_APPEND = load("append", WIDEST=WIDEST, BEYOND=BEYOND)
_END_TRANSACTION = load("end_transaction", BEYOND=BEYOND)
_HEADS = load("heads")
_GLANCE = load("glance")
_SIZES = load("sizes")
_INFO = load("info")
_ENDS = load("ends")
_TRANSACTIONS = load("transactions")
_ACKNOWLEDGE = load("acknowledge")
_COUNT = load("count")
_POSITION = load("position")
_EXPIRE_PRODUCER = load("expire_producer")
_NOTE_READER = load("note_reader")
_CREATE_TOPIC = load("create_topic")
_ALTER_TOPIC = load("alter_topic")
_GROW_TOPIC = load("grow_topic")
_NOTE_TOPIC = load("note_topic")
_ANNOUNCE_BROKER = load("announce_broker")
_WITHDRAW_BROKER = load("withdraw_broker")
_HOLD_STATE = load("hold_state")
_SAVE_STATE = load("save_state")
_DELETE_STATE = load("delete_state")
_STORE_COMMIT = load("store_commit")
_REMOVE_COMMIT = load("remove_commit")
_ANNOUNCE_ARCHIVE = load("announce_archive")
_RAISE_ARCHIVE_START = load("raise_archive_start")
_EXTEND_POSITIONS = load("extend_positions")
_BEGIN_COMPACTION = load("begin_compaction")
_HOLD_COMPACTION = load("hold_compaction")
_CARRY_PENDING = load("carry_pending")
_SWAP_COMPACTED = load("swap_compacted", WIDEST=WIDEST)
_SHARE_LOOK = load("share_look")
_SHARE_TAKE = load("share_take")
_SHARE_CLAIM = load("share_claim")
_SHARE_SETTLE = load("share_settle", RANGE=SHARE_RANGE)
_SHARE_EXPIRE = load("share_expire")
_SHARE_LEAVE = load("share_leave")
_SHARE_LOAD = load("share_load")
_SHARE_SAVE = load("share_save")


_TRANSACTIONAL = {"producer": "transactional_producer"}


class _Transactional(NamedTuple):
    """The scripts of appending where the batch belongs to a transaction. Others do not carry what these add."""

    guard: bytes
    single: bytes
    append: bytes


def _transactional(opens: int) -> _Transactional:
    return _Transactional(
        load("guard", _TRANSACTIONAL, OPENS=opens, STARTED="ARGV[10]"),
        load("single", _TRANSACTIONAL, OPENS=opens, STARTED="ARGV[10]"),
        load("append", _TRANSACTIONAL, OPENS=opens, STARTED="ARGV[14]", WIDEST=WIDEST, BEYOND=BEYOND),
    )


_JOINING, _OPENING = _transactional(0), _transactional(1)


class AppendKeys(NamedTuple):
    """The keys of one partition that appends touch; they lie in one slot."""

    stream: bytes
    producers: bytes
    fence: bytes


@dataclass(frozen=True, slots=True)
class Producer:
    """What the scripts need to move an idempotent producer's state along with its batch."""

    id: int | str
    expected: str  # "epoch last_sequence" as known, "" for a producer never seen here
    head: str  # the same after this batch
    batch: str  # "first_sequence:last_sequence:"
    now: int  # ms
    transactions: bytes | None = None  # the partition's open transactions, where the batch belongs to one
    started: int | None = None  # ms: when the transaction began, where the batch may be its first one here

    @property
    def scripts(self) -> _Transactional:
        """Those to append its batches with, which belong to a transaction."""
        return _JOINING if self.started is None else _OPENING

    @property
    def opening(self) -> tuple[Word, ...]:
        """What these need beside the words of an idempotent producer."""
        return () if self.started is None else (self.started,)


def _words(producer: Producer | None) -> tuple[Word, ...]:
    if producer is None:
        return ()
    return producer.id, producer.expected, producer.head, producer.now, producer.batch


def _eval(script: bytes, *words: Word, keys: int = 1) -> Command:
    return Command(words[0] if isinstance(words[0], bytes) else None, pack("EVAL", script, keys, *words))


# -- appending


def guard(keys: AppendKeys, expected: bytes, first: bytes, end: EntryId, producer: Producer | None) -> bytes:
    """See guard.lua. It is a part of a transaction of Redis, so bytes."""
    if producer is None or producer.transactions is None:
        return pack("EVAL", _GUARD, 3, *keys, expected, first, *end, *_words(producer))
    words = (*_words(producer), *producer.opening)
    return pack("EVAL", producer.scripts.guard, 4, *keys, producer.transactions, expected, first, *end, *words)


def release(keys: AppendKeys) -> bytes:
    """See release.lua. It is a part of a transaction of Redis, so bytes."""
    return pack("EVAL", _RELEASE, 2, keys.stream, keys.fence)


def single(
    keys: AppendKeys,
    expected: bytes,
    entry: bytes,
    first: bytes,
    producer: Producer | None,
    fields: bytes | memoryview,
    count: int,
) -> Command:
    """See single.lua.

    Args:
        fields: the entry's `count` fields and values, packed as arguments.
    """
    words = (*_words(producer), first, *producer.opening) if producer else ()
    script: tuple[Word, ...] = (_SINGLE, 3, *keys)
    if producer is not None and producer.transactions is not None:
        script = (producer.scripts.single, 4, *keys, producer.transactions)
    head = ("EVAL", *script, expected, entry, len(words), *words)
    return Command(keys.stream, _with_arguments(head, fields, count))


def append(
    keys: AppendKeys,
    numbering: OffsetNumbering,
    floor: int,
    per_entry: int,
    must_exist: bool,
    producer: Producer | None,
    entries: bytes,
    count: int,
) -> Command:
    """See append.lua.

    Args:
        floor: the least offset of the first record.
        per_entry: offsets of an entry.
        entries: per entry the number of its fields and values and these, packed as `count` arguments.
    """
    words = (*_words(producer), *producer.opening) if producer else ()
    script: tuple[Word, ...] = (_APPEND, 2, keys.stream, keys.producers)
    if producer is not None and producer.transactions is not None:
        script = (producer.scripts.append, 3, keys.stream, keys.producers, producer.transactions)
    head = (
        "EVAL", *script, numbering.bits, *numbering.to_id(floor), per_entry,
        int(must_exist), *numbering.to_id(LAST_OFFSET), len(words), *words,
    )  # fmt: skip
    return Command(keys.stream, _with_arguments(head, entries, count))


def _with_arguments(head: tuple[Word, ...], arguments: bytes | memoryview, count: int) -> bytes:
    """A command whose last `count` arguments are packed already."""
    packed = pack(*head)
    return b"".join((b"*%d" % (len(head) + count), packed[packed.index(b"\r") :], arguments))


@dataclass(frozen=True, slots=True)
class TransactionKeys:
    """The keys of one partition that a marker touches; they lie in one slot."""

    stream: bytes
    producers: bytes
    transactions: bytes
    aborted: bytes


def end_transaction(
    keys: TransactionKeys,
    numbering: OffsetNumbering,
    floor: int,
    producer: tuple[int, int],
    commit: bool,
    started: int,
    now: int,
    fields: Sequence[Word],
) -> Command:
    """See end_transaction.lua.

    Args:
        floor: the least offset of the marker.
        producer: its id, and the marker's epoch.
        started: ms, when the transaction began; one that began later is not ended.
        now: ms.
        fields: the fields and values of the marker's entry.
    """
    words = (
        *producer, started, now, int(not commit), numbering.bits,
        *numbering.to_id(floor), *numbering.to_id(LAST_OFFSET), *fields,
    )  # fmt: skip
    return _eval(_END_TRANSACTION, keys.stream, keys.producers, keys.transactions, keys.aborted, *words, keys=4)


def expire_producer(producers: bytes, transactions: bytes, producer: bytes, state: bytes) -> Command:
    """See expire_producer.lua."""
    return _eval(_EXPIRE_PRODUCER, producers, transactions, producer, state, keys=2)


def note_reader(stream: bytes, producers: bytes, name: str, batch: int, through: int, now: int) -> Command:
    """See note_reader.lua."""
    return _eval(_NOTE_READER, stream, producers, name, batch, through, now, keys=2)


# -- looking


def transactions(transactions: bytes, aborted: bytes, most: int) -> Command:
    """See transactions.lua."""
    return _eval(_TRANSACTIONS, transactions, aborted, most, keys=2)


def heads(stream: bytes, command: str, first: bytes, last: bytes, most: int) -> Command:
    """See heads.lua."""
    return _eval(_HEADS, stream, command, first, last, most)


def glance(
    stream: bytes,
    command: str,
    first: bytes,
    last: bytes,
    most: int,
    beginning: int,
    whole: int,
    fields: int,
    how: str = "",
    key: bytes = b"",
) -> Command:
    """See glance.lua."""
    return _eval(_GLANCE, stream, command, first, last, most, beginning, whole, fields, how, key)


def sizes(stream: bytes, first: bytes, most: int, size: int) -> Command:
    """See sizes.lua."""
    return _eval(_SIZES, stream, first, most, size)


def info(stream: bytes, field: bytes, size: int) -> Command:
    """See info.lua; `streams.parse_info` reads the reply."""
    return _eval(_INFO, stream, field, size)


def ends(stream: bytes, field: bytes, size: int) -> Command:
    """See ends.lua."""
    return _eval(_ENDS, stream, field, size)


def count(stream: bytes, first: bytes, last: bytes, most: int) -> Command:
    """See count.lua."""
    return _eval(_COUNT, stream, first, last, most)


# -- native consumer groups


def acknowledge(stream: bytes, group: str, first: bytes, last: bytes) -> Command:
    """See acknowledge.lua."""
    return _eval(_ACKNOWLEDGE, stream, group, first, last)


def position(stream: bytes, group: str) -> Command:
    """See position.lua."""
    return _eval(_POSITION, stream, group)


# -- share groups


def share_look(stream: bytes, group: str, available: str) -> Command:
    """See share_look.lua."""
    return _eval(_SHARE_LOOK, stream, group, available)


def share_take(stream: bytes, group: str, member: str, available: str, most: int, limit: int) -> Command:
    """See share_take.lua."""
    return _eval(_SHARE_TAKE, stream, group, member, available, most, limit)


def share_claim(stream: bytes, group: str, member: str, *words: Word) -> Command:
    """See share_claim.lua."""
    return _eval(_SHARE_CLAIM, stream, group, member, *words)


def share_settle(
    stream: bytes, group: str, member: str, available: str, lock_ms: int, limit: int, width: int, *words: Word
) -> Command:
    """See share_settle.lua."""
    return _eval(_SHARE_SETTLE, stream, group, member, available, lock_ms, limit, width, *words)


def share_expire(stream: bytes, group: str, available: str, lock_ms: int, limit: int) -> Command:
    """See share_expire.lua."""
    return _eval(_SHARE_EXPIRE, stream, group, available, lock_ms, limit)


def share_leave(stream: bytes, group: str, member: str, available: str) -> Command:
    """See share_leave.lua."""
    return _eval(_SHARE_LEAVE, stream, group, member, available)


def share_load(shares: bytes, group: str) -> Command:
    """See share_load.lua."""
    return _eval(_SHARE_LOAD, shares, group)


def share_save(shares: bytes, group: str, *words: Word) -> Command:
    """See share_save.lua."""
    return _eval(_SHARE_SAVE, shares, group, *words)


# -- topics


def create_topic(key: bytes, *fields: Word) -> Command:
    """See create_topic.lua."""
    return _eval(_CREATE_TOPIC, key, *fields)


def alter_topic(key: bytes, topic_id: str, *fields: Word) -> Command:
    """See alter_topic.lua."""
    return _eval(_ALTER_TOPIC, key, topic_id, *fields)


def grow_topic(key: bytes, topic_id: str, partitions: int) -> Command:
    """See grow_topic.lua."""
    return _eval(_GROW_TOPIC, key, topic_id, partitions)


def note_topic(key: bytes, topic_id: str, field: str, value: Word) -> Command:
    """See note_topic.lua."""
    return _eval(_NOTE_TOPIC, key, topic_id, field, value)


# -- brokers


def announce_broker(
    key: bytes, node: int, host: str, port: int, session: str, timeout_ms: int, listeners: str
) -> Command:
    """See announce_broker.lua."""
    return _eval(_ANNOUNCE_BROKER, key, node, host, port, session, timeout_ms, listeners)


def withdraw_broker(key: bytes, node: int, session: str) -> Command:
    """See withdraw_broker.lua."""
    return _eval(_WITHDRAW_BROKER, key, node, session)


# -- what a broker coordinates, and commits


@dataclass(frozen=True, slots=True)
class Holder:
    """A broker process that writes the state of what it coordinates, as a group's.

    Attributes:
        session, node: the process, and its node id.
        loaded: the term in which it loaded the state; "0" where that had none.
        may_take: whether it may take the term from another process.
    """

    session: str
    node: int
    loaded: str
    may_take: bool

    @property
    def words(self) -> tuple[Word, ...]:
        return (self.loaded, self.session, self.node, int(self.may_take))


def hold_state(state: bytes, holder: Holder, above: int) -> Command:
    """See hold_state.lua; `terms.granted` reads the reply."""
    return _eval(_HOLD_STATE, state, *holder.words, above)


def save_state(state: bytes, holder: Holder, fields: Mapping[str, str], rises: bool = False) -> Command:
    """See save_state.lua; `terms.granted` reads the reply.

    Args:
        rises: the term rises with this write, whoever holds it.
    """
    above = holder.loaded if rises else 0
    return _eval(_SAVE_STATE, state, *holder.words, above, *(word for pair in fields.items() for word in pair))


def delete_state(state: bytes, term: str) -> Command:
    """See delete_state.lua."""
    return _eval(_DELETE_STATE, state, term)


def store_commit(commit: bytes, commit_term: bytes, term: str, offset: int) -> Command:
    """See store_commit.lua."""
    return _eval(_STORE_COMMIT, commit, commit_term, term, offset, keys=2)


def remove_commit(commit: bytes, commit_term: bytes, term: str) -> Command:
    """See remove_commit.lua."""
    return _eval(_REMOVE_COMMIT, commit, commit_term, term, keys=2)


# -- archives


def announce_archive(key: bytes, updated: int, topic_id: str, *fields: Word) -> Command:
    """See announce_archive.lua."""
    return _eval(_ANNOUNCE_ARCHIVE, key, updated, topic_id, *fields)


def raise_archive_start(key: bytes, field: str, offset: int) -> Command:
    """See raise_archive_start.lua."""
    return _eval(_RAISE_ARCHIVE_START, key, field, offset)


# -- byte positions of Kafka 0.7


def extend_positions(
    positions: bytes, known: bytes, to: bytes, magic: int, time: int, kept: Sequence[tuple[bytes, int]]
) -> Command:
    """See extend_positions.lua."""
    return _eval(_EXTEND_POSITIONS, positions, known, to, magic, time, *(word for pair in kept for word in pair))


# -- compaction


def begin_compaction(compaction: bytes, session: str, lease_ms: int) -> Command:
    """See begin_compaction.lua."""
    return _eval(_BEGIN_COMPACTION, compaction, session, lease_ms)


def hold_compaction(compaction: bytes, term: int, lease_ms: int, *fields: Word) -> Command:
    """See hold_compaction.lua."""
    return _eval(_HOLD_COMPACTION, compaction, term, lease_ms, *fields)


def carry_pending(stream: bytes, kept: bytes, carried: bytes, *words: Word) -> Command:
    """See carry_pending.lua."""
    return _eval(_CARRY_PENDING, stream, kept, carried, *words, keys=3)


def swap_compacted(
    compaction: bytes, stream: bytes, kept: bytes, carried: bytes, replaced: bytes, *words: Word
) -> Command:
    """See swap_compacted.lua."""
    return _eval(_SWAP_COMPACTED, compaction, stream, kept, carried, replaced, *words, keys=5)
