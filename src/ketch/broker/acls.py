"""ACLs and filters of them as requests and responses have them, for the APIs 29 to 31.

It owns nothing and asks nobody: `broker.access.authorizer` keeps the ACLs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from ketch.broker.api import CloseConnection, Request
from ketch.security.acls import Acl, Filter, Operation, PatternType, Permission, ResourceType
from ketch.wire.responses import Body

log = logging.getLogger(__name__)


def acl_of(asked: Any) -> Acl:
    """An ACL of a request; raises CloseConnection where Kafka cannot read it."""
    resource, pattern, operation, permission = _elements(asked, asked.resource_type, asked.resource_pattern_type)
    return Acl(resource, pattern, asked.resource_name, asked.principal, asked.host, operation, permission)


def filter_of(asked: Any) -> Filter:
    """A filter of a request; raises CloseConnection where Kafka cannot read it."""
    resource, pattern, operation, permission = _elements(asked, asked.resource_type_filter, asked.pattern_type_filter)
    name, principal, host = asked.resource_name_filter, asked.principal_filter, asked.host_filter
    return Filter(resource, pattern, name, principal, host, operation, permission)


def _elements(asked: Any, resource: int, pattern: int) -> tuple[ResourceType, PatternType, Operation, Permission]:
    """What a request says by numbers, of which 0 stands for UNKNOWN."""
    if 0 in (resource, pattern, asked.operation, asked.permission_type):
        raise CloseConnection("a request about ACLs has UNKNOWN elements")
    action = Operation.of(asked.operation), Permission.of(asked.permission_type)
    return ResourceType.of(resource), PatternType.of(pattern), *action


def pattern_body(acl: Acl) -> Body:
    """The resources of an ACL."""
    return {"resource_type": acl.resource, "pattern_type": acl.pattern, "resource_name": acl.name}


def entry_body(acl: Acl) -> Body:
    """What an ACL says of them."""
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


def tell_changes(request: Request, done: str, acls: Iterable[Acl]) -> None:
    """A line in the log for each ACL that a client has changed.

    Args:
        done: "added" or "removed".
    """
    for acl in acls:
        log.info("%s: %s has %s the ACL %s", request.client, request.caller.principal, done, acl)
