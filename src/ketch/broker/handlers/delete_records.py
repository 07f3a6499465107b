"""DeleteRecords (21), versions 0 to 2: the records of a partition below an offset, -1 for all that there are (KIP-107).

They are gone from the stream when the answer comes; the request's timeout is for followers, and there are none. A topic
that is only compacted refuses it (POLICY_VIOLATION 44).
"""

from __future__ import annotations

import logging
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.errors import Refused
from ketch.broker.topics import find_topic
from ketch.errors import KetchError
from ketch.wire.responses import Body

log = logging.getLogger(__name__)

_NO_WATERMARK = -1  # DeleteRecordsResponse.INVALID_LOW_WATERMARK


async def handle(request: Request) -> Answer:
    return {"topics": [await _topic(request, topic) for topic in request.body.topics]}


async def _topic(request: Request, asked: Any) -> Body:
    partitions = [await _partition(request, asked.name, part) for part in asked.partitions]
    return {"name": asked.name, "partitions": partitions}


async def _partition(request: Request, name: str, asked: Any) -> Body:
    index = asked.partition_index
    try:
        topic = await find_topic(request, name)
        if not topic.deletes:
            raise Refused(ErrorCode.policy_violation, f"cleanup.policy of topic {name} is compact, without delete")
        low_watermark = await request.broker.log.partition(topic, index).delete_before(asked.offset)
    except KetchError as error:
        return _body(index, request.refuse(f"{name}-{index}", error), _NO_WATERMARK)
    log.info("%s: deleted the records of %s-%d below %d", request.client, name, index, low_watermark)
    return _body(index, ErrorCode.none, low_watermark)


def _body(index: int, error: ErrorCode, low_watermark: int) -> Body:
    return {"partition_index": index, "low_watermark": low_watermark, "error_code": error}
