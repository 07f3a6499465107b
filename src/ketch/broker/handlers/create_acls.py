"""CreateAcls (30), versions 1 to 3: adds ACLs; one that is there already is no error.

What can be stored of a request is stored at once, all or none; it is in force on this broker when the answer comes, and
on the others as soon as Redis has told them. Without an authorizer SECURITY_DISABLED (54), as Kafka.
"""

from __future__ import annotations

import logging
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, CloseConnection, Request
from ketch.broker.resources import DENIED_TEXTS
from ketch.errors import KetchError
from ketch.security.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType, flaw_of
from ketch.wire.responses import Body

log = logging.getLogger(__name__)


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not alter the cluster."""
    return _every(request, code, DENIED_TEXTS[code])


async def handle(request: Request) -> Answer:
    asked = [(acl := _acl(each), _flaw(acl)) for each in request.body.creations]
    authorizer = request.broker.authorizer
    if authorizer is None:
        return _every(request, ErrorCode.security_disabled, "No Authorizer is configured.")
    valid = [acl for acl, flaw in asked if not flaw]
    try:
        await authorizer.add(valid)
    except KetchError as error:
        return _every(request, request.refuse("", error), str(error))
    for acl in valid:
        log.info("%s: %s added the ACL %s", request.client, request.caller.principal, acl)
    return {"results": [_result(ErrorCode.invalid_request if flaw else ErrorCode.none, flaw) for _, flaw in asked]}


def _acl(asked: Any) -> Acl:
    """An ACL of a request; raises CloseConnection where Kafka cannot read it."""
    codes = (asked.resource_type, asked.resource_pattern_type, asked.operation, asked.permission_type)
    if 0 in codes:
        raise CloseConnection("an ACL has UNKNOWN elements")
    return Acl(
        ResourceType.of(asked.resource_type),
        PatternType.of(asked.resource_pattern_type),
        asked.resource_name,
        asked.principal,
        asked.host,
        Operation.of(asked.operation),
        Permission.of(asked.permission_type),
    )


def _flaw(acl: Acl) -> str:
    """Why an ACL is not stored, in the words of Kafka's AclApis and AclControlManager."""
    if acl.resource is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    return "Invalid empty resource name" if not acl.name else flaw_of(acl)


def _every(request: Request, code: ErrorCode, message: str) -> Answer:
    return {"results": [_result(code, message) for _ in request.body.creations]}


def _result(code: ErrorCode, message: str) -> Body:
    return {"error_code": code, "error_message": message}
