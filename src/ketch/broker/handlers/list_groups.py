"""ListGroups (16), versions 0 to 5: every group, filtered by state (version 4 on, KIP-518) and type (5 on, KIP-848).

A group that a newer version stored, as a kind that this one does not know, is left out, with a line in the log: so
Kafka's CoordinatorLoaderImpl treats records of a type that it does not know.
"""

from __future__ import annotations

import asyncio

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.coordination.kinds.kind import UnknownKind
from ketch.broker.touches import LISTS_GROUP
from ketch.errors import KetchError
from ketch.wire.responses import Body


async def handle(request: Request) -> Answer:
    states = {state.lower() for state in getattr(request.body, "states_filter", ())}
    types = {kind.lower() for kind in getattr(request.body, "types_filter", ())}
    try:
        await request.broker.adoption.look()
        names = await request.broker.groups.names()
        names = [name for name in names if not request.denial_by(LISTS_GROUP, name)]
        groups = await asyncio.gather(*(_listed(request, name) for name in names))
    except KetchError as error:
        return {"error_code": request.refuse("", error), "groups": ()}
    shown = [
        group
        for group in groups
        if group
        and (not states or group["group_state"].lower() in states)
        and (not types or group["group_type"] in types)
    ]
    return {"error_code": ErrorCode.none, "groups": shown}


async def _listed(request: Request, name: str) -> Body | None:
    try:
        group = await request.broker.groups.get(name)
    except UnknownKind as error:
        request.complain(f"ListGroups leaves out a group: {error}", error)
        return None
    return {
        "group_id": name,
        "protocol_type": group.protocol_type or "",
        "group_state": str(group.state),
        "group_type": request.broker.groups.type_of(group),
    }
