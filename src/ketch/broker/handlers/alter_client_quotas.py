"""AlterClientQuotas (49), versions 0 and 1: sets and removes quotas, each entity by itself (KIP-546).

Of one entity either all changes are made or none; as in Kafka it may be named once, and each of its quotas once. This
broker goes by them at once, the others within a heartbeat.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request, printable
from ketch.broker.errors import Refused
from ketch.broker.resources import DENIED_TEXTS
from ketch.errors import KetchError
from ketch.security.quotas import InvalidQuota, check, entity
from ketch.wire.responses import Body

log = logging.getLogger(__name__)


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not alter the configs of the cluster."""
    entries = [
        {
            "error_code": code,
            "error_message": DENIED_TEXTS[code],
            "entity": [{"entity_type": part.entity_type, "entity_name": part.entity_name} for part in entry.entity],
        }
        for entry in request.body.entries
    ]
    return {"entries": entries}


async def handle(request: Request) -> Answer:
    every = [(entry, _parts(entry)) for entry in request.body.entries]
    times = Counter(frozenset(parts.items()) for _, parts in every)
    entries = [await _alter(request, entry, parts, times[frozenset(parts.items())] > 1) for entry, parts in every]
    return {"entries": entries}


def _parts(entry: Any) -> dict[str, str | None]:
    return {part.entity_type: part.entity_name for part in entry.entity}  # of a type that comes twice the last


async def _alter(request: Request, entry: Any, parts: dict[str, str | None], twice: bool) -> Body:
    code, message = ErrorCode.none, None
    changes = {op.key: None if op.remove else op.value for op in entry.ops}
    try:
        if twice or len(changes) < len(entry.ops):
            raise InvalidQuota(f"Duplicate {'entity' if twice else 'quota key'}")
        await _change(request, parts, changes)
    except KetchError as error:
        mistake = isinstance(error, InvalidQuota)
        why = Refused(ErrorCode.invalid_request, str(error)) if mistake else error
        code, message = request.refuse("", why), printable(str(error))
    return {
        "error_code": code,
        "error_message": message,
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in parts.items()],
    }


async def _change(request: Request, parts: dict[str, str | None], changes: dict[str, float | None]) -> None:
    whom = entity(parts)
    for key, value in changes.items():
        if value is not None:
            check(whom, key, value)
    if changes and not request.body.validate_only:
        await request.broker.quotas.alter(whom, changes)
        shown = ", ".join(f"{key}={value}" for key, value in changes.items())
        log.info("%s: quotas of %s changed: %s", request.client, printable(str(dict(whom))), printable(shown))
