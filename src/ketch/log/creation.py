"""How a topic comes to be that nobody created: a client asks for it, and the broker may create it on demand.

It owns Kafka's rules for names that no topic can have beside others (`org.apache.kafka.common.internals.Topic`) and the
one creation on demand, for clients of today and of Kafka 0.7. The topic's hash is `log.topic_cache`'s. CreateTopics
chooses partitions and configs itself; it takes the rules from here.

Of two names that collide and that two brokers create in the same moment both may come to be, as in Kafka.
"""

from __future__ import annotations

import logging

from ketch.configs.settings import Settings
from ketch.errors import InvalidTopic, TopicExists, UnknownTopicOrPartition
from ketch.log.log import Log
from ketch.store.topics.topic import Topic, legal_name

log = logging.getLogger(__name__)


def check_name(name: str) -> None:
    """Raises InvalidTopic for a name that no topic can have (Topic.validate)."""
    if not legal_name(name):
        raise InvalidTopic(f"Topic name is invalid: {_why_illegal(name)}")


def _why_illegal(name: str) -> str:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > 249:
        return f"the length of '{name}' is longer than the max allowed length 249"
    return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"


async def check_collision(logs: Log, name: str) -> None:
    """Raises InvalidTopic for a name that differs from another topic's in `.` and `_` alone (Topic.hasCollision)."""
    if "." not in name and "_" not in name:
        return
    alike = name.replace(".", "_")
    for other in await logs.topics.names():
        if other != name and other.replace(".", "_") == alike:
            raise InvalidTopic(f"Topic '{name}' collides with existing topic: {other}")


async def create_on_demand(logs: Log, settings: Settings, name: str, client: str) -> Topic:
    """Creates a topic that a client asked for and that does not exist (`auto.create.topics.enable`).

    Args:
        settings: as they are now: `auto_create_topics` allows it, `default_partitions` is how many it gets.
        client: for the line in the log.

    Raises:
        InvalidTopic: the name cannot be a topic's.
        UnknownTopicOrPartition: topics are not created on demand; or another client deleted it in this moment.
        StorageUnavailable: Redis is gone.
    """
    check_name(name)
    if not settings.auto_create_topics:
        raise UnknownTopicOrPartition(f"topic {name} does not exist and is not created on demand")
    await check_collision(logs, name)
    try:
        topic = await logs.topics.create(name, settings.default_partitions, {})
    except TopicExists:  # another client or broker was quicker
        logs.topics.forget(name)
        return await logs.topic(name)
    log.info("%s: created topic %s with %d partitions", client, name, topic.partitions)
    return topic
