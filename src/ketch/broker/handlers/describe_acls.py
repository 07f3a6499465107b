"""DescribeAcls (29), versions 1 to 3: the ACLs that a filter means, by resource pattern.

Without an authorizer SECURITY_DISABLED (54), as Kafka. What a filter says by a number that nothing has means no ACL; by
0 it closes the connection.
"""

from __future__ import annotations

from itertools import groupby

from kio.schema.errors import ErrorCode

from ketch.broker.acls import entry_body, filter_of, pattern_body
from ketch.broker.api import Answer, Request
from ketch.broker.resources import DENIED_TEXTS
from ketch.errors import KetchError
from ketch.security.acls import Acl
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


def _answer(code: ErrorCode, message: str, acls: list[Acl]) -> Body:
    by_pattern = groupby(acls, key=lambda acl: (acl.resource, acl.pattern, acl.name))
    return {
        "error_code": code,
        "error_message": message,
        "resources": [
            {**pattern_body(acls[0]), "acls": [entry_body(acl) for acl in acls]}
            for acls in (list(group) for _, group in by_pattern)
        ],
    }
