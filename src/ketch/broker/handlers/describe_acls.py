"""DescribeAcls (29), versions 1 to 3: the ACLs that a filter means, by resource pattern.

Without an authorizer SECURITY_DISABLED (54), as Kafka. What a filter says by a number that nothing has means no ACL; by
0 it closes the connection.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, CloseConnection, Request
from ketch.broker.resources import DENIED_TEXTS
from ketch.errors import KetchError
from ketch.security.acls import Acl, Filter, Operation, PatternType, Permission, ResourceType
from ketch.wire.responses import Body


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not describe the cluster."""
    return _answer(code, DENIED_TEXTS[code], [])


async def handle(request: Request) -> Answer:
    authorizer, wanted = request.broker.authorizer, filter_of(request.body)
    if authorizer is None:
        return _answer(ErrorCode.security_disabled, "No Authorizer is configured on the broker", [])
    try:
        return _answer(ErrorCode.none, "", await authorizer.chosen(wanted))
    except KetchError as error:
        return _answer(request.refuse("", error), str(error), [])


def filter_of(asked: Any) -> Filter:
    """A filter of a request; raises CloseConnection where Kafka cannot read it."""
    codes = (asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type)
    if 0 in codes:
        raise CloseConnection("a filter of ACLs has UNKNOWN elements")
    return Filter(
        ResourceType.of(asked.resource_type_filter),
        PatternType.of(asked.pattern_type_filter),
        asked.resource_name_filter,
        asked.principal_filter,
        asked.host_filter,
        Operation.of(asked.operation),
        Permission.of(asked.permission_type),
    )


def _answer(code: ErrorCode, message: str, acls: list[Acl]) -> Body:
    by_pattern = groupby(acls, key=lambda acl: (acl.resource, acl.pattern, acl.name))
    return {
        "error_code": code,
        "error_message": message,
        "resources": [
            {
                "resource_type": resource,
                "pattern_type": pattern,
                "resource_name": name,
                "acls": [
                    {
                        "principal": acl.principal,
                        "host": acl.host,
                        "operation": acl.operation,
                        "permission_type": acl.permission,
                    }
                    for acl in entries
                ],
            }
            for (resource, pattern, name), entries in by_pattern
        ],
    }
