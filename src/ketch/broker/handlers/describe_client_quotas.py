"""DescribeClientQuotas (48), versions 0 and 1: the quotas whose entities a filter finds (KIP-546)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request, printable
from ketch.broker.errors import Refused
from ketch.broker.resources import DENIED_TEXTS
from ketch.security.quotas import TYPES, Entity, named

_EXACT, _DEFAULT, _ANY = range(3)  # DescribeClientQuotasRequest.MATCH_TYPE


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not describe the configs of the cluster."""
    return {"error_code": code, "error_message": DENIED_TEXTS[code], "entries": None}


async def handle(request: Request) -> Answer:
    try:
        _check(request.body.components)
    except Refused as error:
        code = request.refuse("", error)
        return {"error_code": code, "error_message": printable(str(error)), "entries": None}
    limits = request.broker.quotas.limits
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in whom],
            "values": [{"key": key, "value": value} for key, value in limits[whom].items()],
        }
        for whom in limits
        if _found(whom, request.body)
    ]
    return {"error_code": ErrorCode.none, "error_message": None, "entries": entries}


def _found(whom: Entity, body: Any) -> bool:
    """Whether the filter finds an entity (ClientQuotasImage.describe); strict: it has no other types, either."""
    if body.strict and len(whom) != len(body.components):
        return False
    names = dict(whom)
    return all(
        each.entity_type in names
        and (each.match_type == _ANY or names[each.entity_type] == named(each.entity_type, each.match))
        for each in body.components
    )


def _check(components: Sequence[Any]) -> None:
    """ClientQuotaManager's order of checks."""
    seen: list[str] = []
    for component in components:
        kind = component.entity_type
        if not kind:
            raise Refused(ErrorCode.invalid_request, "Invalid empty entity type.")
        if kind in seen:
            raise Refused(ErrorCode.invalid_request, f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in TYPES:
            raise Refused(ErrorCode.unsupported_version, f"Unsupported entity type {kind}")
        _check_match(component)
        seen.append(kind)
    if "ip" in seen and len(seen) > 1:
        message = "IP filter component should not be used with user or clientId filter component."
        raise Refused(ErrorCode.invalid_request, f"Invalid entity filter component combination. {message}")


def _check_match(component: Any) -> None:
    kind, match = component.match_type, component.match
    if kind not in (_EXACT, _DEFAULT, _ANY):
        raise Refused(ErrorCode.invalid_request, f"Unknown match type {kind}")
    if kind == _EXACT and match is None:
        raise Refused(ErrorCode.invalid_request, "Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if kind != _EXACT and match is not None:
        name = {_DEFAULT: "MATCH_TYPE_DEFAULT", _ANY: "MATCH_TYPE_SPECIFIED"}[kind]
        raise Refused(ErrorCode.invalid_request, f"Request specified {name}, but also specified a match string.")
