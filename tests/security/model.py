"""What StandardAuthorizer decides, written from its documentation, slow and obvious: every ACL is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ketch.security.acls import Acl, Operation, PatternType, Permission, ResourceType

IMPLIES = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def holds(acl: Acl, resource: ResourceType, name: str) -> bool:
    """Whether an ACL's pattern is one of this resource."""
    if acl.resource != resource:
        return False
    if acl.pattern == PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, "*")


def fits(acl: Acl, principal: str, host: str, operation: Operation) -> bool:
    operations = {operation, Operation.ALL}
    if acl.permission == Permission.ALLOW:
        operations |= IMPLIES.get(operation, set())
    return acl.principal in (principal, "User:*") and acl.host in (host, "*") and acl.operation in operations


@dataclass(frozen=True, slots=True)
class Model:
    """Args as of `ketch.security.rules.Rules`."""

    acls: Sequence[Acl]
    super_users: Sequence[str]
    allow_if_none: bool

    def allowed(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        if principal in self.super_users:
            return True
        holding = [acl for acl in self.acls if holds(acl, resource, name)]
        if not holding:
            return self.allow_if_none
        fitting = [acl.permission for acl in holding if fits(acl, principal, host, operation)]
        return Permission.DENY not in fitting and Permission.ALLOW in fitting

    def allowed_somewhere(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        """Whether some name of a resource is not denied and allowed by an ACL for this very operation."""
        exact = [acl for acl in self.acls if acl.resource == resource and acl.operation in (operation, Operation.ALL)]
        mine = [acl for acl in exact if acl.principal in (principal, "User:*") and acl.host in (host, "*")]
        denied = [acl for acl in mine if acl.permission == Permission.DENY]

        def overruled(acl: Acl) -> bool:
            """A DENY holds for everything that this ALLOW does."""
            return any(
                (deny.pattern == PatternType.LITERAL and deny.name == "*")
                or (deny.pattern == PatternType.PREFIXED and not everything(acl) and acl.name.startswith(deny.name))
                or (deny.pattern == acl.pattern == PatternType.LITERAL and deny.name == acl.name)
                for deny in denied
            )

        if self.allowed(principal, host, operation, resource, "hardcode"):
            return True
        return any(acl.permission == Permission.ALLOW and not overruled(acl) for acl in mine)


def everything(acl: Acl) -> bool:
    return acl.pattern == PatternType.LITERAL and acl.name == "*"
