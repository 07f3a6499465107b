"""DeleteAcls (31), versions 1 to 3: removes what filters mean, and names it, for each filter.

All or none of it is removed; it is without force on this broker when the answer comes, and on the others as soon as
Redis has told them. An ACL that several filters mean is named by each. Without an authorizer SECURITY_DISABLED (54), as
Kafka.
"""

from __future__ import annotations

import logging

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.handlers.describe_acls import filter_of
from ketch.broker.resources import DENIED_TEXTS
from ketch.errors import KetchError
from ketch.security.acls import Acl, Filter, Operation, PatternType, Permission, ResourceType
from ketch.wire.responses import Body

log = logging.getLogger(__name__)


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not alter the cluster."""
    return _every(request, code, DENIED_TEXTS[code])


async def handle(request: Request) -> Answer:
    wanted = [filter_of(each) for each in request.body.filters]
    authorizer = request.broker.authorizer
    if authorizer is None:
        return _every(request, ErrorCode.security_disabled, "No Authorizer is configured.")
    flaws = [_flaw(each) for each in wanted]
    try:
        removed = iter(await authorizer.remove([each for each, flaw in zip(wanted, flaws, strict=True) if not flaw]))
    except KetchError as error:
        return _every(request, request.refuse("", error), str(error))
    results = [
        _result(ErrorCode.invalid_request, flaw, []) if flaw else _removed(request, next(removed)) for flaw in flaws
    ]
    return {"filter_results": results}


def _removed(request: Request, acls: list[Acl]) -> Body:
    for acl in acls:
        log.info("%s: %s removed the ACL %s", request.client, request.caller.principal, acl)
    return _result(ErrorCode.none, None, acls)


def _flaw(wanted: Filter) -> str:
    """Why a filter is refused (AclControlManager.validateFilter)."""
    if wanted.resource is ResourceType.UNKNOWN or wanted.pattern is PatternType.UNKNOWN:
        return "Unknown patternFilter."
    unknown = wanted.operation is Operation.UNKNOWN or wanted.permission is Permission.UNKNOWN
    return "Unknown entryFilter." if unknown else ""


def _every(request: Request, code: ErrorCode, message: str) -> Answer:
    return {"filter_results": [_result(code, message, []) for _ in request.body.filters]}


def _result(code: ErrorCode, message: str | None, acls: list[Acl]) -> Body:
    return {
        "error_code": code,
        "error_message": message,
        "matching_acls": [
            {
                "error_code": ErrorCode.none,
                "error_message": None,
                "resource_type": acl.resource,
                "resource_name": acl.name,
                "pattern_type": acl.pattern,
                "principal": acl.principal,
                "host": acl.host,
                "operation": acl.operation,
                "permission_type": acl.permission,
            }
            for acl in acls
        ],
    }
