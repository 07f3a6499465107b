"""Decides by ACLs who may do what, as Kafka's StandardAuthorizer does.

The decision about one operation on one resource:

1. A super user may do everything.
2. The ACLs count whose pattern holds for the resource: a literal one of its name, the literal `*`, and each prefix of
   the name. Of these an entry matches by principal (`User:*` is everyone), by host (`*` is every one) and by
   operation.
3. One matching DENY is enough to refuse; else one matching ALLOW is enough to allow.
4. Otherwise it is refused, but where no ACL at all, of whatever principal, has a pattern that holds for the resource,
   `allow.everyone.if.no.acl.found` decides.

ALL stands for every operation. In an ALLOW, DESCRIBE is implied by READ, WRITE, DELETE and ALTER, and DESCRIBE_CONFIGS
by ALTER_CONFIGS; a DENY implies nothing.

The index makes a decision cost one look-up for the name, one for `*`, and one for each length that some prefix has,
however many ACLs there are; within a pattern entries are found by principal. Hosts are compared as addresses, so that
`::1` and `0:0:0:0:0:0:0:1` are one; Kafka compares how Java writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ketch.security.acls import ANYONE, WILDCARD, Acl, Filter, Operation, PatternType, Permission, ResourceType
from ketch.security.addresses import canonical

_IMPLIED_BY = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
_NO_NAME = "hardcode"  # what Authorizer.authorizeByResourceType asks about to find super users

_Entries = dict[str, list[Acl]]  # of one pattern, by principal


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided, and the rule that decided it, in StandardAuthorizer's words for its log."""

    allowed: bool
    rule: str


_SUPER_USER = Decision(True, "SuperUser")
DEFAULT_DENY, _DEFAULT_ALLOW = Decision(False, "DefaultDeny"), Decision(True, "DefaultAllow")


class _Patterns:
    """The patterns of one type of resource."""

    def __init__(self) -> None:
        self.literal: dict[str, _Entries] = {}
        self.prefixed: dict[str, _Entries] = {}
        self.lengths: list[int] = []  # that prefixes have

    def add(self, acl: Acl) -> None:
        patterns = self.literal if acl.pattern is PatternType.LITERAL else self.prefixed
        patterns.setdefault(acl.name, {}).setdefault(acl.principal, []).append(acl)

    def holding(self, name: str) -> Iterator[_Entries]:
        """The entries of each pattern that holds for a name."""
        for literal in {name, WILDCARD}:
            if literal in self.literal:
                yield self.literal[literal]
        for length in self.lengths:
            if length > len(name):
                return
            found = self.prefixed.get(name[:length])
            if found is not None:
                yield found


class Rules:
    """The ACLs as they were at one moment, with what the settings add. It never changes: others take its place.

    Args:
        acls: all of them; None: they are not known yet, and nobody but a super user may do anything.
        super_users: principals.
        allow_if_none: `allow.everyone.if.no.acl.found`.
    """

    def __init__(
        self, acls: Iterable[Acl] | None, super_users: Iterable[str] = (), allow_if_none: bool = False
    ) -> None:
        self._super_users = frozenset(super_users)
        self.acls = frozenset(acls or ())
        self._default = _DEFAULT_ALLOW if allow_if_none and acls is not None else DEFAULT_DENY
        self._types: dict[ResourceType, _Patterns] = {}
        for acl in self.acls:
            self._types.setdefault(acl.resource, _Patterns()).add(acl)
        for patterns in self._types.values():
            patterns.lengths = sorted({len(prefix) for prefix in patterns.prefixed})

    def decide(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> Decision:
        """Whether a principal may do something to one resource.

        Args:
            host: the address that it calls from.
            operation: not ANY or ALL.
            name: of the resource; a pattern's characters have no meaning in it.
        """
        if principal in self._super_users:
            return _SUPER_USER
        found, allowed = False, None
        host = canonical(host)
        patterns = self._types.get(resource)
        for entries in () if patterns is None else patterns.holding(name):
            found = True
            for acl in _of(entries, principal, host):
                if not _covers(acl, operation):
                    continue
                if acl.permission is Permission.DENY:
                    return Decision(False, f"MatchingAcl(acl=StandardAcl({acl}))")
                allowed = allowed or acl
        if allowed is not None:
            return Decision(True, f"MatchingAcl(acl=StandardAcl({allowed}))")
        return DEFAULT_DENY if found else self._default

    def allows_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        """Whether a principal may do something to at least one resource of a type, one that need not exist.

        As Authorizer.authorizeByResourceType: operations imply no other one here.
        """
        if self.decide(principal, host, operation, resource, _NO_NAME).allowed:
            return True
        host = canonical(host)
        allowed: list[Acl] = []
        denied: set[tuple[PatternType, str]] = set()
        for acl in self._all_of(principal, host, resource):
            if acl.operation in (operation, Operation.ALL):
                if acl.permission is Permission.ALLOW:
                    allowed.append(acl)
                else:
                    denied.add((acl.pattern, acl.name))
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(acl.name == WILDCARD and acl.pattern is PatternType.LITERAL for acl in allowed) or any(
            not _overruled(acl, denied) for acl in allowed
        )

    def _all_of(self, principal: str, host: str, resource: ResourceType) -> Iterator[Acl]:
        patterns = self._types.get(resource)
        if patterns is not None:
            for entries in (*patterns.literal.values(), *patterns.prefixed.values()):
                yield from _of(entries, principal, host)

    def chosen(self, wanted: Filter) -> list[Acl]:
        """The ACLs that a filter means, sorted."""
        return sorted(acl for acl in self.acls if wanted.matches(acl))


def _of(entries: _Entries, principal: str, host: str) -> Iterator[Acl]:
    """The entries that match by principal and host."""
    for who in {principal, ANYONE}:
        for acl in entries.get(who, ()):
            if acl.host == WILDCARD or canonical(acl.host) == host:
                yield acl


def _covers(acl: Acl, operation: Operation) -> bool:
    """Whether an entry matches by its operation."""
    if acl.operation in (Operation.ALL, operation):
        return True
    return acl.permission is Permission.ALLOW and acl.operation in _IMPLIED_BY.get(operation, ())


def _overruled(acl: Acl, denied: set[tuple[PatternType, str]]) -> bool:
    """Whether what an ALLOW allows is denied altogether, by the same literal or by a prefix."""
    if acl.pattern is PatternType.LITERAL and (PatternType.LITERAL, acl.name) in denied:
        return True
    return any((PatternType.PREFIXED, acl.name[:length]) in denied for length in range(1, len(acl.name) + 1))
