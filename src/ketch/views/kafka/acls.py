"""ACLs by a broker's admin API: asked for, added and removed.

confluent-kafka numbers everything as Kafka does; it calls the cluster BROKER.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ketch.security.acls import Acl, Filter, Operation, PatternType, Permission, ResourceType
from ketch.views.kafka.answers import TIMEOUT, result

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


def chosen(admin: AdminClient, wanted: Filter) -> list[Acl]:
    """The ACLs that a filter means, sorted; raises ClientError."""
    found: Any = result(admin.describe_acls(_filter(wanted), request_timeout=TIMEOUT), "ACLs cannot be listed")
    return sorted(map(_acl, found))


def add(admin: AdminClient, acls: Sequence[Acl]) -> None:
    """Adds ACLs; raises ClientError for the first that is refused."""
    bindings = [_kinds().AclBinding(*_fields(acl)) for acl in acls]
    for future in admin.create_acls(bindings, request_timeout=TIMEOUT).values():
        result(future, "An ACL was not added")


def remove(admin: AdminClient, wanted: Filter) -> list[Acl]:
    """Removes what a filter means, and gives it; raises ClientError."""
    (future,) = admin.delete_acls([_filter(wanted)], request_timeout=TIMEOUT).values()
    return sorted(map(_acl, result(future, "ACLs were not removed")))


def _filter(wanted: Filter) -> Any:
    return _kinds().AclBindingFilter(*_fields(wanted))


def _fields(given: Acl | Filter) -> tuple[Any, ...]:
    kinds = _kinds()
    return (
        kinds.ResourceType(int(given.resource)),
        given.name,
        kinds.ResourcePatternType(int(given.pattern)),
        given.principal,
        given.host,
        kinds.AclOperation(int(given.operation)),
        kinds.AclPermissionType(int(given.permission)),
    )


def _kinds() -> Any:
    """confluent-kafka's words; not all of them are exported for the type checker."""
    from confluent_kafka import admin

    return admin


def _acl(found: Any) -> Acl:
    return Acl(
        ResourceType.of(found.restype.value),
        PatternType.of(found.resource_pattern_type.value),
        found.name,
        found.principal,
        found.host,
        Operation.of(found.operation.value),
        Permission.of(found.permission_type.value),
    )
