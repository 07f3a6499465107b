"""Metadata (3), versions 0 to 12: brokers and topics; those asked for by name are created where that is allowed.

Every broker on one Redis can serve every partition; each partition has one of them as its leader and only replica, so
that they share the work. The controller, which clients ask to create and delete, is the one with the lowest node id.
A topic that was just created is in the first answer already (Kafka has the client ask again).
"""

from __future__ import annotations

import logging
from functools import lru_cache
from uuid import UUID

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.errors import Refused
from ketch.broker.naming import check_collision
from ketch.errors import KetchError, TopicExists
from ketch.store.topics.topic import Topic, legal_name, shown
from ketch.wire.responses import Body, Kept

log = logging.getLogger(__name__)

# Authorized operations (KIP-430), bits of AclOperation: all of them where they are asked for, there is no authorizer.
NOT_ASKED = -(2**31)
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
_ZERO_ID = UUID(int=0)
_NULL_NAMES_SINCE = 12  # topics can be asked for by id alone (KIP-516)


async def handle(request: Request) -> Answer:
    broker = request.broker
    nodes = broker.cluster.nodes
    return {
        "brokers": [{"node_id": node.id, "host": node.host, "port": node.port, "rack": None} for node in nodes],
        "cluster_id": broker.cluster_id,
        "controller_id": nodes[0].id,
        "topics": await _topics(request),
        "cluster_authorized_operations": _operations(request, "cluster", CLUSTER_OPERATIONS),
    }


def _operations(request: Request, of: str, all_of_them: int) -> int:
    return all_of_them if getattr(request.body, f"include_{of}_authorized_operations", False) else NOT_ASKED


async def _topics(request: Request) -> list[Body | Kept]:
    asked = request.body.topics
    if asked is None or (request.version == 0 and not asked):
        # Without Redis this raises, which closes the connection: there is no place for an error but in a topic, and a
        # list that looks complete and is not would be worse than none.
        return [_describe(request, topic) for topic in await request.broker.log.topics.all()]
    ids = dict.fromkeys(topic.topic_id for topic in asked if getattr(topic, "topic_id", None))
    if ids:  # what is asked for by name is left out then, as Kafka does
        return [await _by_id(request, topic_id) for topic_id in ids]
    return [await _by_name(request, name) for name in dict.fromkeys(topic.name or "" for topic in asked)]


async def _by_id(request: Request, topic_id: UUID) -> Body | Kept:
    if request.version < _NULL_NAMES_SINCE:
        return _error(ErrorCode.invalid_request, "", topic_id)
    try:
        topic = await request.broker.log.topics.by_id(topic_id)
    except KetchError as error:
        return _unavailable(request, error, None, topic_id)
    if topic is None:
        return _error(ErrorCode.unknown_topic_id, None, topic_id)
    return _describe(request, topic)


async def _by_name(request: Request, name: str) -> Body | Kept:
    if not legal_name(name):
        return _error(ErrorCode.invalid_topic_exception, name)
    try:
        topic = await request.broker.log.topics.get(name)
        if topic is None and _may_create(request):
            topic = await _create(request, name)
    except Refused as error:
        return _error(request.refuse(name, error), name)
    except KetchError as error:
        return _unavailable(request, error, name)
    if topic is None:
        return _error(ErrorCode.unknown_topic_or_partition, name)
    return _describe(request, topic)


def _may_create(request: Request) -> bool:
    # Versions 0 to 3 have no say in it.
    allowed: bool = getattr(request.body, "allow_auto_topic_creation", True)
    return allowed and request.broker.settings.auto_create_topics


async def _create(request: Request, name: str) -> Topic | None:
    topics = request.broker.log.topics
    await check_collision(request, name)
    try:
        topic = await topics.create(name, request.broker.settings.default_partitions, {})
    except TopicExists:  # another client or broker was quicker
        topics.forget(name)
        return await topics.get(name)
    log.info("%s: created topic %s with %d partitions", request.client, name, topic.partitions)
    return topic


def _describe(request: Request, topic: Topic) -> Kept:
    leaders = request.broker.cluster.leaders(topic.id, topic.partitions)
    return _described(topic.name, topic.id, leaders, _operations(request, "topic", TOPIC_OPERATIONS))


@lru_cache(4096)  # topics; some 30 bytes of each of their partitions are kept
def _described(name: str, topic_id: UUID, leaders: tuple[int, ...], operations: int) -> Kept:
    def body() -> Body:
        return {
            "error_code": ErrorCode.none,
            "name": name,
            "topic_id": topic_id,
            "is_internal": False,
            "partitions": [partition(leader, index) for index, leader in enumerate(leaders)],
            "topic_authorized_operations": operations,
        }

    return Kept(body)


def partition(node: int, index: int) -> Body:
    """A partition that exists: one broker is its leader and only replica."""
    return {
        "error_code": ErrorCode.none,
        "partition_index": index,
        "leader_id": node,
        "leader_epoch": 0,
        "replica_nodes": (node,),
        "isr_nodes": (node,),
        "offline_replicas": (),
    }


def _unavailable(request: Request, error: KetchError, name: str | None, topic_id: UUID = _ZERO_ID) -> Body:
    return _error(request.refuse(name or shown(topic_id), error, ErrorCode.leader_not_available), name, topic_id)


def _error(code: ErrorCode, name: str | None, topic_id: UUID = _ZERO_ID) -> Body:
    return {"error_code": code, "name": name, "topic_id": topic_id, "partitions": ()}
