"""What the person before a page may see and do, by the rights that the same user has as a client of Kafka.

A topic that may not be described is not there; records want READ of their topic, a topic's configs DESCRIBE_CONFIGS,
clients and nodes DESCRIBE of the cluster, settings DESCRIBE_CONFIGS of it. Changes are requests, whose rights the
broker asks (`broker.inside`). Nobody is asked where there is no authorizer, and who has shown the token may see all.
"""

from __future__ import annotations

from collections.abc import Iterable

from ketch.console.sources import Rights
from ketch.errors import ConfigError, KetchError
from ketch.security.acls import CLUSTER_NAME, Operation, ResourceType


class Forbidden(KetchError):
    """The person knows that it is there, and may not see it."""


class Access:
    """The rights of one person.

    Args:
        user: who has logged in; None where nobody had to.
        rights: None: all of them.
    """

    def __init__(self, user: str | None, rights: Rights | None) -> None:
        self.user, self._rights = user, rights

    def may(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        return self._rights is None or self._rights.decide(operation, resource, name).allowed

    def topics(self, names: Iterable[str]) -> list[str]:
        """Those that the person may know of."""
        return [name for name in names if self.may(Operation.DESCRIBE, ResourceType.TOPIC, name)]

    def groups(self, names: Iterable[str]) -> list[str]:
        """Those that the person may know of."""
        return [name for name in names if self.may(Operation.DESCRIBE, ResourceType.GROUP, name)]

    def want_topic(self, name: str, *operations: Operation) -> None:
        """Raises ConfigError where the person may not know of the topic, Forbidden where something else is missing."""
        self._want(ResourceType.TOPIC, name, f"There is no topic {name}.", operations)

    def want_group(self, name: str) -> None:
        """Raises ConfigError where the person may not know of the group."""
        self._want(ResourceType.GROUP, name, f"There is no group {name}.", ())

    def of_cluster(self, operation: Operation) -> bool:
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def want_cluster(self, operation: Operation) -> None:
        """Raises Forbidden where the person may not do that to the cluster."""
        if not self.of_cluster(operation):
            raise Forbidden(f"{self.user} may not see this: it takes {operation.name} of the cluster.")

    def _want(self, resource: ResourceType, name: str, absent: str, operations: tuple[Operation, ...]) -> None:
        if not self.may(Operation.DESCRIBE, resource, name):
            raise ConfigError(absent)
        for operation in operations:
            if not self.may(operation, resource, name):
                raise Forbidden(f"{self.user} may not see this: it takes {operation.name} of {name}.")
