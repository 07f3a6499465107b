"""The offsets that open transactions commit for a group: kept until the transaction is decided, then applied (KIP-98).

`{ks}:pending-offsets:{group}` is a hash, see pend_offsets.lua; it is not there while no transaction commits offsets.
The group's coordinator adds to it (TxnOffsetCommit). The transaction's coordinator marks what is there as committed, or
removes it. The group's coordinator then applies what is committed: it stores the commits in the group's term, and
removes the fields last. So a broker that dies in between leaves committed offsets, which the next coordinator of the
group applies, before it answers anything about the group's offsets. A late writer is refused by the term.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from ketch.redis.question import Command, Question, ask, call
from ketch.redis.resp import pack
from ketch.store.coordination.commits import Committed
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.lua import load

_PEND = load("pend_offsets")
_DECIDE = load("decide_offsets")


@dataclass(slots=True)
class Pending:
    """The offsets of one transaction for one group.

    Attributes:
        committed: the transaction is committed, so they are to be applied.
    """

    producer: int
    started: int
    committed: bool
    transactional_id: str
    offsets: dict[TopicPartition, Committed] = field(default_factory=dict)


def pend(
    keys: Keyspace,
    group: str,
    transactional_id: str,
    producer: tuple[int, int],
    started: int,
    offsets: Mapping[TopicPartition, Committed],
) -> Question[int]:
    """Keeps offsets of an open transaction; see pend_offsets.lua for the reply.

    Args:
        producer: its id and epoch.
        started: ms, when the transaction began.
    """
    words: list[str | int] = [*producer, started, transactional_id]
    for (topic, index), commit in offsets.items():
        value = json.dumps([commit.offset, commit.leader_epoch, commit.time, commit.metadata])
        words += [f"{producer[0]}:{topic}:{index}", value]
    reply: int = yield from ask(_eval(_PEND, keys.pending_offsets(group), *words))
    return reply


def decide(keys: Keyspace, group: str, producer: int, started: int, commit: bool) -> Question[None]:
    """The transaction that began then is decided; can be repeated."""
    yield from ask(_eval(_DECIDE, keys.pending_offsets(group), producer, started, int(commit)))


def _eval(script: bytes, key: bytes, *words: str | int) -> Command:
    return Command(key, pack("EVAL", script, 1, key, *words))


def load_all(keys: Keyspace, group: str) -> Question[list[Pending]]:
    """What is pending for the group. Fields that another client wrote are passed over."""
    key = keys.pending_offsets(group)
    pairs = yield from call(key, "HGETALL", key)
    fields = {name.decode(): value.decode() for name, value in zip(pairs[::2], pairs[1::2], strict=True)}
    found = {name: _head(int(name), value) for name, value in fields.items() if name.isdigit()}
    for name, value in fields.items():
        producer, colon, partition = name.partition(":")
        topic, _, index = partition.rpartition(":")
        pending = found.get(producer)
        if colon and pending is not None and index.isdigit():
            offset, epoch, time, metadata = json.loads(value)
            pending.offsets[topic, int(index)] = Committed(offset, epoch, metadata, time)
    return list(found.values())


def _head(producer: int, text: str) -> Pending:
    _, started, state, transactional_id = text.split(" ", 3)
    return Pending(producer, int(started), state == "committed", transactional_id)


def applied(keys: Keyspace, group: str, pending: Pending) -> Question[None]:
    """Removes what was applied, unless it is gone and the producer's next transaction has taken its place."""
    yield from decide(keys, group, pending.producer, pending.started, commit=False)
