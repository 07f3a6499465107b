"""The topics and partitions that a request names: the one way in which handlers look them up.

A topic that the caller is denied by the API's row is not looked up: TOPIC_AUTHORIZATION_FAILED says nothing of whether
it is there. An id says no more: one whose topic the caller may not even describe is unknown, and to say so takes a
question to Redis, as for an id that nobody has. (Kafka answers TOPIC_AUTHORIZATION_FAILED, for which the topic has to
be there.)

What cannot be found raises, and `errors.code_of` has the code: UNKNOWN_TOPIC_OR_PARTITION for a name or a partition,
UNKNOWN_TOPIC_ID for an id, INVALID_TOPIC_EXCEPTION for a name that no topic can have, KAFKA_STORAGE_ERROR where Redis
is gone. An API that answers with another code says so to `Request.refuse`.

A request may name 100,000 partitions, and to find a topic that is cached takes no wait. So `find_topic` itself lets
other clients be served, once in so many topics of a request.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from kio.schema.errors import ErrorCode

from ketch.broker.api import Request
from ketch.broker.errors import Refused
from ketch.broker.resources import DENIED_TEXTS
from ketch.errors import UnknownTopicId, UnknownTopicOrPartition
from ketch.log.creation import check_name
from ketch.log.partition import Partition
from ketch.security.acls import Operation, ResourceType
from ketch.store.topics.topic import Topic, TopicKey, shown

ZERO_ID = UUID(int=0)  # no id
_AT_ONCE = 500  # topics that are looked up in one go, some 10 ms


async def find_topic(request: Request, key: TopicKey, *, legal: bool = False, unknown: str = "") -> Topic:
    """The topic, as this broker knows it.

    Args:
        legal: whether a name that no topic can have is refused as such. Kafka's brokers look most names up as they
            come, so that it is an unknown one.
        unknown: what the client is told where there is no topic of this name, if Kafka has its own words for the API.

    Raises:
        Refused: the caller may not do with it what the request is for.
        InvalidTopic, UnknownTopicOrPartition, UnknownTopicId: there is none.
        StorageUnavailable: Redis is gone.
    """
    request.looked_up += 1
    if request.looked_up % _AT_ONCE == 0:
        await asyncio.sleep(0)
    logs = request.broker.log
    if isinstance(key, UUID):
        if request.rights is not None:
            await _check_id_allowed(request, key)
        return await logs.topic_by_id(key)
    if request.rights is not None:
        check_allowed(request, key)
    if legal:
        check_name(key)
    topic = await logs.topics.get(key)
    if topic is None:
        raise UnknownTopicOrPartition(unknown or f"no topic {key}")
    return topic


def check_allowed(request: Request, name: str) -> None:
    """Raises Refused for a topic that the caller is denied by the API's row."""
    code = request.denial(ResourceType.TOPIC, name)
    if code:
        raise denied(code)


def denied(code: ErrorCode) -> Refused:
    """The error of a denial, in Kafka's words."""
    return Refused(code, DENIED_TEXTS[code])


async def _check_id_allowed(request: Request, topic_id: UUID) -> None:
    """As `check_allowed`, by an id; raises UnknownTopicId after one question to Redis, whether there is one or not."""
    topics = request.broker.log.topics
    known = topics.known_name(topic_id)
    name = known or await topics.name_of(topic_id)
    code = ErrorCode.none if name is None else request.denial(ResourceType.TOPIC, name)
    if name is not None and not code:
        return
    if name is not None and request.allowed(Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=True):
        raise denied(code)
    if known is not None:
        await topics.name_of(topic_id)
    raise UnknownTopicId(f"no topic with id {shown(topic_id)}")


async def find_topic_now(request: Request, key: TopicKey, *, legal: bool = False, unknown: str = "") -> Topic:
    """The topic as Redis has it: another broker may have changed it, or deleted it and made one of its name.

    Raises as `find_topic`.
    """
    topics = request.broker.log.topics
    if isinstance(key, str):
        topics.forget(key)
        return await find_topic(request, key, legal=legal, unknown=unknown)
    topic = await topics.reread(await find_topic(request, key))
    if topic is None:
        raise UnknownTopicId(f"no topic with id {shown(key)}")
    return topic


async def find_partition(request: Request, key: TopicKey, index: int) -> Partition:
    """A topic's partition; raises as `find_topic`."""
    return request.broker.log.partition(await find_topic(request, key), index)
