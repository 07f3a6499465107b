"""DeleteTopics (20), versions 1 to 6: by name, from version 6 on by id as well (KIP-516)."""

from __future__ import annotations

import logging
from collections import Counter
from uuid import UUID

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request, printable
from ketch.broker.errors import Refused
from ketch.broker.topics import ZERO_ID, find_topic_now
from ketch.errors import KetchError
from ketch.security.acls import Operation, ResourceType
from ketch.store.topics.topic import Topic, shown
from ketch.wire.responses import Body

log = logging.getLogger(__name__)

_STRICT_SINCE = 5


async def handle(request: Request) -> Answer:
    asked = [(name, ZERO_ID) for name in getattr(request.body, "topic_names", ())]
    asked += [(state.name, state.topic_id or ZERO_ID) for state in getattr(request.body, "topics", ())]
    times = Counter(asked)
    return {"responses": [await _delete(request, *key, times[key]) for key in times]}


async def _delete(request: Request, name: str | None, topic_id: UUID, times: int) -> Body:
    refusal = _refusal(name, topic_id, times)
    if refusal:
        return _result(name, topic_id, ErrorCode.invalid_request, refusal)
    try:
        topic = await _find(request, name, topic_id)
        if request.body.timeout.total_seconds() <= 0:
            return _result(name, topic_id, ErrorCode.request_timed_out, None)
        request.mutate(topic.partitions, strict=request.version >= _STRICT_SINCE)
        await request.broker.log.delete(topic)
    except KetchError as error:
        code = request.refuse(name or shown(topic_id), error)
        return _result(name, topic_id, code, printable(str(error)))
    log.info("%s: deleted topic %s", request.client, topic.name)
    return _result(topic.name, topic.id, ErrorCode.none, None)


async def _find(request: Request, name: str | None, topic_id: UUID) -> Topic:
    try:
        return await find_topic_now(request, topic_id if name is None else name)
    except Refused:
        # As Kafka: who may describe a topic, if not delete it, is told that it is not there.
        if name is not None and request.allowed(Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=True):
            await request.broker.log.topic(name)
        raise


def _refusal(name: str | None, topic_id: UUID, times: int) -> str | None:
    if times > 1:
        return "Duplicate topic name."
    if name is None and topic_id == ZERO_ID:
        return "Neither topic name nor id were specified."
    if name is not None and topic_id != ZERO_ID:
        return "You may not specify both topic name and topic id."
    return None


def _result(name: str | None, topic_id: UUID, error: ErrorCode, message: str | None) -> Body:
    return {"name": name, "topic_id": topic_id, "error_code": error, "error_message": message}
