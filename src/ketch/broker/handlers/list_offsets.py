"""ListOffsets (2), versions 1 to 9: the ends of a partition, and the record at a point in time.

-1 latest, -2 earliest, -3 the record with the latest timestamp (version 7 on, KIP-734), -4 earliest local (8 on,
KIP-405: the first that Redis holds), -5 latest tiered (9 on, KIP-1005: the last that is archived, -1 without an
archive). Any other timestamp: the first record as late as that. Archived records count as all others. Under
read_committed the last stable offset is the latest, and a record from it on is not found (KIP-98). A transaction's
marker is found like a record, as in Kafka.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.errors import check_leader_epoch
from ketch.broker.topics import find_partition, find_topic
from ketch.errors import KetchError
from ketch.log.partition import Partition
from ketch.security.acls import ResourceType
from ketch.store.stream.search import Found
from ketch.wire.responses import Body

_READ_COMMITTED = 1
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
_NOTHING = Found(-1, -1)


async def handle(request: Request) -> Answer:
    await request.broker.log.topics.prefetch(topic.name for topic in request.body.topics)
    return {"topics": [await _topic(request, topic) for topic in request.body.topics]}


async def _topic(request: Request, asked: Any) -> Body:
    code = request.denial(ResourceType.TOPIC, asked.name)
    if code:
        return {"name": asked.name, "partitions": [_body(p.partition_index, code, _NOTHING) for p in asked.partitions]}
    times = Counter(part.partition_index for part in asked.partitions)
    parts = {part.partition_index: part for part in asked.partitions}.values()
    await _prefetch(request, asked.name, parts)
    return {
        "name": asked.name,
        "partitions": [
            _body(part.partition_index, ErrorCode.invalid_request, _NOTHING)
            if times[part.partition_index] > 1
            else await _partition(request, asked.name, part)
            for part in parts
        ],
    }


async def _prefetch(request: Request, name: str, parts: Iterable[Any]) -> None:
    """Has Redis asked for the ends of all of them at once."""
    with contextlib.suppress(KetchError):  # the partition that it concerns will say it
        topic = await find_topic(request, name)
        for part in parts:
            request.broker.log.partition(topic, part.partition_index).bounds.prefetch()


async def _partition(request: Request, name: str, asked: Any) -> Body:
    index, timestamp = asked.partition_index, asked.timestamp
    if timestamp < LATEST_TIERED or request.version < _SINCE.get(timestamp, 0):
        return _body(index, ErrorCode.unsupported_version, _NOTHING)
    try:
        partition = await find_partition(request, name, index)
        check_leader_epoch(getattr(asked, "current_leader_epoch", -1))
        committed = getattr(request.body, "isolation_level", 0) == _READ_COMMITTED
        found = await _find(partition, timestamp, committed)
    except KetchError as error:
        return _body(index, request.refuse(f"{name}-{index}", error), _NOTHING)
    return _body(index, ErrorCode.none, found or _NOTHING)


async def _find(partition: Partition, timestamp: int, committed: bool) -> Found | None:
    match timestamp:
        case -1:
            return Found((await partition.bounds.readable()).end(committed), -1)
        case -2:
            return Found((await partition.bounds.get()).log_start, -1)
        case -3:
            return await _stable(partition, await partition.latest_timestamp(), committed)
        case -4:
            return Found((await partition.bounds.get()).local_start, -1)
        case -5:
            archived = await partition.tier.archived()
            return Found(archived.through - 1, -1) if archived and archived.through > 0 else None
    return await _stable(partition, await partition.first_at_or_after(timestamp), committed)


async def _stable(partition: Partition, found: Found | None, committed: bool) -> Found | None:
    """What was found, where a reader may see it."""
    hides = committed or partition.topic.intake.copies > 1
    if hides and found is not None and found.offset >= (await partition.bounds.readable()).end(committed):
        return None
    return found


def _body(index: int, error: ErrorCode, found: Found) -> Body:
    return {
        "partition_index": index,
        "error_code": error,
        "timestamp": found.timestamp,
        "offset": found.offset,
        "leader_epoch": 0 if found.offset >= 0 else -1,
    }
