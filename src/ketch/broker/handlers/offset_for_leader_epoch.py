"""OffsetForLeaderEpoch (23), versions 2 to 4: where a leader's epoch ends (KIP-320).

There is one epoch, 0, and it ends at the high watermark: a consumer whose position lies beyond it learns that records
are gone, which happens where Redis came back without its newest ones.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.errors import check_leader_epoch
from ketch.broker.topics import find_partition
from ketch.errors import KetchError
from ketch.wire.responses import Body

_NONE = -1  # OffsetForLeaderEpochResponse.UNDEFINED_EPOCH and _OFFSET
_EPOCH = 0


async def handle(request: Request) -> Answer:
    topics = [
        {"topic": topic.topic, "partitions": [await _end(request, topic.topic, part) for part in topic.partitions]}
        for topic in request.body.topics
    ]
    return {"topics": topics}


async def _end(request: Request, name: str, asked: Any) -> Body:
    code, epoch, end = ErrorCode.none, _NONE, _NONE
    try:
        partition = await find_partition(request, name, asked.partition)
        check_leader_epoch(asked.current_leader_epoch)
        if asked.leader_epoch == _EPOCH:
            epoch, end = _EPOCH, (await partition.bounds.get()).high_watermark
    except KetchError as error:
        code = request.refuse(f"{name}-{asked.partition}", error)
    return {"error_code": code, "partition": asked.partition, "leader_epoch": epoch, "end_offset": end}
