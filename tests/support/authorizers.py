"""Ketch and Apache Kafka with its StandardAuthorizer side by side: the same users, the same ACLs, the same questions.

On both `admin` is a super user, and `alice` and `bob` have only what ACLs give them. They call from two addresses of
this machine, so that ACLs for a host count, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ketch.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from tests.support.acls import ON
from tests.support.apache_kafka import ApacheKafka, free_ports
from tests.support.ketch import eventually
from tests.support.sasl import SHA_256, SaslClient, add_user, sasl_server

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
ANYTHING = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
PASSWORD = "in-secret"
ADMIN, USERS = "admin", ("alice", "bob")
HOSTS = ("127.0.0.1", "127.0.0.2")
OPEN = "allow.everyone.if.no.acl.found"

_LOGINS = " ".join(f'user_{name}="{PASSWORD}"' for name in (ADMIN, *USERS))
_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    f' username="{ADMIN}" password="{PASSWORD}" {_LOGINS};'
)
_SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT",
    # Kafka's share coordinator does not get through to itself over SASL.
    "inter.broker.listener.name": "INTERNAL",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": _JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN};User:ANONYMOUS",  # the broker itself is anonymous to itself
}


class Side:
    """One of the two brokers.

    Attributes:
        admin: may do everything.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._callers: dict[tuple[str, str], SaslClient] = {}
        self.admin = self.caller(ADMIN)

    def caller(self, name: str, host: str = HOSTS[0]) -> SaslClient:
        """A connection of a user from an address; the same one each time."""
        if (name, host) not in self._callers:
            client = SaslClient(self._port, timeout=60.0, source=host)
            assert client.plain(name, PASSWORD).error_code == 0
            self._callers[name, host] = client
        return self._callers[name, host]

    def close(self) -> None:
        for client in self._callers.values():
            client.close()

    def set(self, acls: Iterable[Acl]) -> None:
        """Replaces all ACLs, and waits until they are in force.

        Both brokers answer DescribeAcls with the ACLs by which they decide at that moment. A topic of its own would not
        tell as much: a generated DENY may be about it, too.
        """
        acls = list(dict.fromkeys(acls))
        assert self.admin.ask(DELETE_ACLS, 3, filters=[ANYTHING]).filter_results[0].error_code == 0
        made = self.admin.ask(CREATE_ACLS, 3, creations=[_creation(acl) for acl in acls])
        assert not any(result.error_code for result in made.results), made
        eventually(lambda: self._in_force() == set(acls), 60.0, "ACLs to be in force")

    def _in_force(self) -> set[Acl]:
        found = self.admin.ask(DESCRIBE_ACLS, 3, **ANYTHING)
        assert found.error_code == 0, found
        return {_acl(pattern, entry) for pattern in found.resources for entry in pattern.acls}


def _creation(acl: Acl) -> dict[str, Any]:
    return {
        "resource_type": acl.resource,
        "resource_name": acl.name,
        "resource_pattern_type": acl.pattern,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


def _acl(pattern: Any, entry: Any) -> Acl:
    return Acl(
        ResourceType(pattern.resource_type),
        PatternType(pattern.pattern_type),
        pattern.resource_name,
        entry.principal,
        entry.host,
        Operation(entry.operation),
        Permission(entry.permission_type),
    )


@contextmanager
def both_sides(directory: Path, topics: Iterable[str], allow_if_none: bool = False) -> Iterator[tuple[Side, Side]]:
    """Ketch and Kafka without an ACL. The topics are there, and the coordinators of groups and of transactions.

    Args:
        directory: of Ketch.
        allow_if_none: `allow.everyone.if.no.acl.found`.
    """
    options = ("--allow-everyone-if-no-acl-found",) if allow_if_none else ()
    server = sasl_server(directory, *ON, "--super-users", f"User:{ADMIN}", *options).start()
    try:
        for name in (ADMIN, *USERS):
            add_user(server, name, PASSWORD, "--mechanism", SHA_256)
        port, internal, controller = free_ports(3)
        listeners = f"PLAINTEXT://127.0.0.1:{port},INTERNAL://127.0.0.1:{internal}"
        settings = {
            **_SETTINGS,
            OPEN: str(allow_if_none).lower(),
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listeners,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        }
        with ApacheKafka(settings, port=port, features=("share.version=1",)) as kafka:
            sides = Side(server.port), Side(kafka.port)
            for side in sides:
                for name in topics:
                    side.admin.create(name)
                _wake_coordinators(side.admin)
            yield sides
            for side in sides:
                side.close()
    finally:
        server.stop()
        server.close()


def _wake_coordinators(admin: SaslClient) -> None:
    """Kafka makes the topics in which it keeps groups and transactions when it is first asked for them."""
    for kind in (0, 1):
        asked = {"key_type": kind, "coordinator_keys": ["x"]}
        eventually(
            lambda asked=asked: not any(found.error_code for found in admin.ask(10, 4, **asked).coordinators), 60.0
        )
