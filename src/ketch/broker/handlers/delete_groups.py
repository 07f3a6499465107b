"""DeleteGroups (42), versions 0 to 2: a group without members goes, with its commits and its native groups in Redis."""

from __future__ import annotations

import logging

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.topics import denied
from ketch.errors import KetchError
from ketch.security.acls import ResourceType
from ketch.wire.responses import Body

log = logging.getLogger(__name__)


async def handle(request: Request) -> Answer:
    names = dict.fromkeys(request.body.groups_names)  # Kafka, too, answers once who is named twice
    return {"results": [await _delete(request, name) for name in names]}


async def _delete(request: Request, name: str) -> Body:
    if code := request.denial(ResourceType.GROUP, name):
        return {"group_id": name, "error_code": request.refuse(f"group {name}", denied(code), code)}
    try:
        request.broker.groups.require(name)
        await request.broker.adoption.look()
        error = ErrorCode.group_id_not_found
        if await request.broker.groups.exists(name):
            error = ErrorCode.none if await request.broker.groups.delete(name) else ErrorCode.non_empty_group
            log.info("%s: delete group %s: %s", request.client, name, error.name.upper())
    except KetchError as failure:
        error = request.refuse(f"group {name}", failure)
    return {"group_id": name, "error_code": error}
