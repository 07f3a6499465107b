"""AlterShareGroupOffsets (91), version 0: a share group without members begins elsewhere (KIP-932).

What lies below the offset counts as done, and the rest as never delivered. From an offset below 0 the group begins
anew, by `share.auto.offset.reset`.

Deviation: Kafka 4.1.0 answers without the topics that there are, and moves nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request, printable
from ketch.broker.resources import DENIED_TEXTS
from ketch.broker.share_offsets import UNKNOWN_TOPIC, find, judge
from ketch.broker.topics import ZERO_ID
from ketch.coordinator.consumer.topics import TopicInfo
from ketch.coordinator.share.events import ShareMove
from ketch.errors import KetchError
from ketch.store.topics.topic import Topic
from ketch.wire.responses import Body


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not read as the group."""
    return _answer(code, DENIED_TEXTS[code])


async def handle(request: Request) -> Answer:
    body = request.body
    if not body.topics:
        return _answer(ErrorCode.none, None)
    try:
        found = [await find(request, asked.topic_name) for asked in body.topics]
        known = {topic.name: TopicInfo(str(topic.id), topic.partitions) for topic, _ in found if topic is not None}
        if known:
            code, message = await judge(request, body.group_id, lambda token: ShareMove(token, known))
            if code:
                return _answer(code, message)
        topics = [await _topic(request, asked, *each) for asked, each in zip(body.topics, found, strict=True)]
    except KetchError as error:
        return _answer(request.refuse(f"group {body.group_id}", error), str(error))
    return {"error_code": ErrorCode.none, "error_message": None, "responses": topics}


async def _topic(request: Request, asked: Any, topic: Topic | None, error: ErrorCode) -> Body:
    moves = (_move(request, topic, error, part.partition_index, part.start_offset) for part in asked.partitions)
    return {
        "topic_name": asked.topic_name,
        "topic_id": ZERO_ID if topic is None else topic.id,
        "partitions": await asyncio.gather(*moves),
    }


async def _move(request: Request, topic: Topic | None, error: ErrorCode, index: int, offset: int) -> Body:
    if topic is None or not 0 <= index < topic.partitions:
        error = error or ErrorCode.unknown_topic_or_partition
        text = DENIED_TEXTS.get(error, UNKNOWN_TOPIC)
        return {"partition_index": index, "error_code": error, "error_message": text}
    share = request.broker.log.partition(topic, index).shares.of(request.body.group_id)
    await (share.remove() if offset < 0 else share.move(offset))
    return {"partition_index": index, "error_code": ErrorCode.none, "error_message": None}


def _answer(error: ErrorCode, message: str | None) -> Body:
    return {"error_code": error, "error_message": None if message is None else printable(message), "responses": ()}
