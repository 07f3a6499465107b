"""DeleteGroups (42), versions 0 to 2: a group without members goes, with its commits and its native groups in Redis."""

from __future__ import annotations

import logging

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.errors import KetchError
from ketch.wire.messages import Body

log = logging.getLogger(__name__)


async def handle(request: Request) -> Answer:
    names = dict.fromkeys(request.body.groups_names)
    return {"throttle_time": 0, "results": [await _delete(request, name) for name in names]}


async def _delete(request: Request, name: str) -> Body:
    try:
        error = await _error(request, name)
        if not error:
            await request.broker.groups.delete(await request.broker.groups.get(name))
            log.info("%s: deleted group %s", request.client, name)
    except KetchError as failure:
        request.note(f"DeleteGroups {name}: {failure}")
        error = ErrorCode.coordinator_not_available
    return {"group_id": name, "error_code": error}


async def _error(request: Request, name: str) -> ErrorCode:
    if not name:
        return ErrorCode.invalid_group_id
    if not await request.broker.groups.exists(name):
        return ErrorCode.group_id_not_found
    group = await request.broker.groups.get(name)
    return ErrorCode.non_empty_group if group.members else ErrorCode.none
