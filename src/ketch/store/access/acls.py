"""Questions about ACLs: the set `{ks}:acls`, a member for each, as JSON (`security.acls.Acl.text`).

One key, so a change of several ACLs is one command: all or none. A member that cannot be read is passed over, with a
line in the log: a person wrote it, or a newer version did, with a type or an operation that no request of this one
asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ketch.redis.question import Question, call
from ketch.security.acls import Acl, UnreadableAcl, parse
from ketch.store.keys import Keyspace
from ketch.store.topics.handwritten import complain


def read(keys: Keyspace) -> Question[list[bytes]]:
    """The members, which `parsed` reads."""
    members: list[bytes] = yield from call(keys.acls, "SMEMBERS", keys.acls)
    return members


def parsed(members: Iterable[bytes], known: Mapping[bytes, Acl] | None = None) -> dict[bytes, Acl]:
    """The ACLs of members, by these; a person may have written one twice, in other white space.

    Args:
        known: members read before, so that they need not be parsed again.
    """
    known, found = known or {}, {}
    for member in members:
        acl = known.get(member) or _readable(member)
        if acl is not None:
            found[member] = acl
    return found


def count(keys: Keyspace) -> Question[int]:
    """How many members there are."""
    number: int = yield from call(keys.acls, "SCARD", keys.acls)
    return number


def add(keys: Keyspace, acls: Iterable[Acl]) -> Question[int]:
    """Adds ACLs, one at least; those that are there already stay. How many are new."""
    number: int = yield from call(keys.acls, "SADD", keys.acls, *dict.fromkeys(acl.text for acl in acls))
    return number


def remove(keys: Keyspace, members: Iterable[bytes]) -> Question[int]:
    """Removes ACLs by their members, one at least. How many were there."""
    number: int = yield from call(keys.acls, "SREM", keys.acls, *members)
    return number


def _readable(member: bytes) -> Acl | None:
    try:
        return parse(member.decode())
    except (UnreadableAcl, UnicodeDecodeError):
        complain(f"ACLs: {member[:200]!r} cannot be read; it is passed over")
        return None
