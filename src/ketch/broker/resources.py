"""What requests touch: Kafka's resources, and the operations on them that a client needs to be allowed.

These are the words in which `touches` says what each API touches, and what follows where a client may not; a row of the
dispatch table names its rules (`Api.touches`), so that the authorizer finds them in one place. Nothing is decided here:
`Request.refusal` and `Request.denial` ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Any, Protocol

from kio.schema.errors import ErrorCode

from ketch.security.acls import CLUSTER_NAME, Operation, ResourceType
from ketch.store.topics.topic import TopicKey


class ConfigType(IntEnum):
    """Kafka's ConfigResource.Type: what the APIs of configs are about."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


# What can be done to a resource of a type, of what a request can touch here (AclEntry.supportedOperations).
OPERATIONS: dict[ResourceType, frozenset[Operation]] = {
    ResourceType.TOPIC: frozenset(
        {
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset(
        {
            Operation.READ,
            Operation.DESCRIBE,
            Operation.DELETE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.CLUSTER: frozenset(
        {
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({Operation.DESCRIBE, Operation.WRITE}),
}

# The code that says that something was denied, and Kafka's text for it (org.apache.kafka.common.protocol.Errors).
DENIED: dict[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.topic_authorization_failed,
    ResourceType.GROUP: ErrorCode.group_authorization_failed,
    ResourceType.CLUSTER: ErrorCode.cluster_authorization_failed,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
}
DENIED_TEXTS: dict[ErrorCode, str] = {
    ErrorCode.topic_authorization_failed: "Topic authorization failed.",
    ErrorCode.group_authorization_failed: "Group authorization failed.",
    ErrorCode.cluster_authorization_failed: "Cluster authorization failed.",
    ErrorCode.transactional_id_authorization_failed: "Transactional Id authorization failed.",
}


class Denial(Enum):
    """What follows where a client is not allowed what a rule says."""

    WHOLE = "whole"  # the request is refused before its handler sees it, in the words of `Api.refused`
    EACH = "each"  # the request's other names are served; `Request.denial` has the code for those denied
    ASKED = "asked"  # what may not be seen is left out or not done: the handler asks with `Request.denial_by`


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
        denial: what follows where it is not allowed.
        somewhere: to be allowed it on any resource of the type is enough.
    """

    operation: Operation
    resource: ResourceType
    paths: tuple[str, ...] = ()
    config: ConfigType | None = None
    when: Condition | None = None
    note: str = ""
    denial: Denial = Denial.EACH
    somewhere: bool = False

    @property
    def touches(self) -> tuple[Touch, ...]:
        """Itself: as `OneOf.touches`."""
        return (self,)

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
    denial: Denial


Rule = Touch | OneOf


class Allows(Protocol):
    """Whether a caller may do something to a resource; to any one of the type where there is no name."""

    def __call__(self, operation: Operation, resource: ResourceType, name: str | None, *, quiet: bool) -> bool: ...


def denial_by(rule: Rule, name: str, allows: Allows) -> ErrorCode:
    """The code where a rule is not met for the resource of a name; `none` where it is.

    Only the last of several ways to be allowed is one that the caller is said to have been denied (`logIfDenied`).
    """
    last = rule.touches[-1]
    for touch in rule.touches:
        named = CLUSTER_NAME if touch.resource is ResourceType.CLUSTER else None if touch.somewhere else name
        if allows(touch.operation, touch.resource, named, quiet=touch is not last or rule.denial is Denial.ASKED):
            return ErrorCode.none
    return DENIED[(rule.touches[0] if last.somewhere else last).resource]


def whole_denial(rule: Rule, body: Any, allows: Allows) -> ErrorCode:
    """As `denial_by`, for a rule that refuses a whole request: for each name in its body."""
    first = rule.touches[0]
    names = first.names(body)
    return next((code for name in names if (code := denial_by(rule, str(name), allows))), ErrorCode.none)


# -- how rows say it


def on_topics(operation: Operation, *paths: str, when: Condition | None = None, note: str = "") -> Touch:
    return Touch(operation, ResourceType.TOPIC, paths, when=when, note=note)


def on_some_topic(operation: Operation, when: Condition | None = None) -> Touch:
    return Touch(operation, ResourceType.TOPIC, when=when, note="any one", somewhere=True)


def on_groups(operation: Operation, *paths: str, when: Condition | None = None, note: str = "") -> Touch:
    return Touch(operation, ResourceType.GROUP, paths, when=when, note=note)


def on_transactional_ids(operation: Operation, *paths: str, when: Condition | None = None, note: str = "") -> Touch:
    return Touch(operation, ResourceType.TRANSACTIONAL_ID, paths, when=when, note=note)


def on_cluster(operation: Operation, when: Condition | None = None, note: str = "") -> Touch:
    return Touch(operation, ResourceType.CLUSTER, when=when, note=note)


def one_of(*touches: Touch) -> OneOf:
    return OneOf(touches, Denial.EACH)


def whole(rule: Rule) -> Rule:
    """The rule, of which a denial refuses the whole request."""
    return replace(rule, denial=Denial.WHOLE)


def asked(rule: Rule) -> Rule:
    """The rule, for which the handler asks where it comes to that."""
    return replace(rule, denial=Denial.ASKED)
