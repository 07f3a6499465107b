"""DeleteShareGroupOffsets (92), version 0: what is kept of a share group without members on some topics goes (KIP-932).

The group then begins anew there, by `share.auto.offset.reset`. What it had in flight there goes, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request, printable
from ketch.broker.resources import DENIED_TEXTS
from ketch.broker.share_offsets import UNKNOWN_TOPIC, find, judge
from ketch.broker.topics import ZERO_ID
from ketch.coordinator.share.events import ShareForget
from ketch.coordinator.share.group import ShareGroup
from ketch.errors import KetchError
from ketch.store.topics.topic import Topic
from ketch.wire.responses import Body

_NOTHING = "There is no offset information to delete."


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not delete of the group."""
    return _answer(code, DENIED_TEXTS[code])


async def handle(request: Request) -> Answer:
    body = request.body
    try:
        found = {asked.topic_name: await find(request, asked.topic_name) for asked in body.topics}
        if all(error in DENIED_TEXTS for _, error in found.values()):
            return _answer(ErrorCode.none, None, [_topic(name, *each) for name, each in found.items()])
        group = await request.broker.groups.get(body.group_id)
        begun = frozenset(group.begun if isinstance(group, ShareGroup) else ())
        names = frozenset(name for name, (topic, _) in found.items() if topic is not None)
        code, message = await judge(request, body.group_id, lambda token: ShareForget(token, names))
        if code:
            return _answer(code, message)
        topics = await asyncio.gather(*(_forget(request, name, *each, name in begun) for name, each in found.items()))
    except KetchError as error:
        return _answer(request.refuse(f"group {body.group_id}", error), str(error))
    return _answer(ErrorCode.none, None, topics)


async def _forget(request: Request, name: str, topic: Topic | None, error: ErrorCode, begun: bool) -> Body:
    """Removes what is kept of the group on one topic: the topic's part of the answer.

    Args:
        begun: the group's machine knows the topic. Where it does not, something may still be kept on the partitions:
            the machine forgets a topic first, and a broker may have died before it removed the rest.
    """
    if topic is None:
        return _topic(name, topic, error)
    partitions = (request.broker.log.partition(topic, index) for index in range(topic.partitions))
    shares = [partition.shares.of(request.body.group_id) for partition in partitions]
    starts = await asyncio.gather(*(share.start() for share in shares))
    if not begun and all(start is None for start in starts):
        return _topic(name, None, ErrorCode.unknown_topic_or_partition, _NOTHING)
    await asyncio.gather(*(share.remove() for share in shares))
    return _topic(name, topic, ErrorCode.none)


def _topic(name: str, topic: Topic | None, error: ErrorCode, message: str | None = None) -> Body:
    text = (message or DENIED_TEXTS.get(error, UNKNOWN_TOPIC)) if error else None
    topic_id = ZERO_ID if topic is None else topic.id
    return {"topic_name": name, "topic_id": topic_id, "error_code": error, "error_message": text}


def _answer(error: ErrorCode, message: str | None, topics: Iterable[Body] = ()) -> Body:
    text = None if message is None else printable(message)
    return {"error_code": error, "error_message": text, "responses": list(topics)}
