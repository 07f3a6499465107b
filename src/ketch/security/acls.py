"""ACLs as values: Kafka's resource patterns and access control entries, and the filters that choose among them.

The model is org.apache.kafka.common.acl and .resource. Names and numbers are Kafka's. `rules` decides by ACLs; here is
only what one is, how it is written as text, and which of them a filter means.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Self

from ketch.errors import KetchError

WILDCARD = "*"  # of a literal pattern's name: every resource of the type; of a host: every host
ANYONE = "User:*"  # KafkaPrincipal: every principal, whatever its type
_NO_COLON = "(no colon is present separating the principal type from the principal name)"
CLUSTER_NAME = "kafka-cluster"  # Resource.CLUSTER_NAME: the only resource of its type


class _Code(IntEnum):
    """What the protocol has a number for."""

    @classmethod
    def of(cls, code: int) -> Self:
        """The member of a number; UNKNOWN, which is 0, for one that has none, as `fromCode` in Kafka."""
        return cls(code) if code in cls._value2member_map_ else cls(0)


class ResourceType(_Code):
    """Kafka's ResourceType; ANY stands in filters alone."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Operation(_Code):
    """Kafka's AclOperation; ANY stands in filters alone, ALL in ACLs and not in what a request asks for."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PatternType(_Code):
    """Kafka's PatternType; ANY and MATCH stand in filters alone."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(_Code):
    """Kafka's AclPermissionType; ANY stands in filters alone."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class UnreadableAcl(KetchError):
    """A text that no version known here can have written for an ACL."""


class Acl(NamedTuple):
    """One access control entry on one resource pattern (Kafka's AclBinding).

    Attributes:
        principal: type and name, "User:alice".
        host: an address, or "*".
    """

    resource: ResourceType
    pattern: PatternType
    name: str
    principal: str
    host: str
    operation: Operation
    permission: Permission

    @property
    def text(self) -> str:
        """As it lies in Redis: a JSON list of the fields, enumerations by name."""
        words = (
            self.resource.name,
            self.pattern.name,
            self.name,
            self.principal,
            self.host,
            self.operation.name,
            self.permission.name,
        )
        return json.dumps(words, ensure_ascii=False, separators=(",", ":"))

    def __str__(self) -> str:
        """For log lines, as StandardAcl writes itself."""
        return (
            f"resourceType={self.resource.name}, patternType={self.pattern.name}, resourceName={self.name},"
            f" principal={self.principal}, host={self.host}, operation={self.operation.name},"
            f" permissionType={self.permission.name}"
        )


def parse(text: str) -> Acl:
    """The ACL of a text, which a person may have written; raises UnreadableAcl where it is none."""
    try:
        resource, pattern, name, principal, host, operation, permission = json.loads(text)
        acl = Acl(
            ResourceType[resource],
            PatternType[pattern],
            name,
            principal,
            host,
            Operation[operation],
            Permission[permission],
        )
    except (ValueError, KeyError, TypeError):
        raise UnreadableAcl(f"{text[:200]!r} is no ACL") from None
    words = all(isinstance(word, str) for word in (name, principal, host))
    flaw = flaw_of(acl) if words else "a name is no text"
    if flaw:
        raise UnreadableAcl(f"{text[:200]!r} is no ACL: {flaw}")
    return acl


def flaw_of(acl: Acl) -> str:
    """Why an ACL is not stored (AclControlManager.validateNewAcl); empty where it is.

    A principal without a type is refused here. Kafka stores it, and then each decision that meets the ACL fails.
    """
    if acl.resource <= ResourceType.ANY:
        return f"Invalid resourceType {acl.resource.name}"
    if acl.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {acl.pattern.name}"
    if acl.operation <= Operation.ANY:
        return f"Invalid operation {acl.operation.name}"
    if acl.permission <= Permission.ANY:
        return f"Invalid permissionType {acl.permission.name}"
    if not acl.name:
        return "Resource name should not be empty"
    return "" if ":" in acl.principal else f"Could not parse principal from `{acl.principal}` {_NO_COLON}"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which ACLs are meant (Kafka's AclBindingFilter); None and ANY mean all of a field.

    Args:
        pattern: with MATCH all patterns that hold for a resource called `name`.
    """

    resource: ResourceType = ResourceType.ANY
    pattern: PatternType = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource in (ResourceType.ANY, acl.resource)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, acl.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern is not PatternType.MATCH:
            return self.name == acl.name
        if acl.pattern is PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name in (self.name, WILDCARD)
