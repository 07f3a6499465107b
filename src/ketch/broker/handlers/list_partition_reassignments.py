"""ListPartitionReassignments (46), version 0: none is ever under way, see `alter_partition_reassignments`."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.resources import DENIED_TEXTS


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not describe the cluster."""
    return {"error_code": code, "error_message": DENIED_TEXTS[code], "topics": ()}


async def handle(request: Request) -> Answer:
    return {"error_code": ErrorCode.none, "error_message": None, "topics": ()}
