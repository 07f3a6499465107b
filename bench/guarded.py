"""Servers on which clients can be secured: Ketch and Kafka with the same listeners, users and ACLs.

Each has a listener without security, one with TLS, and two where clients log in (PLAIN): with TLS and without. An
authorizer decides on all of them. Who does not log in may do everything; `USER` has an ACL for each thing it does, and
there are ACLs of others, as on a broker in use.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from bench.contestants import Kafka, Ketch, Server
from bench.model import home
from ketch.security.authority import Authority
from tests.clients.security import properties
from tests.support.apache_kafka import free_ports

PLAIN, TLS, LOGIN, TLS_LOGIN = "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"
USER, PASSWORD = "bench", "of-the-benchmark"
TOPIC = "guarded"  # that USER may write to and read, as any group
OTHERS = 200  # ACLs
_DAYS = 30

_JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'


@contextmanager
def guarded(server: Server) -> Iterator[Server]:
    """A server of the same kind with these listeners, while the block runs."""
    with _made(server) as own:
        own.create(TOPIC)
        _permit(own)
        yield own


def librdkafka(listener: str) -> list[str]:
    """The options of kcat on a listener."""
    found = {"security.protocol": listener.lower()}
    if listener in (TLS, TLS_LOGIN):
        found["ssl.ca.location"] = str(_certificates()[0])
    if listener in (LOGIN, TLS_LOGIN):
        found |= {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
    return [word for name, value in found.items() for word in ("-X", f"{name}={value}")]


def java() -> Path:
    """A file with the properties of a Java client on TLS_LOGIN."""
    login = {"mechanism": "PLAIN", "user": USER, "password": PASSWORD, "ca": str(_certificates()[0])}
    path = home() / f"{TLS_LOGIN}.properties"
    path.write_text(properties.text(properties.java(login)))
    return path


def _made(server: Server) -> Server:
    """Not started yet."""
    _, broker = _certificates()
    if isinstance(server, Kafka):
        return _kafka(broker)
    assert isinstance(server, Ketch)
    return _Ketch.of(type(server))(
        *("--listeners", ",".join(f"{name}://127.0.0.1:0" for name in (PLAIN, TLS, LOGIN, TLS_LOGIN))),
        *("--ssl-keystore-location", str(broker), "--sasl-enabled-mechanisms", "PLAIN,SCRAM-SHA-256"),
        *("--authorizer-class-name", "standard", "--super-users", "User:ANONYMOUS"),
    )


class _Ketch(Ketch):
    """Ketch with listeners in the place of a port, and with the user."""

    def start(self) -> None:
        super().start()
        python, environment = self.interpreter()
        where = ["--redis", f"unix://{self.data}/valkey.sock", "--mechanism", "SCRAM-SHA-256"]
        command = [python, "-m", "ketch", "users", "add", USER, *where]
        subprocess.run(command, input=PASSWORD.encode(), env=environment, check=True, capture_output=True)

    @staticmethod
    def of(made: type[Ketch]) -> type[Ketch]:
        return type(made.__name__, (_Ketch, made), {})


def _kafka(broker: Path) -> Kafka:
    *ports, controller = free_ports(5)
    named = dict(zip((PLAIN, TLS, LOGIN, TLS_LOGIN), (f"127.0.0.1:{port}" for port in ports), strict=True))
    addresses = ",".join(f"{name}://{address}" for name, address in named.items())
    protocols = ",".join(f"{name}:{name}" for name in named)
    settings = {
        "listeners": f"{addresses},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": addresses,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(broker),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    for name in (LOGIN, TLS_LOGIN):
        of = f"listener.name.{name.lower()}"
        settings[f"{of}.plain.sasl.jaas.config"] = _JAAS
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        settings[f"{of}.scram-sha-256.sasl.jaas.config"] = scram
    made = Kafka(settings, ports[0])
    made.listeners = named
    return made


def _permit(server: Server) -> None:
    def acl(kind: ResourceType, name: str, operation: AclOperation, user: str = USER) -> AclBinding:
        pattern = ResourcePatternType.LITERAL
        return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)

    wanted = [acl(ResourceType.TOPIC, TOPIC, operation) for operation in (AclOperation.READ, AclOperation.WRITE)]
    wanted.append(acl(ResourceType.GROUP, "*", AclOperation.READ))
    wanted.append(acl(ResourceType.BROKER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE))
    wanted += [acl(ResourceType.TOPIC, f"of-{n}", AclOperation.READ, f"user-{n}") for n in range(OTHERS)]
    for future in server.admin().create_acls(wanted).values():
        future.result(30)


def _certificates() -> tuple[Path, Path]:
    """The authority's certificate, and the broker's with its key; made once."""
    ca, broker = home() / "ca.pem", home() / "broker.pem"
    if not broker.exists():
        authority = Authority.new(_DAYS)
        signed = authority.sign("broker", ("localhost", "127.0.0.1"))
        ca.write_bytes(authority.pem.certificate)
        broker.write_bytes(signed.key + signed.certificate)
        broker.chmod(0o600)
    return ca, broker
