"""ACLs as a test wants them: written straight into Redis, as somebody does who bootstraps a broker."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import redis

from ketch.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from tests.support.kafka import METADATA, Kafka
from tests.support.ketch import eventually

KEY = "korvet:acls"
ON = ("--authorizer-class-name", "standard")
ANYONE = "User:ANONYMOUS"
_DENIED = 29
_marks = itertools.count(1)


def allow(
    resource: ResourceType,
    name: str,
    operation: Operation,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = ANYONE,
    host: str = "*",
) -> Acl:
    return Acl(resource, pattern, name, principal, host, operation, permission)


def deny(resource: ResourceType, name: str, operation: Operation) -> Acl:
    return allow(resource, name, operation, Permission.DENY)


class Acls:
    """The ACLs of a broker.

    Two further ones are stored with them: one topic may be described, another one not. By these a client sees that
    those which were stored with them are in force.

    Args:
        client: of its Redis.
        kafka: a connection by which it is seen when they are in force.
    """

    def __init__(self, client: redis.Redis, kafka: Kafka) -> None:
        self._redis, self._kafka = client, kafka

    def set(self, acls: Iterable[Acl]) -> None:
        """Replaces all ACLs, and waits until the broker has them."""
        number = next(_marks)
        yes, no = f"allowed-{number}", f"denied-{number}"
        kinds = ((yes, Permission.ALLOW), (no, Permission.DENY))
        marks = [allow(ResourceType.TOPIC, name, Operation.DESCRIBE, kind, principal="User:*") for name, kind in kinds]
        pipe = self._redis.pipeline(transaction=True)
        pipe.delete(KEY)
        pipe.sadd(KEY, *(acl.text for acl in [*marks, *acls]))
        pipe.execute()
        eventually(lambda: self._denied(yes, no) == [False, True], 20.0, f"ACLs to be in force: {number}")

    def _denied(self, *names: str) -> list[bool]:
        asked = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
        found = {topic.name: topic.error_code == _DENIED for topic in self._kafka.ask(METADATA, 9, **asked).topics}
        return [found[name] for name in names]
