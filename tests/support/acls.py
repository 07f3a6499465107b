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


class Marks:
    """Two further ACLs, by which a client of theirs sees that the ACLs that were stored with them are in force.

    Attributes:
        acls: one topic may be described, another one not.
    """

    def __init__(self, principal: str = ANYONE) -> None:
        self._number = next(_marks)
        self._names = f"allowed-{self._number}", f"denied-{self._number}"
        self.acls = [
            allow(ResourceType.TOPIC, name, Operation.DESCRIBE, permission, principal=principal)
            for name, permission in zip(self._names, (Permission.ALLOW, Permission.DENY), strict=True)
        ]

    def wait(self, kafka: Kafka, seconds: float = 20.0) -> None:
        eventually(lambda: self._denied(kafka) == [False, True], seconds, f"ACLs to be in force: {self._number}")

    def _denied(self, kafka: Kafka) -> list[bool]:
        asked = {"topics": [{"name": name} for name in self._names], "allow_auto_topic_creation": False}
        found = {topic.name: topic.error_code == _DENIED for topic in kafka.ask(METADATA, 9, **asked).topics}
        return [found[name] for name in self._names]


class Acls:
    """The ACLs of a broker.

    Args:
        client: of its Redis.
        kafka: a connection by which it is seen when they are in force.
    """

    def __init__(self, client: redis.Redis, kafka: Kafka) -> None:
        self._redis, self._kafka = client, kafka

    def set(self, acls: Iterable[Acl]) -> None:
        """Replaces all ACLs, and waits until the broker has them."""
        marks = Marks()
        pipe = self._redis.pipeline(transaction=True)
        pipe.delete(KEY)
        pipe.sadd(KEY, *(acl.text for acl in [*marks.acls, *acls]))
        pipe.execute()
        marks.wait(self._kafka)
