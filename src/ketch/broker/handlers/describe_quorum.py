"""DescribeQuorum (55), versions 0 to 2: there is no quorum, brokers share a Redis (KIP-595).

UNSUPPORTED_VERSION (35), as Kafka's brokers answered that kept their metadata in ZooKeeper.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.errors import Refused
from ketch.broker.resources import DENIED_TEXTS


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not describe the cluster."""
    return {"error_code": code, "error_message": DENIED_TEXTS[code], "topics": (), "nodes": ()}


async def handle(request: Request) -> Answer:
    refused = Refused(ErrorCode.unsupported_version, "There is no quorum: the brokers share a Redis.")
    code = request.refuse("", refused)
    return {"error_code": code, "error_message": str(refused), "topics": (), "nodes": ()}
