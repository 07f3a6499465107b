"""FindCoordinator (10), versions 0 to 6: the broker that a group falls to; several at once from 4 on (KIP-699).

There are no transactions. A transactional id (key type 1) gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED, as InitProducerId
answers: clients take that code as final and end `initTransactions` at once. Other key types get INVALID_REQUEST.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.wire.responses import Body

_GROUP, _TRANSACTION = 0, 1


async def handle(request: Request) -> Answer:
    body = request.body
    kind = getattr(body, "key_type", _GROUP)
    if request.version >= 4:
        return {"throttle_time": 0, "coordinators": [_coordinator(request, kind, key) for key in body.coordinator_keys]}
    return {"throttle_time": 0, **_coordinator(request, kind, body.key)}


def _coordinator(request: Request, kind: int, key: str) -> Body:
    if kind == _TRANSACTION:
        request.note(f"FindCoordinator for transactional id {key}: there are no transactions")
        message = "There are no transactions."
        return _entry(key, ErrorCode.transactional_id_authorization_failed, message, -1, "", -1)
    if kind != _GROUP:
        return _entry(key, ErrorCode.invalid_request, f"Key type {kind} has no coordinator.", -1, "", -1)
    node = request.broker.cluster.coordinator("group", key)
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
