"""DescribeCluster (60), versions 0 to 2: the live brokers and the cluster's id (KIP-700).

Each broker has the address of the listener that the client came in by; one without such a listener is left out.
There are no controllers to describe (KIP-919), and no fenced brokers: one that is silent is not a broker any more.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.handlers.metadata import NO_NODE, cluster_operations

_BROKERS, _CONTROLLERS = 1, 2  # DescribeClusterRequest.EndpointType


async def handle(request: Request) -> Answer:
    kind = getattr(request.body, "endpoint_type", _BROKERS)
    if kind == _CONTROLLERS:
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return _refused(ErrorCode.mismatched_endpoint_type, message)
    if kind != _BROKERS:
        return _refused(ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {kind}")
    nodes = request.broker.cluster.reached_by(request.caller.listener)
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "endpoint_type": _BROKERS,
        "cluster_id": request.broker.cluster_id,
        "controller_id": nodes[0].id if nodes else NO_NODE,
        "brokers": [
            {"broker_id": node.id, "host": node.host, "port": node.port, "rack": None, "is_fenced": False}
            for node in nodes
        ],
        "cluster_authorized_operations": cluster_operations(request),
    }


def _refused(code: ErrorCode, message: str) -> Answer:
    return {"error_code": code, "error_message": message, "cluster_id": "", "brokers": ()}
