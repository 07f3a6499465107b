"""The topics and partitions that a request names: the one way in which handlers look them up.

What cannot be found raises, and `errors.code_of` has the code: UNKNOWN_TOPIC_OR_PARTITION for a name or a partition,
UNKNOWN_TOPIC_ID for an id, INVALID_TOPIC_EXCEPTION for a name that no topic can have, KAFKA_STORAGE_ERROR where Redis
is gone. An API that answers with another code says so to `Request.refuse`.
"""

from __future__ import annotations

from uuid import UUID

from ketch.broker.api import Request
from ketch.errors import UnknownTopicId, UnknownTopicOrPartition
from ketch.log.creation import check_name
from ketch.log.partition import Partition
from ketch.store.topics.topic import Topic, TopicKey, shown

ZERO_ID = UUID(int=0)  # no id


async def find_topic(request: Request, key: TopicKey, *, legal: bool = False, unknown: str = "") -> Topic:
    """The topic, as this broker knows it.

    Args:
        legal: whether a name that no topic can have is refused as such. Kafka's brokers look most names up as they
            come, so that it is an unknown one.
        unknown: what the client is told where there is no topic of this name, if Kafka has its own words for the API.

    Raises:
        InvalidTopic, UnknownTopicOrPartition, UnknownTopicId: there is none.
        StorageUnavailable: Redis is gone.
    """
    logs = request.broker.log
    if isinstance(key, UUID):
        return await logs.topic_by_id(key)
    if legal:
        check_name(key)
    topic = await logs.topics.get(key)
    if topic is None:
        raise UnknownTopicOrPartition(unknown or f"no topic {key}")
    return topic


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
