"""What requests touch: Kafka's resources, and the operations on them that a client needs to be allowed.

These are the words in which `touches` says what each API touches; a row of the dispatch table names its rules
(`Api.touches`), so that whoever decides about a request finds them in one place. Nothing is decided here: every client
may do everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ketch.store.topics.topic import TopicKey

CLUSTER_NAME = "kafka-cluster"  # Resource.CLUSTER_NAME: the only resource of its type


class ResourceType(IntEnum):
    """Kafka's ResourceType, those of it that a request can touch here."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Operation(IntEnum):
    """Kafka's AclOperation, without those that stand for any or all of them."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ConfigType(IntEnum):
    """Kafka's ConfigResource.Type: what the APIs of configs are about."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


# What can be done to a resource of a type (AclEntry.supportedOperations).
OPERATIONS: dict[ResourceType, frozenset[Operation]] = {
    ResourceType.TOPIC: frozenset(Operation) - {Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE},
    ResourceType.GROUP: frozenset(
        {
            Operation.READ,
            Operation.DESCRIBE,
            Operation.DELETE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.CLUSTER: frozenset(Operation) - {Operation.READ, Operation.WRITE, Operation.DELETE},
    ResourceType.TRANSACTIONAL_ID: frozenset({Operation.DESCRIBE, Operation.WRITE}),
}


def authorized(resource: ResourceType) -> int:
    """The bits of all operations on a resource: what a client is told that it may do (KIP-430)."""
    return sum(1 << operation for operation in OPERATIONS[resource])


Condition = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Touch:
    """An operation on resources of one type.

    Args:
        paths: where a request names them: names of fields with dots between, through arrays. A version without a field
            names none there. The cluster needs no name.
        config: of the elements of an array only those about this type of config.
        when: whether a request's body touches them at all; without it every one does.
        note: what the names do not say, for people: above all resources that only the handler can know.
    """

    operation: Operation
    resource: ResourceType
    paths: tuple[str, ...] = ()
    config: ConfigType | None = None
    when: Condition | None = None
    note: str = ""

    def names(self, body: Any) -> list[TopicKey]:
        """The names of the resources in a request's body; a topic's id where the version has that (KIP-516)."""
        if self.when is not None and not self.when(body):
            return []
        if self.resource is ResourceType.CLUSTER:
            return [CLUSTER_NAME]
        return [name for path in self.paths for name in self._at(body, path.split("."))]

    def _at(self, value: Any, path: list[str]) -> Iterator[TopicKey]:
        if value is None:
            return
        if isinstance(value, tuple):
            for each in value:
                if self.config is None or each.resource_type == self.config:
                    yield from self._at(each, path)
        elif path:
            yield from self._at(getattr(value, path[0], None), path[1:])
        else:
            yield value


@dataclass(frozen=True, slots=True)
class OneOf:
    """Touches of which a client needs one: the first that it is allowed is enough, asked in this order."""

    touches: tuple[Touch, ...]


Rule = Touch | OneOf


# -- how rows say it


def on_topics(operation: Operation, *paths: str, when: Condition | None = None, note: str = "") -> Touch:
    return Touch(operation, ResourceType.TOPIC, paths, when=when, note=note)


def on_groups(operation: Operation, *paths: str, when: Condition | None = None, note: str = "") -> Touch:
    return Touch(operation, ResourceType.GROUP, paths, when=when, note=note)


def on_transactional_ids(operation: Operation, *paths: str, when: Condition | None = None, note: str = "") -> Touch:
    return Touch(operation, ResourceType.TRANSACTIONAL_ID, paths, when=when, note=note)


def on_cluster(operation: Operation, when: Condition | None = None, note: str = "") -> Touch:
    return Touch(operation, ResourceType.CLUSTER, when=when, note=note)


def one_of(*touches: Touch) -> OneOf:
    return OneOf(touches)
