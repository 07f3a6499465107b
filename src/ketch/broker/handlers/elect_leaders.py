"""ElectLeaders (43), versions 0 to 2: there is never another leader to elect (KIP-183, KIP-460).

Which broker leads a partition follows from the brokers that are live (`broker.coordination.cluster`), and the replicas
that Metadata may show are copies that Redis keeps. So each election is not needed (84). Asked for all partitions, Kafka
names those topics without their partitions, and so does this.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request, printable
from ketch.broker.errors import Refused
from ketch.broker.resources import DENIED_TEXTS
from ketch.broker.topics import find_topic
from ketch.errors import KetchError
from ketch.wire.responses import Body

_TYPES = (0, 1)  # preferred, unclean


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not alter the cluster."""
    results = [
        {
            "topic": topic.topic,
            "partition_result": [
                {"partition_id": index, "error_code": code, "error_message": DENIED_TEXTS[code]}
                for index in topic.partitions
            ],
        }
        for topic in request.body.topic_partitions or ()
    ]
    return {"error_code": code, "replica_election_results": results}


async def handle(request: Request) -> Answer:
    asked, code = request.body.topic_partitions, ErrorCode.none
    if getattr(request.body, "election_type", 0) not in _TYPES:
        code = ErrorCode.invalid_request
    try:
        results = await _all(request, code) if asked is None else [await _topic(request, topic) for topic in asked]
    except KetchError as error:
        code, results = request.refuse("", error), []
    return {"error_code": code, "replica_election_results": results}


async def _all(request: Request, code: ErrorCode) -> list[Body]:
    topics = [] if code else await request.broker.log.topics.all()
    return [{"topic": topic.name, "partition_result": ()} for topic in topics]


async def _topic(request: Request, asked: Any) -> Body:
    results = [await _partition(request, asked.topic, index) for index in asked.partitions]
    return {"topic": asked.topic, "partition_result": results}


async def _partition(request: Request, name: str, index: int) -> Body:
    try:
        await _check(request, name, index)
        code, message = ErrorCode.election_not_needed, "Leader election not needed for topic partition."
    except KetchError as error:
        code, message = request.refuse(f"{name}-{index}", error), printable(str(error))
    return {"partition_id": index, "error_code": code, "error_message": message}


async def _check(request: Request, name: str, index: int) -> None:
    kind = getattr(request.body, "election_type", 0)
    if kind not in _TYPES:
        raise Refused(ErrorCode.invalid_request, f"Unknown election type {kind}")
    topic = await find_topic(request, name, unknown=f"No such topic as {name}")
    if not 0 <= index < topic.partitions:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"No such partition as {name}-{index}")
