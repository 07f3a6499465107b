"""CreateTopics (19), versions 2 to 7.

Redis replicates: a partition has its leader and the replicas that Redis has (`log.followers`), and the response says
how many that are. A greater replication factor is taken all the same, or with `any_replication_factor=false` refused,
as is any above 1. Manual assignments have to name live brokers; which broker leads a partition follows from the brokers
that are live, not from them. As in Kafka a name may not differ from another topic's in `.` and `_` alone. Of two such
names that two brokers create in the same moment both may come to be.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from ketch.broker import configs
from ketch.broker.api import Answer, Request, printable
from ketch.broker.errors import Refused
from ketch.broker.handlers.alter_partition_reassignments import check_replicas
from ketch.broker.touches import SHOWS_CONFIGS
from ketch.configs.topic_checks import validate
from ketch.errors import KetchError, TopicExists
from ketch.log.creation import check_collision, check_name
from ketch.security.acls import ResourceType
from ketch.store.offsets import OffsetNumbering
from ketch.store.topics.topic import Topic
from ketch.wire.responses import Body

log = logging.getLogger(__name__)

_STRICT_SINCE = 6
MAX_PARTITIONS = 10_000  # in one request, as Kafka's controller


async def handle(request: Request) -> Answer:
    if len(request.body.topics) > MAX_PARTITIONS:
        return _too_many(request)
    topics = [await _create(request, topic, duplicate) for topic, duplicate in distinct(request.body.topics)]
    return {"topics": topics}


def _too_many(request: Request) -> Answer:
    text = "Excessively large number of partitions per request."
    code = request.refuse("", Refused(ErrorCode.policy_violation, text))
    return {"topics": [_result(topic.name, code, text) for topic, _ in distinct(request.body.topics)]}


def distinct(topics: Sequence[Any]) -> list[tuple[Any, bool]]:
    """A request's topics, one for each name, and whether that name came more than once."""
    times = Counter(topic.name for topic in topics)
    return [(topic, times[name] > 1) for name, topic in {topic.name: topic for topic in topics}.items()]


async def _create(request: Request, asked: Any, duplicate: bool) -> Body:
    try:
        if duplicate:
            raise Refused(ErrorCode.invalid_request, "Duplicate topic name.")
        if code := request.denial(ResourceType.TOPIC, asked.name):
            raise Refused(code, "Authorization failed.")
        partitions = _partitions(request, asked)
        await check_collision(request.broker.log, asked.name)
        chosen = validate({config.name: config.value for config in asked.configs})
        request.mutate(partitions, strict=request.version >= _STRICT_SINCE)
        topic = await _make(request, asked.name, partitions, chosen)
    except KetchError as error:
        return _result(asked.name, request.refuse(asked.name, error), printable(str(error)))
    return await _made(request, topic)


async def _make(request: Request, name: str, partitions: int, chosen: dict[str, str]) -> Topic:
    topics = request.broker.log.topics
    if request.body.validate_only:
        if await topics.get(name) is not None:
            raise TopicExists(f"Topic '{name}' already exists.")
        return Topic(name, UUID(int=0), partitions, 0, OffsetNumbering(), {**request.broker.log.defaults, **chosen})
    if request.body.timeout.total_seconds() <= 0:
        raise Refused(ErrorCode.request_timed_out, "The request timed out.")
    topic = await topics.create(name, partitions, chosen)
    log.info("%s: created topic %s with %d partitions", request.client, name, partitions)
    return topic


def _partitions(request: Request, asked: Any) -> int:
    """The number of partitions to make; Refused where name, number, factor or assignment can't be."""
    check_name(asked.name)
    if asked.assignments:
        return _assigned(request, asked)
    _check_factor(request, asked.replication_factor)
    partitions: int = asked.num_partitions
    if partitions == -1:
        return request.broker.settings.default_partitions
    if partitions <= 0:
        raise Refused(ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value.")
    if partitions > MAX_PARTITIONS:
        raise Refused(ErrorCode.policy_violation, "Excessively large number of partitions per request.")
    return partitions


def _assigned(request: Request, asked: Any) -> int:
    if asked.num_partitions != -1 or asked.replication_factor != -1:
        message = "A manual partition assignment was specified, but partitions or replication factor was not set to -1."
        raise Refused(ErrorCode.invalid_request, message)
    indexes = sorted(assignment.partition_index for assignment in asked.assignments)
    if indexes != list(range(len(indexes))):
        raise Refused(
            ErrorCode.invalid_replica_assignment, "partitions should be a consecutive 0-based integer sequence"
        )
    factors = {len(assignment.broker_ids) for assignment in asked.assignments}
    for assignment in asked.assignments:
        check_replicas(request, assignment.broker_ids)
    if len(factors) > 1:
        message = f"The manual partition assignment has partitions with {sorted(factors)} replicas."
        raise Refused(ErrorCode.invalid_replica_assignment, message)
    _check_factor(request, factors.pop())
    return len(indexes)


def _check_factor(request: Request, factor: int) -> None:
    if factor in (-1, 1) or (factor > 1 and request.broker.settings.any_replication_factor):
        return
    raise Refused(ErrorCode.invalid_replication_factor, _why_factor(factor))


def _why_factor(factor: int) -> str:
    if factor <= 0:
        return "Replication factor must be larger than 0, or -1 to use the default value."
    return f"Unable to replicate the partition {factor} time(s): a partition is on one broker, Redis replicates it."


async def _made(request: Request, topic: Topic) -> Body:
    hidden = request.denial_by(SHOWS_CONFIGS, topic.name)
    if hidden:  # the topic is made all the same
        return _result(topic.name, ErrorCode.none, None) | {"topic_id": topic.id, "topic_config_error_code": hidden}
    followers = await request.broker.log.followers.of(topic)
    shown = configs.topic_configs(topic, request.broker)
    return _result(topic.name, ErrorCode.none, None) | {
        "topic_id": topic.id,
        "num_partitions": topic.partitions,
        "replication_factor": 1 + (len(followers[0].replicas) if followers else 0),
        "configs": shown,
    }


def _result(name: str, error: ErrorCode, message: str | None) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": UUID(int=0),
        "error_code": error,
        "error_message": message,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": (),
    }
