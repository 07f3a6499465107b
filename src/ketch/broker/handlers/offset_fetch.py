"""OffsetFetch (9), versions 1 to 9: committed offsets, -1 where there is none; several groups from 8 on (KIP-709).

Null topics (version 2 on) stand for every partition the group has committed for. `requireStable` changes nothing: no
commit waits for a transaction.

While Redis is gone the answer is NOT_COORDINATOR. Kafka's GroupCoordinatorService.handleOffsetFetchException chooses
this code because Java consumers before 3.9 retry no other one here. Version 1 has no error code for the whole answer,
so each partition carries it (OffsetFetchResponse.groupError): an empty list would say that nothing is committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.errors import KetchError
from ketch.store.commits import Committed
from ketch.store.keys import TopicPartition
from ketch.wire.responses import Body

_NOTHING = Committed(-1)
_GROUP_ERROR_SINCE = 2


async def handle(request: Request) -> Answer:
    body = request.body
    if request.version < 8:
        return {"throttle_time": 0, **await _group(request, body.group_id, body.topics)}
    groups = [await _group(request, group.group_id, group.topics) for group in body.groups]
    return {"throttle_time": 0, "groups": groups}


async def _group(request: Request, group: str, topics: Iterable[Any] | None) -> Body:
    commits = request.broker.log.commits
    try:
        if topics is None:
            await request.broker.adoption.look()
            asked = await commits.partitions(group)
        else:
            asked = [(topic.name, index) for topic in topics for index in topic.partition_indexes]
        found = await commits.of(group, asked)
    except KetchError as error:
        code = request.refuse(f"group {group}", error, ErrorCode.not_coordinator)
        return _unavailable(request, group, topics, code)
    return {
        "group_id": group,
        "error_code": ErrorCode.none,
        "topics": _topics([*found] if topics is None else asked, found),
    }


def _unavailable(request: Request, group: str, topics: Iterable[Any] | None, error: ErrorCode) -> Body:
    parts: list[Body] = []
    if request.version < _GROUP_ERROR_SINCE:
        parts = _topics([(topic.name, index) for topic in topics or () for index in topic.partition_indexes], {}, error)
    return {"group_id": group, "topics": parts, "error_code": error}


def _topics(
    asked: list[TopicPartition], found: dict[TopicPartition, Committed], error: ErrorCode = ErrorCode.none
) -> list[Body]:
    topics: dict[str, list[Body]] = {}
    for topic, index in asked:
        commit = found.get((topic, index), _NOTHING)
        topics.setdefault(topic, []).append(
            {
                "partition_index": index,
                "committed_offset": commit.offset,
                "committed_leader_epoch": commit.leader_epoch,
                "metadata": commit.metadata,
                "error_code": error,
            }
        )
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
