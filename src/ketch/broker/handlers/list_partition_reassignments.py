"""ListPartitionReassignments (46), version 0: none is ever under way, see `alter_partition_reassignments`."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request


async def handle(request: Request) -> Answer:
    return {"error_code": ErrorCode.none, "error_message": None, "topics": ()}
