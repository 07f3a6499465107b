"""OffsetFetch (9), versions 1 to 9: committed offsets, -1 where there is none; several groups from 8 on (KIP-709).

Null topics (version 2 on) stand for every partition the group has committed for. `requireStable` changes nothing: no
commit waits for a transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.errors import KetchError
from ketch.store.groups import Committed, TopicPartition
from ketch.wire.responses import Body

_NOTHING = Committed(-1)


async def handle(request: Request) -> Answer:
    body = request.body
    if request.version < 8:
        return {"throttle_time": 0, **await _group(request, body.group_id, body.topics)}
    groups = [await _group(request, group.group_id, group.topics) for group in body.groups]
    return {"throttle_time": 0, "groups": groups}


async def _group(request: Request, group: str, topics: Iterable[Any] | None) -> Body:
    store = request.broker.groups.store
    try:
        if topics is None:
            asked = await store.partitions(group)
        else:
            asked = [(topic.name, index) for topic in topics for index in topic.partition_indexes]
        found = await store.committed(group, asked)
    except KetchError as error:
        request.note(f"OffsetFetch of {group}: {error}")
        return {"group_id": group, "topics": (), "error_code": ErrorCode.coordinator_not_available}
    return {
        "group_id": group,
        "error_code": ErrorCode.none,
        "topics": _topics([*found] if topics is None else asked, found),
    }


def _topics(asked: list[TopicPartition], found: dict[TopicPartition, Committed]) -> list[Body]:
    topics: dict[str, list[Body]] = {}
    for topic, index in asked:
        commit = found.get((topic, index), _NOTHING)
        topics.setdefault(topic, []).append(
            {
                "partition_index": index,
                "committed_offset": commit.offset,
                "committed_leader_epoch": commit.leader_epoch,
                "metadata": commit.metadata,
                "error_code": ErrorCode.none,
            }
        )
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
