"""AlterPartitionReassignments (45), versions 0 and 1: replicas of partitions (KIP-455).

A partition has one broker as a replica, the one that leads it, and which broker that is follows from the brokers that
are live (`broker.coordination.cluster`). Its other replicas are Redis's (`log.followers`), which only Redis can change.
So the assignment that is there already is accepted, any other is refused with INVALID_REPLICA_ASSIGNMENT (39), and
there is none to cancel (NO_REASSIGNMENT_IN_PROGRESS 85).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request, printable
from ketch.broker.errors import Refused
from ketch.broker.resources import DENIED_TEXTS
from ketch.broker.topics import find_topic
from ketch.errors import KetchError
from ketch.store.topics.topic import Topic
from ketch.wire.responses import Body


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not alter the cluster."""
    message = DENIED_TEXTS[code]
    return {
        "allow_replication_factor_change": getattr(request.body, "allow_replication_factor_change", True),
        "error_code": code,
        "error_message": message,
        "responses": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": part.partition_index, "error_code": code, "error_message": message}
                    for part in topic.partitions
                ],
            }
            for topic in request.body.topics
        ],
    }


async def handle(request: Request) -> Answer:
    return {
        "allow_replication_factor_change": getattr(request.body, "allow_replication_factor_change", True),
        "error_code": ErrorCode.none,
        "error_message": None,
        "responses": [await _topic(request, topic) for topic in request.body.topics],
    }


async def _topic(request: Request, asked: Any) -> Body:
    return {"name": asked.name, "partitions": [await _partition(request, asked.name, p) for p in asked.partitions]}


async def _partition(request: Request, name: str, asked: Any) -> Body:
    index, code, message = asked.partition_index, ErrorCode.none, None
    try:
        topic = await find_topic(request, name, unknown=f"Unable to find a topic named {name}.")
        if not 0 <= index < topic.partitions:
            raise Refused(ErrorCode.unknown_topic_or_partition, f"Unable to find partition {name}:{index}.")
        if asked.replicas is None:
            raise Refused(ErrorCode.no_reassignment_in_progress, "No partition reassignment is in progress.")
        await _check_unchanged(request, topic, index, asked.replicas)
    except KetchError as error:
        code, message = request.refuse(f"{name}-{index}", error), printable(str(error))
    return {"partition_index": index, "error_code": code, "error_message": message}


def check_replicas(request: Request, replicas: Sequence[int]) -> None:
    """Raises Refused for replicas that no partition can have (ReplicationControlManager.validateManualPartition)."""
    text = "The manual partition assignment includes"
    if not replicas:
        raise Refused(ErrorCode.invalid_replica_assignment, f"{text} an empty replica list.")
    live = {node.id for node in request.broker.cluster.nodes}
    for place, broker in enumerate(replicas):
        if broker in replicas[:place]:
            raise Refused(ErrorCode.invalid_replica_assignment, f"{text} the broker {broker} more than once.")
        if broker not in live:
            message = f"{text} broker {broker}, but no such broker is registered."
            raise Refused(ErrorCode.invalid_replica_assignment, message)


async def _check_unchanged(request: Request, topic: Topic, index: int, replicas: Sequence[int]) -> None:
    leader, followers = request.broker.cluster.leader(topic.id, index), await request.broker.log.followers.of(topic)
    others = followers[index].replicas if followers else ()
    if tuple(replicas) == (leader, *others):
        return
    check_replicas(request, replicas)
    message = f"A partition is on one broker, which leads it: {topic.name}-{index} is on broker {leader}."
    if others:
        message = (
            f"{topic.name}-{index} is led by broker {leader}, which follows from the live brokers, "
            f"and its other replicas, {list(others)}, are Redis's."
        )
    raise Refused(ErrorCode.invalid_replica_assignment, message)
