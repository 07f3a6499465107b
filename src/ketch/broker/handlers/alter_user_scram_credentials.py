"""AlterUserScramCredentials (51), version 0 (KIP-554): sets and deletes SCRAM credentials.

A client sends the salted password, never the password; what is stored is made of that here. Kafka's ScramControlManager
is the model. All changes of a request that can be are stored together. A user that a request names twice gets
DUPLICATE_RESOURCE (92) and no change.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request, printable
from ketch.broker.errors import Refused
from ketch.errors import KetchError
from ketch.security.scram import BY_TYPE, MAX_ITERATIONS, MIN_ITERATIONS, Credential, Mechanism
from ketch.store.access import users
from ketch.store.access.users import Entry

_Changes = dict[Entry, Credential | None]


async def handle(request: Request) -> Answer:
    body, log = request.body, request.broker.log
    asked = [change.name for change in (*body.deletions, *body.upsertions)]
    errors: dict[str, KetchError | None] = dict.fromkeys(asked)
    changes: _Changes = {}
    try:
        found = await log.driver.ask(users.every(log.keys)) if body.deletions else {}
        for change in (*body.deletions, *body.upsertions):
            try:
                if asked.count(change.name) > 1:
                    message = "A user credential cannot be altered twice in the same request"
                    raise Refused(ErrorCode.duplicate_resource, message)
                entry = _entry(change)
                changes[entry] = _credential(change, entry, found)
            except Refused as error:
                errors[change.name] = error
        await log.driver.ask(users.change(log.keys, changes))
    except KetchError as error:
        errors = dict.fromkeys(asked, error)
    return {"results": [_result(request, name, error) for name, error in errors.items()]}


def _entry(change: Any) -> Entry:
    if not change.name:
        raise Refused(ErrorCode.unacceptable_credential, "Username must not be empty")
    mechanism = BY_TYPE.get(change.mechanism)
    if mechanism is None:
        raise Refused(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    return change.name, mechanism


def _credential(change: Any, entry: Entry, found: dict[str, dict[Mechanism, Credential]]) -> Credential | None:
    """What an upsertion sets; None of a deletion."""
    name, mechanism = entry
    if not hasattr(change, "iterations"):
        if mechanism not in found.get(name, {}):
            message = "Attempt to delete a user credential that does not exist"
            raise Refused(ErrorCode.resource_not_found, message)
        return None
    if change.iterations < MIN_ITERATIONS:
        raise Refused(ErrorCode.unacceptable_credential, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise Refused(ErrorCode.unacceptable_credential, "Too many iterations")
    return Credential.of_salted(mechanism, change.salted_password, change.salt, change.iterations)


def _result(request: Request, name: str, error: KetchError | None) -> dict[str, Any]:
    code = ErrorCode.none if error is None else request.refuse(printable(name), error)
    return {"user": name, "error_code": code, "error_message": None if error is None else printable(str(error))}
