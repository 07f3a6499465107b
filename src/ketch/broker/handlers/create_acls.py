"""CreateAcls (30), versions 1 to 3: adds ACLs; one that is there already is no error.

What can be stored of a request is stored at once, all or none; it is in force on this broker when the answer comes, and
on the others as soon as Redis has told them. Without an authorizer SECURITY_DISABLED (54), as Kafka.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.acls import acl_of, tell_changes
from ketch.broker.api import Answer, Request
from ketch.broker.resources import DENIED_TEXTS
from ketch.errors import KetchError
from ketch.security.acls import CLUSTER_NAME, Acl, ResourceType, flaw_of
from ketch.wire.responses import Body


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not alter the cluster."""
    return _every(request, code, DENIED_TEXTS[code])


async def handle(request: Request) -> Answer:
    asked = [(acl := acl_of(each), _flaw(acl)) for each in request.body.creations]
    authorizer = request.broker.authorizer
    if authorizer is None:
        return _every(request, ErrorCode.security_disabled, "No Authorizer is configured.")
    valid = [acl for acl, flaw in asked if not flaw]
    try:
        await authorizer.add(valid)
    except KetchError as error:
        return _every(request, request.refuse("", error), str(error))
    tell_changes(request, "added", valid)
    return {"results": [_result(ErrorCode.invalid_request if flaw else ErrorCode.none, flaw) for _, flaw in asked]}


def _flaw(acl: Acl) -> str:
    """Why an ACL is not stored, in the words of Kafka's AclApis and AclControlManager."""
    if acl.resource is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    return "Invalid empty resource name" if not acl.name else flaw_of(acl)


def _every(request: Request, code: ErrorCode, message: str) -> Answer:
    return {"results": [_result(code, message) for _ in request.body.creations]}


def _result(code: ErrorCode, message: str) -> Body:
    return {"error_code": code, "error_message": message}
