"""DeleteAcls (31), versions 1 to 3: removes what filters mean, and names it, for each filter.

All or none of it is removed; it is without force on this broker when the answer comes, and on the others as soon as
Redis has told them. An ACL that several filters mean is named by each. Without an authorizer SECURITY_DISABLED (54), as
Kafka.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.acls import entry_body, filter_of, pattern_body, tell_changes
from ketch.broker.api import Answer, Request
from ketch.broker.resources import DENIED_TEXTS
from ketch.errors import KetchError
from ketch.security.acls import Acl, Filter, Operation, PatternType, Permission, ResourceType
from ketch.wire.responses import Body


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
    tell_changes(request, "removed", acls)
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
            {"error_code": ErrorCode.none, "error_message": None, **pattern_body(acl), **entry_body(acl)}
            for acl in acls
        ],
    }
