"""DescribeUserScramCredentials (50), version 0 (KIP-554): which SCRAM credentials users have, and their iterations.

Salts and keys are never told. Kafka's ScramImage is the model: a user that is named twice gets DUPLICATE_RESOURCE (92),
one without credentials RESOURCE_NOT_FOUND (91).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.resources import DENIED_TEXTS
from ketch.errors import KetchError
from ketch.security.scram import Credential, Mechanism
from ketch.store.access import users
from ketch.wire.responses import Body

_TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "
_NOBODY = "Attempt to describe a user credential that does not exist: "


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not describe the cluster."""
    results = [_failed(user.name, code, DENIED_TEXTS[code]) for user in request.body.users or ()]
    return {"error_code": code, "error_message": DENIED_TEXTS[code], "results": results}


async def handle(request: Request) -> Answer:
    try:
        found = await request.broker.log.driver.ask(users.every(request.broker.log.keys))
    except KetchError as error:
        return {"error_code": request.refuse("", error), "error_message": str(error), "results": ()}
    asked = Counter(user.name for user in request.body.users or ()) or Counter(dict.fromkeys(sorted(found), 1))
    results = [_result(name, times, found.get(name, {})) for name, times in asked.items()]
    return {"error_code": ErrorCode.none, "error_message": "", "results": results}


def _result(name: str, times: int, credentials: Mapping[Mechanism, Credential]) -> Body:
    if times > 1:
        return _failed(name, ErrorCode.duplicate_resource, _TWICE + name)
    if not credentials:
        return _failed(name, ErrorCode.resource_not_found, _NOBODY + name)
    held = [(each, credentials[each]) for each in Mechanism if each in credentials]
    infos = [{"mechanism": each.type, "iterations": credential.iterations} for each, credential in held]
    return {"user": name, "error_code": ErrorCode.none, "error_message": "", "credential_infos": infos}


def _failed(name: str, code: ErrorCode, message: str) -> Body:
    return {"user": name, "error_code": code, "error_message": message, "credential_infos": ()}
