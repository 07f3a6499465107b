"""FindCoordinator (10), versions 0 to 6: the broker that a group falls to; several at once from 4 on (KIP-699).

Key type 0 is a group, 1 a transactional id. Other key types get INVALID_REQUEST. The address
is that of the listener that the client came in by; of a broker without such a listener none is known
(COORDINATOR_NOT_AVAILABLE), as in Kafka.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.resources import DENIED_TEXTS
from ketch.broker.topics import denied
from ketch.security.acls import ResourceType
from ketch.wire.responses import Body

_GROUP = 0
_KINDS = {_GROUP: "group", 1: "transaction"}
_RESOURCES = {_GROUP: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}


async def handle(request: Request) -> Answer:
    body = request.body
    kind = getattr(body, "key_type", _GROUP)
    if request.version >= 4:
        return {"coordinators": [_coordinator(request, kind, key) for key in body.coordinator_keys]}
    return _coordinator(request, kind, body.key)


def _coordinator(request: Request, kind: int, key: str) -> Body:
    if kind not in _KINDS:
        return _entry(key, ErrorCode.invalid_request, f"Key type {kind} has no coordinator.", -1, "", -1)
    if code := request.denial(_RESOURCES[kind], key):
        code = request.refuse(f"{_KINDS[kind]} {key}", denied(code), code)
        return _entry(key, code, DENIED_TEXTS[code], -1, "", -1)
    node = request.broker.cluster.coordinator(_KINDS[kind], key).at(request.caller.listener)
    if node is None:
        return _entry(key, ErrorCode.coordinator_not_available, "The coordinator is not available.", -1, "", -1)
    return _entry(key, ErrorCode.none, None, node.id, node.host, node.port)


def _entry(key: str, error: ErrorCode, message: str | None, node: int, host: str, port: int) -> Body:
    return {
        "key": key,
        "error_code": error,
        "error_message": message,
        "node_id": node,
        "host": host,
        "port": port,
    }
