"""CreatePartitions (37), versions 0 to 3: topics get more partitions (KIP-195).

Partitions are on one broker, so an assignment may name one live broker for each; which of them leads is not the
client's to say. Records stay where they are: a key may go to another partition from then on.
"""

from __future__ import annotations

import logging
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request, printable
from ketch.broker.errors import Refused
from ketch.broker.handlers.create_topics import MAX_PARTITIONS, distinct
from ketch.broker.topics import find_topic, find_topic_now
from ketch.errors import KetchError
from ketch.store.topics.topic import Topic
from ketch.wire.responses import Body

log = logging.getLogger(__name__)

_STRICT_SINCE = 3


async def handle(request: Request) -> Answer:
    results = [await _grow(request, topic, duplicate) for topic, duplicate in distinct(request.body.topics)]
    return {"results": results}


async def _grow(request: Request, asked: Any, duplicate: bool) -> Body:
    code, message = ErrorCode.none, None
    try:
        if duplicate:
            raise Refused(ErrorCode.invalid_request, "Duplicate topic name.")
        if request.body.timeout.total_seconds() <= 0:
            raise Refused(ErrorCode.request_timed_out, "The request timed out.")
        topic = await find_topic_now(request, asked.name)
        _check(request, topic, asked)
        request.mutate(asked.count - topic.partitions, strict=request.version >= _STRICT_SINCE)
        if not request.body.validate_only:
            while not await request.broker.log.topics.grow(topic, asked.count):
                topic = await find_topic(request, asked.name)  # another request was quicker
                _check(request, topic, asked)
            log.info("%s: topic %s has %d partitions now", request.client, topic.name, asked.count)
    except KetchError as error:
        code, message = request.refuse(asked.name, error), printable(str(error))
    return {"name": asked.name, "error_code": code, "error_message": message}


def _check(request: Request, topic: Topic, asked: Any) -> None:
    held, added = topic.partitions, asked.count - topic.partitions
    if added == 0:
        raise Refused(ErrorCode.invalid_partitions, f"Topic already has {held} partition(s).")
    if added < 0:
        message = f"The topic {topic.name} currently has {held} partition(s); {asked.count} would not be an increase."
        raise Refused(ErrorCode.invalid_partitions, message)
    if added > MAX_PARTITIONS:
        raise Refused(ErrorCode.policy_violation, "Excessively large number of partitions per request.")
    if asked.assignments is not None:
        _check_assignments(request, asked.assignments, added)


def _check_assignments(request: Request, assignments: Any, added: int) -> None:
    if len(assignments) != added:
        message = f"Attempted to add {added} additional partition(s), with {len(assignments)} assignment(s)."
        raise Refused(ErrorCode.invalid_replica_assignment, message)
    live = {node.id for node in request.broker.cluster.nodes}
    for assignment in assignments:
        brokers = tuple(assignment.broker_ids)
        for broker in brokers:
            if broker not in live:
                message = f"The manual partition assignment includes broker {broker}, but no such broker is registered."
                raise Refused(ErrorCode.invalid_replica_assignment, message)
        if len(brokers) != 1:
            raise Refused(ErrorCode.invalid_replica_assignment, "A partition is on one broker: Redis replicates it.")
