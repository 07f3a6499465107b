"""What OffsetCommit and TxnOffsetCommit have in common: offsets out of a request, and a code for each partition.

As in Kafka what does not exist is said first; then comes the group, then what the commit carries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Request
from ketch.broker.errors import Refused, code_of
from ketch.broker.topics import find_partition
from ketch.clock import now_ms
from ketch.errors import KetchError, UnknownTopicOrPartition
from ketch.store.coordination.commits import Committed
from ketch.store.keys import TopicPartition
from ketch.wire.responses import Body

_MS = timedelta(milliseconds=1)
_NOT_GIVEN = -_MS

Offsets = dict[TopicPartition, Committed]


async def commit(request: Request, topics: Iterable[Any], store: Callable[[Offsets], Awaitable[ErrorCode]]) -> Body:
    """Answers a request to commit offsets.

    Args:
        topics: those of the request that the answer names.
        store: stores the offsets of partitions that exist; its code is that of all these partitions.
    """
    parts = {(topic.name, part.partition_index): part for topic in request.body.topics for part in topic.partitions}
    errors = {partition: await _partition_error(request, *partition) for partition in parts}
    exist = [partition for partition in parts if not errors[partition]]
    errors |= {partition: _metadata_error(request, parts[partition]) for partition in exist}
    now = now_ms()
    offsets = {partition: _committed(request, part, now) for partition, part in parts.items() if not errors[partition]}
    if exist and (error := await store(offsets)):
        errors |= dict.fromkeys(exist, error)
    return {"topics": [_topic_body(topic, errors) for topic in topics]}


def refused(request: Request, code: ErrorCode) -> Body:
    """The answer to a client that may not commit for the group, or in the transaction."""
    topics = request.body.topics
    errors = {(topic.name, part.partition_index): code for topic in topics for part in topic.partitions}
    return {"topics": [_topic_body(topic, errors) for topic in topics]}


async def _partition_error(request: Request, topic: str, index: int) -> ErrorCode:
    """Whether there is such a partition, to which the client may commit."""
    try:
        await find_partition(request, topic, index)
    except (Refused, UnknownTopicOrPartition) as error:
        return code_of(error)
    except KetchError as error:
        # Redis is gone. Of what the topic's own errors would be, KAFKA_STORAGE_ERROR is final to a client that commits.
        return request.refuse(f"group {request.body.group_id}", error)
    return ErrorCode.none


def _metadata_error(request: Request, part: Any) -> ErrorCode:
    """Whether the metadata of an offset is too large."""
    size = len((part.committed_metadata or "").encode("utf-16-le")) // 2  # Kafka counts Java's characters
    too_large = size > request.broker.settings.offset_metadata_max_bytes
    return ErrorCode.offset_metadata_too_large if too_large else ErrorCode.none


def _committed(request: Request, part: Any, now: int) -> Committed:
    epoch = getattr(part, "committed_leader_epoch", -1)
    retention = getattr(request.body, "retention_time", _NOT_GIVEN) // _MS
    expires = -1 if retention == -1 else max(0, now + retention)
    return Committed(part.committed_offset, epoch, part.committed_metadata or "", now, expires)


def _topic_body(topic: Any, errors: dict[TopicPartition, ErrorCode]) -> Body:
    indexes = [part.partition_index for part in topic.partitions]
    partitions = [{"partition_index": index, "error_code": errors[topic.name, index]} for index in indexes]
    return {"name": topic.name, "partitions": partitions}
