"""AlterUserScramCredentials (51), version 0 (KIP-554): sets and deletes SCRAM credentials.

A client sends the salted password, never the password; what is stored is made of that here. Kafka's ScramControlManager
is the model. All changes of a request that can be are stored together. A user that a request names twice gets
DUPLICATE_RESOURCE (92) and no change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request, printable
from ketch.broker.errors import Refused
from ketch.broker.resources import DENIED_TEXTS
from ketch.errors import KetchError
from ketch.security.scram import BY_TYPE, MAX_ITERATIONS, MIN_ITERATIONS, Credential, Mechanism
from ketch.store.access import users
from ketch.wire.responses import Body

_TWICE = "A user credential cannot be altered twice in the same request"

_Found = dict[str, dict[Mechanism, Credential]]
_Changes = dict[str, tuple[Mechanism, Credential | None]]


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not alter the cluster: one result for each user that it names."""
    names = dict.fromkeys(change.name for change in (*request.body.deletions, *request.body.upsertions))
    message = DENIED_TEXTS[code]
    return {"results": [{"user": name, "error_code": code, "error_message": message} for name in names]}


async def handle(request: Request) -> Answer:
    body, log = request.body, request.broker.log
    changes: _Changes = {}
    errors: dict[str, KetchError] = {}
    try:
        found = await log.driver.ask(users.every(log.keys)) if body.deletions else {}
        changes, errors = _judge((*body.deletions, *body.upsertions), found)
        await log.driver.ask(users.change(log.keys, {(name, each[0]): each[1] for name, each in changes.items()}))
    except KetchError as error:
        changes, errors = {}, dict.fromkeys((each.name for each in (*body.deletions, *body.upsertions)), error)
    results = [{"user": name, "error_code": ErrorCode.none, "error_message": None} for name in changes]
    return {"results": results + [_refused(request, name, error) for name, error in errors.items()]}


def _judge(asked: Iterable[Any], found: _Found) -> tuple[_Changes, dict[str, KetchError]]:
    """What can be done, and why the rest cannot; of several errors about a user the first counts."""
    changes: _Changes = {}
    errors: dict[str, KetchError] = {}
    for change in asked:
        if change.name in errors:
            continue
        if changes.pop(change.name, None) is not None:
            errors[change.name] = Refused(ErrorCode.duplicate_resource, _TWICE)
            continue
        try:
            changes[change.name] = _change(change, found.get(change.name, {}))
        except Refused as error:
            errors[change.name] = error
    return changes, errors


def _change(change: Any, held: Mapping[Mechanism, Credential]) -> tuple[Mechanism, Credential | None]:
    """The mechanism, and the credential that is set; None for a deletion. Args: held: what the user has."""
    if not change.name:
        raise Refused(ErrorCode.unacceptable_credential, "Username must not be empty")
    mechanism = BY_TYPE.get(change.mechanism)
    if mechanism is None:
        raise Refused(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    if hasattr(change, "iterations"):
        return mechanism, _credential(change, mechanism)
    if mechanism not in held:
        raise Refused(ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist")
    return mechanism, None


def _credential(upsertion: Any, mechanism: Mechanism) -> Credential:
    if upsertion.iterations < MIN_ITERATIONS:
        raise Refused(ErrorCode.unacceptable_credential, "Too few iterations")
    if upsertion.iterations > MAX_ITERATIONS:
        raise Refused(ErrorCode.unacceptable_credential, "Too many iterations")
    return Credential.of_salted(mechanism, upsertion.salted_password, upsertion.salt, upsertion.iterations)


def _refused(request: Request, name: str, error: KetchError) -> Body:
    code = request.refuse(printable(name), error)
    return {"user": name, "error_code": code, "error_message": printable(str(error))}
