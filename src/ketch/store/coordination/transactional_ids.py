"""Questions about transactional ids in Redis: which there are, and what is coordinated of each.

`{ks}:transactional-ids` names them. `{ks}:transaction:{id}` holds one's state, see `coordinator.transactions.fields`.
The broker that leads a partition adds it to a transaction itself, also where another broker coordinates the id:
`{ks}:transaction-changes` is a journal by which that one learns of it. So several brokers write one state at the same
time, and within a broker several requests. Each write therefore takes a new term, names the one in which the state was
loaded, and raises Overtaken where anyone has written since, see `store.coordination.terms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ketch.redis.question import Command, Question, ask, call, calls, command, keyed
from ketch.store.coordination import terms
from ketch.store.keys import Keyspace
from ketch.store.scripts import Holder, delete_state, hold_state, save_state

_JOURNAL_MAX = 10_000  # changes; brokers read them every few seconds
_AT_ONCE = 500  # ids in one round trip, where all are looked at


def names(keys: Keyspace) -> Question[list[str]]:
    """Every transactional id that is stored."""
    found = yield from call(keys.transactional_ids, "SMEMBERS", keys.transactional_ids)
    return sorted(name.decode() for name in found)


def states(keys: Keyspace, ids: Iterable[str]) -> Question[dict[str, tuple[str, int]]]:
    """The state of each of these ids and when it changed last, ms; ids of which nothing is stored are left out."""
    asked, found = list(ids), dict[str, tuple[str, int]]()
    for start in range(0, len(asked), _AT_ONCE):
        some = asked[start : start + _AT_ONCE]
        key_of = {id: keys.transaction(id) for id in some}
        replies = yield from calls([command(key, "HMGET", key, "state", "updated") for key in key_of.values()])
        for id, (state, updated) in zip(some, replies, strict=True):
            if state is not None:
                found[id] = state.decode(), int(updated or 0)
    return found


def load(keys: Keyspace, id: str) -> Question[dict[str, str]]:
    """The id's fields, and its term; empty where there is none."""
    pairs = yield from call(keys.transaction(id), "HGETALL", keys.transaction(id))
    return {key.decode(): value.decode() for key, value in zip(pairs[::2], pairs[1::2], strict=True)}


def hold(keys: Keyspace, id: str, holder: Holder, above: int = 0) -> Question[str]:
    """The term to write what belongs to the id in; raises Overtaken."""
    return (yield from _named(keys, id, holder, hold_state(keys.transaction(id), holder, above)))


def save(keys: Keyspace, id: str, holder: Holder, fields: Mapping[str, str]) -> Question[str]:
    """As `hold`, in a new term, and replaces the fields as a whole.

    The id is named where its producer or a transaction begins: none that is open is forgotten.
    """
    script = save_state(keys.transaction(id), holder, fields, rises=True)
    if fields["state"] in ("Empty", "Ongoing"):
        return (yield from _named(keys, id, holder, script))
    return terms.granted(f"transactional id {id}", (yield from ask(script)))


def _named(keys: Keyspace, id: str, holder: Holder, script: Command) -> Question[str]:
    """The term that the script gives.

    An id is named before it has a state, wherever its coordinator dies. One with a state was named then. It is named
    again, in case a deletion was cut off since, but the script need not wait for that: the next transaction begins
    without a further round trip.
    """
    naming = keyed("SADD", keys.transactional_ids, id)
    if holder.loaded == "0":
        yield from ask(naming)
        reply = yield from ask(script)
    else:
        _, reply = yield from calls([naming, script])
    return terms.granted(f"transactional id {id}", reply)


def delete(keys: Keyspace, id: str, term: str) -> Question[None]:
    """Forgets an id in the term that `hold` gave; raises Overtaken where it was written since.

    The name goes first: where the id is written in between, nothing is deleted, and it is named again. Were the state
    deleted first, an id that is begun again at that moment could lose its name after it.
    """
    yield from call(keys.transactional_ids, "SREM", keys.transactional_ids, id)
    if not (yield from ask(delete_state(keys.transaction(id), term))):
        yield from call(keys.transactional_ids, "SADD", keys.transactional_ids, id)
        raise terms.Overtaken(f"transactional id {id}")


# -- the journal


def journal(keys: Keyspace, id: str) -> Question[None]:
    """Tells the id's coordinator that another broker has changed it."""
    key = keys.transaction_changes
    yield from call(key, "XADD", key, "MAXLEN", "~", _JOURNAL_MAX, "*", "id", id)


def journal_group(keys: Keyspace, group: str) -> Question[None]:
    """Tells the group's coordinator that offsets of a committed transaction wait to be applied."""
    key = keys.transaction_changes
    yield from call(key, "XADD", key, "MAXLEN", "~", _JOURNAL_MAX, "*", "group", group)


def journal_end(keys: Keyspace) -> Question[bytes]:
    """The id of the journal's last entry; for `changed_since`."""
    last = yield from call(keys.transaction_changes, "XREVRANGE", keys.transaction_changes, "+", "-", "COUNT", 1)
    return last[0][0] if last else b"0-0"


def changed_since(keys: Keyspace, end: bytes) -> Question[tuple[list[str], list[str], bytes]]:
    """The ids and the groups in the journal after entry `end`, and the id of the last entry."""
    entries = yield from call(keys.transaction_changes, "XRANGE", keys.transaction_changes, b"(" + end, "+")
    told = {(fields[0], fields[1].decode()) for _, fields in entries}
    ids = sorted(name for kind, name in told if kind == b"id")
    groups = sorted(name for kind, name in told if kind == b"group")
    return ids, groups, entries[-1][0] if entries else end
