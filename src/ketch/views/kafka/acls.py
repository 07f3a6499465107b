"""ACLs by a broker's admin API: asked for, added and removed.

confluent-kafka numbers everything as Kafka does; it calls the cluster BROKER.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ketch.security.acls import Acl, Filter, Operation, PatternType, Permission, ResourceType
from ketch.views.kafka.answers import TIMEOUT, ClientError, result
from ketch.views.kafka.cluster import broker_configs

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


_NOT_LISTED = "ACLs cannot be listed"
_AUTHORIZER = "authorizer.class.name"


def chosen(admin: AdminClient, wanted: Filter) -> list[Acl]:
    """The ACLs that a filter means, sorted; raises ClientError."""
    found: Any = result(admin.describe_acls(_filter(wanted), request_timeout=TIMEOUT), _NOT_LISTED)
    if not found:
        _check(admin)
    return sorted(map(_acl, found))


def _check(admin: AdminClient) -> None:
    """Raises ClientError where there are no ACLs to list, or they may not be listed.

    confluent-kafka 2 answers an empty list for an error of the whole response, CLUSTER_AUTHORIZATION_FAILED (31) and
    SECURITY_DISABLED (54). So the same is asked in other words, of any Kafka: what may be done with the cluster, and
    the broker's config. An authorizer may refuse to show that.
    """
    kinds = _kinds()
    asked = admin.describe_cluster(include_authorized_operations=True, request_timeout=TIMEOUT)
    if kinds.AclOperation.DESCRIBE not in (result(asked, _NOT_LISTED).authorized_operations or ()):
        raise ClientError(f"{_NOT_LISTED}: Cluster authorization failed.")
    try:
        authorizer = broker_configs(admin).get(_AUTHORIZER)
    except ClientError:
        return
    if authorizer == "":
        raise ClientError(f"{_NOT_LISTED}: No Authorizer is configured.")


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
