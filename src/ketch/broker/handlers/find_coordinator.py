"""FindCoordinator (10), versions 0 to 6: the broker that a group falls to; several at once from 4 on (KIP-699).

Key type 0 is a group, 1 a transactional id. Key type 2 is a share group on a partition, as `group:topic id:partition`
(version 6 on, KIP-932): brokers of Kafka ask it, and here it is the partition's leader, which keeps what Kafka's share
coordinator does. Other key types get INVALID_REQUEST. The address is that of the listener that the client came in by;
of a broker without such a listener none is known (COORDINATOR_NOT_AVAILABLE), as in Kafka.
"""

from __future__ import annotations

import base64
import binascii
import re
import uuid

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.resources import DENIED_TEXTS
from ketch.broker.topics import denied
from ketch.security.acls import CLUSTER_NAME, ResourceType
from ketch.store.cluster.brokers import Node
from ketch.tasks import taking_turns
from ketch.wire.responses import Body

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_KINDS = {_GROUP: "group", _TRANSACTION: "transaction", _SHARE: "share partition"}
_RESOURCES = {
    _GROUP: ResourceType.GROUP,
    _TRANSACTION: ResourceType.TRANSACTIONAL_ID,
    _SHARE: ResourceType.CLUSTER,
}
_SHARE_SINCE = 6
_INDEX = re.compile(r"[-+]?[0-9]{1,10}")
_ID_MAX = 24  # characters, as in Kafka's Uuid
_AT_ONCE = 1000  # keys that are answered in one go, some 10 ms


async def handle(request: Request) -> Answer:
    body = request.body
    kind = getattr(body, "key_type", _GROUP)
    if request.version >= 4:
        keys = taking_turns(body.coordinator_keys, _AT_ONCE)
        return {"coordinators": [_coordinator(request, kind, key) async for key in keys]}
    return _coordinator(request, kind, body.key)


def _coordinator(request: Request, kind: int, key: str) -> Body:
    if kind not in _KINDS or (kind == _SHARE and request.version < _SHARE_SINCE):
        return _entry(key, ErrorCode.invalid_request, f"Key type {kind} has no coordinator.", -1, "", -1)
    if code := request.denial(_RESOURCES[kind], CLUSTER_NAME if kind == _SHARE else key):
        code = request.refuse(f"{_KINDS[kind]} {key}", denied(code), code)
        return _entry(key, code, DENIED_TEXTS[code], -1, "", -1)
    owner = _owner(request, kind, key)
    if owner is None:
        return _entry(key, ErrorCode.invalid_request, "The key should be groupId:topicId:partition.", -1, "", -1)
    node = owner.at(request.caller.listener)
    if node is None:
        return _entry(key, ErrorCode.coordinator_not_available, "The coordinator is not available.", -1, "", -1)
    return _entry(key, ErrorCode.none, None, node.id, node.host, node.port)


def _owner(request: Request, kind: int, key: str) -> Node | None:
    """The broker of what has this key; None where no share partition can have it."""
    cluster = request.broker.cluster
    if kind != _SHARE:
        return cluster.coordinator(_KINDS[kind], key)
    partition = _share_partition(key)
    return None if partition is None else cluster.leader_node(*partition)


def _share_partition(key: str) -> tuple[uuid.UUID, int] | None:
    """Topic id and partition of a key; None where Kafka's SharePartitionKey refuses it, which lets colons follow."""
    tokens = key.rstrip(":").split(":")
    if len(tokens) != 3 or not tokens[0].strip() or not _INDEX.fullmatch(tokens[2]):
        return None
    try:
        topic_id = base64.b64decode(tokens[1] + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(tokens[1]) > _ID_MAX or len(topic_id) != 16:
        return None
    return uuid.UUID(bytes=topic_id), int(tokens[2])


def _entry(key: str, error: ErrorCode, message: str | None, node: int, host: str, port: int) -> Body:
    return {
        "key": key,
        "error_code": error,
        "error_message": message,
        "node_id": node,
        "host": host,
        "port": port,
    }
