"""Metadata (3), versions 0 to 12: this broker and topics; those asked for by name are created where that is allowed.

Every broker on one Redis can serve every partition, so each names itself alone, as leader, controller and only replica.
A topic that was just created is in the first answer already (Kafka has the client ask again).
"""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.errors import KetchError, StorageUnavailable, TopicExists
from ketch.store.topics import Topic, legal_name
from ketch.wire.messages import Body

log = logging.getLogger(__name__)

_NO_OPERATIONS = -(2**31)  # authorized operations: not asked for, there is no authorizer
_ZERO_ID = UUID(int=0)


async def handle(request: Request) -> Answer:
    broker = request.broker
    host, port = broker.advertised
    return {
        "throttle_time": 0,
        "brokers": [{"node_id": broker.settings.node_id, "host": host, "port": port, "rack": None}],
        "cluster_id": broker.cluster_id,
        "controller_id": broker.settings.node_id,
        "topics": await _topics(request),
        "cluster_authorized_operations": _NO_OPERATIONS,
    }


async def _topics(request: Request) -> list[Body]:
    asked = request.body.topics
    try:
        if asked is None or (request.version == 0 and not asked):
            return [_describe(request, topic) for topic in await request.broker.log.catalog.all()]
    except StorageUnavailable as error:
        # There is no place for an error but in a topic. A list that looks complete and is not would be worse than none.
        log.warning("%s: Metadata of all topics: %s", request.client, error)
        raise
    by_id = any(getattr(topic, "topic_id", None) not in (None, _ZERO_ID) for topic in asked)
    return [await (_by_id if by_id else _by_name)(request, topic) for topic in _once(asked)]


def _once(asked: tuple[Any, ...]) -> list[Any]:
    return list({(topic.name, getattr(topic, "topic_id", None)): topic for topic in asked}.values())


async def _by_id(request: Request, asked: Any) -> Body:
    try:
        topic = await request.broker.log.catalog.by_id(asked.topic_id)
    except KetchError as error:
        return _unavailable(request, error, None, asked.topic_id)
    if topic is None:
        return _error(ErrorCode.unknown_topic_id, None if request.version >= 12 else "", asked.topic_id)
    return _describe(request, topic)


async def _by_name(request: Request, asked: Any) -> Body:
    name: str = asked.name or ""
    if not legal_name(name):
        return _error(ErrorCode.invalid_topic_exception, name)
    try:
        topic = await request.broker.log.catalog.get(name)
        if topic is None and _may_create(request):
            topic = await _create(request, name)
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
    catalog = request.broker.log.catalog
    try:
        topic = await catalog.create(name, request.broker.settings.default_partitions, {})
    except TopicExists:  # another client or broker was quicker
        catalog.forget(name)
        return await catalog.get(name)
    log.info("%s: created topic %s with %d partitions", request.client, name, topic.partitions)
    return topic


def _describe(request: Request, topic: Topic) -> Body:
    node = request.broker.settings.node_id
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": False,
        "partitions": [
            {
                "error_code": ErrorCode.none,
                "partition_index": index,
                "leader_id": node,
                "leader_epoch": 0,
                "replica_nodes": (node,),
                "isr_nodes": (node,),
                "offline_replicas": (),
            }
            for index in range(topic.partitions)
        ],
        "topic_authorized_operations": _NO_OPERATIONS,
    }


def _unavailable(request: Request, error: KetchError, name: str | None, topic_id: UUID = _ZERO_ID) -> Body:
    log.warning("%s: Metadata of %s: %s", request.client, name or topic_id, error)
    return _error(ErrorCode.leader_not_available, name, topic_id)


def _error(code: ErrorCode, name: str | None, topic_id: UUID = _ZERO_ID) -> Body:
    return {"error_code": code, "name": name, "topic_id": topic_id, "partitions": ()}
