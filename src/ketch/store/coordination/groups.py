"""Questions about consumer groups in Redis: which groups there are, each one's membership, and which changed of late.

`{ks}:groups` names the groups. `{ks}:group:{id}` holds one group's membership; each write names the term in which the
group was loaded and raises Overtaken where another coordinator has written since, see `store.coordination.terms`.
`{ks}:group-changes` is a journal by which brokers learn of each other's groups. Committed offsets:
`store.coordination.commits`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ketch.redis.question import Command, Question, ask, call, calls, keyed
from ketch.store.coordination import commits, terms
from ketch.store.coordination.sharing import stored_ranges
from ketch.store.keys import Keyspace, TopicPartition
from ketch.store.scripts import Holder, delete_state, hold_state, save_state

_JOURNAL_MAX = 10_000  # changes of groups; brokers read them every few seconds


def names(keys: Keyspace) -> Question[list[str]]:
    """Every group that has members, had them, or has committed."""
    found = yield from call(keys.groups, "SMEMBERS", keys.groups)
    return sorted(name.decode() for name in found)


def exists(keys: Keyspace, group: str) -> Question[bool]:
    """Whether `names` has it."""
    return bool((yield from call(keys.groups, "SISMEMBER", keys.groups, group)))


def types(keys: Keyspace, names: Sequence[str]) -> Question[dict[str, str]]:
    """Each group's field `type`; "" of classic groups, which have none."""
    found = yield from calls([keyed("HGET", keys.group(name), "type") for name in names])
    return {name: (kind or b"").decode() for name, kind in zip(names, found, strict=True)}


def load(keys: Keyspace, group: str) -> Question[dict[str, str]]:
    """The group's fields, see `coordinator.classic.fields`, and its term; empty where it has never had members."""
    pairs = yield from call(keys.group(group), "HGETALL", keys.group(group))
    return {key.decode(): value.decode() for key, value in zip(pairs[::2], pairs[1::2], strict=True)}


def hold(keys: Keyspace, group: str, holder: Holder, above: int = 0) -> Question[str]:
    """The term to write the group's commits in.

    Args:
        above: a term to be higher than.

    Raises:
        Overtaken: another coordinator has written the group since it was loaded.
    """
    if holder.loaded.isdecimal() and int(holder.loaded) > above:
        # For most commits a look is enough: the term is this process's, and hold_state.lua would write nothing.
        key = keys.group(group)
        if (yield from call(key, "HMGET", key, "term", "session")) == [holder.loaded.encode(), holder.session.encode()]:
            return holder.loaded
    return (yield from _held(keys, group, holder, hold_state(keys.group(group), holder, above)))


def save(keys: Keyspace, group: str, holder: Holder, fields: Mapping[str, str]) -> Question[str]:
    """As `hold`, and replaces the group's fields as a whole."""
    return (yield from _held(keys, group, holder, save_state(keys.group(group), holder, fields), listed_again=True))


def _held(keys: Keyspace, group: str, holder: Holder, script: Command, listed_again: bool = False) -> Question[str]:
    """The term that the script gives.

    A group is listed before it has a term: so no group is left out of the list, wherever its coordinator dies. A group
    with a term was listed then. Where it is listed again, in case it was deleted by name since, the script need not
    wait for that.
    """
    listing = keyed("SADD", keys.groups, group)
    if holder.loaded == "0":
        yield from ask(listing)
        listed_again = False
    *_, reply = yield from calls([listing, script] if listed_again else [script])
    return terms.granted(f"group {group}", reply)


def emptied(keys: Keyspace, group: str) -> Question[int]:
    """When the group lost its last member, ms since the epoch; 0 where it never had any."""
    return int((yield from call(keys.group(group), "HGET", keys.group(group), "updated")) or 0)


def delete(keys: Keyspace, group: str, partitions: Iterable[TopicPartition], term: str) -> Question[None]:
    """Deletes the group with its commits, and its native groups on these partitions' streams; raises Overtaken.

    Its name goes last: what is left of a deletion that was cut off can be deleted by the name.
    """
    known = yield from commits.partitions(keys, group)
    if not (yield from ask(delete_state(keys.group(group), term))):
        raise terms.Overtaken(f"group {group}")
    everywhere = {*partitions, *known}
    yield from commits.forget(keys, group, everywhere, term)
    yield from stored_ranges.remove([keys.shares(keys.stream(*partition)) for partition in everywhere], group)
    yield from calls([keyed("DEL", key) for key in (keys.offsets(group), keys.pending_offsets(group))])
    yield from call(keys.groups, "SREM", keys.groups, group)


# -- the journal


def journal(keys: Keyspace, group: str) -> Question[None]:
    """Tells the other brokers that the group has changed."""
    key = keys.group_changes
    yield from call(key, "XADD", key, "MAXLEN", "~", _JOURNAL_MAX, "*", "group", group)


def journal_end(keys: Keyspace) -> Question[bytes]:
    """The id of the journal's last entry; for `changed_since`."""
    last = yield from call(keys.group_changes, "XREVRANGE", keys.group_changes, "+", "-", "COUNT", 1)
    return last[0][0] if last else b"0-0"


def changed_since(keys: Keyspace, end: bytes) -> Question[tuple[list[str], bytes]]:
    """The groups that have changed after journal entry `end`, and the id of the last entry."""
    entries = yield from call(keys.group_changes, "XRANGE", keys.group_changes, b"(" + end, "+")
    changed = {fields[1].decode() for _, fields in entries}
    return sorted(changed), entries[-1][0] if entries else end
