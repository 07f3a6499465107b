"""The same logins and changes of users to Ketch and to Apache Kafka: they agree, or the difference is written here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.apache_kafka import ApacheKafka, free_ports, missing_tools
from tests.support.kafka import (
    ALTER_USERS,
    API_VERSIONS,
    DESCRIBE_USERS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SERVED,
    TOKENS,
)
from tests.support.ketch import KetchServer, eventually
from tests.support.sasl import ALL, PLAIN, SHA_256, SHA_512, SaslClient, add_user, sasl_server

NO_KAFKA = missing_tools()
pytestmark = pytest.mark.skipif(NO_KAFKA is not None, reason=str(NO_KAFKA))

JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
PLAIN_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="in-secret";'


def kafka_with_sasl(port: int, sasl: int) -> ApacheKafka:
    """A Kafka that speaks plaintext at one port and SASL at the other."""
    (controller,) = free_ports(1)
    addresses = f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl}"
    of = "listener.name.sasl_plaintext"
    settings = {
        "listeners": f"{addresses},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": addresses,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": ALL,
        "connections.max.reauth.ms": "60000",
        **{f"{of}.{each.lower()}.sasl.jaas.config": JAAS for each in (SHA_256, SHA_512)},
        f"{of}.plain.sasl.jaas.config": PLAIN_JAAS,
    }
    return ApacheKafka(settings, heap="256M", port=port)


@pytest.fixture(scope="module")
def kafka_ports() -> Iterator[tuple[int, int]]:
    """Of a Kafka that knows alice: the one for everybody, and the one where clients log in."""
    plain, sasl = free_ports(2)
    with kafka_with_sasl(plain, sasl):
        with SaslClient(plain) as client:
            for mechanism in (1, 2):
                client.ask(ALTER_USERS, 0, upsertions=[credential("alice", mechanism, "in-secret")])
        eventually(lambda: knows(sasl, "alice"))
        yield plain, sasl


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, kafka_ports: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The ports where Ketch and Kafka have clients log in. Both know alice."""
    server = sasl_server(tmp_path_factory.mktemp("ketch"), "--connections-max-reauth-ms", "60000").start()
    add_user(server, "alice", "in-secret")
    yield server.port, kafka_ports[1]
    assert server.stop() == 0


def knows(port: int, name: str) -> bool:
    """Whether a user can log in by SCRAM: a Kafka broker takes a moment to learn of one."""
    with SaslClient(port) as client:
        client.handshake(SHA_512)
        return client.token(f"n,,n={name},r=x".encode()).error_code == 0


def credential(name: str, mechanism: int = 1, password: str = "x", iterations: int = 4096) -> dict[str, Any]:
    hash_name = {1: "sha256", 2: "sha512"}.get(mechanism, "sha256")
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), b"saltsalt", iterations)
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": b"saltsalt",
        "salted_password": salted,
    }


Step = Callable[[SaslClient], Any]


def told(answer: Any) -> Any:
    """What of an answer has to be the same: nonces differ, and Kafka's mechanisms have no order."""
    if not hasattr(answer, "error_code"):
        return answer
    message, mechanisms = getattr(answer, "error_message", None), sorted(getattr(answer, "mechanisms", ()))
    lifetime = getattr(answer, "session_lifetime", None)
    return int(answer.error_code), message, mechanisms, lifetime


def run(port: int, steps: tuple[Step, ...]) -> list[Any]:
    """What each step sees, up to the end of the connection."""
    seen: list[Any] = []
    with SaslClient(port) as client:
        for step in steps:
            try:
                seen.append(told(step(client)))
            except ConnectionError:
                return [*seen, "closed"]
    return seen


def login(password: str = "in-secret", name: str = "alice", authzid: str = "") -> Step:
    return lambda client: client.plain(name, password, authzid)


def shake(mechanism: str, version: int = 1) -> Step:
    return lambda client: client.handshake(mechanism, version)


def send(token: bytes) -> Step:
    return lambda client: client.token(token)


def raw(token: bytes) -> Step:
    return lambda client: client.raw_token(token)


def versions(**software: str) -> Step:
    named = {"client_software_name": "raw", "client_software_version": "1", **software}
    return lambda client: client.ask(API_VERSIONS, 3, **named).error_code


def closed(client: SaslClient) -> bool:
    return client.closed()


def lives(client: SaslClient) -> bool:
    return client.metadata().cluster_id is not None


LOGINS: dict[str, tuple[Step, ...]] = {
    "scram 256": (lambda client: client.scram("alice", "in-secret"), lives),
    "scram 512": (lambda client: client.scram("alice", "in-secret", SHA_512), lives),
    "scram, wrong": (lambda client: client.scram("alice", "wrong"), closed),
    "plain": (login(), send(b"x"), lives),
    "plain, wrong": (login("wrong"), closed),
    "plain, nobody": (login(name="bob"), closed),
    "plain for itself": (login(authzid="alice"), lives),
    "plain for another": (login(authzid="root"), closed),
    "plain without password": (shake(PLAIN), send(b"\0alice\0"), closed),
    "plain without name": (shake(PLAIN), send(b"\0\0in-secret"), closed),
    "plain of one token": (shake(PLAIN), send(b"alice"), closed),
    "plain of five tokens": (shake(PLAIN), send(b"a\0b\0c\0d\0e"), closed),
    "another mechanism": (shake("GSSAPI"), closed),
    "versions": (versions(), login(), versions(), lives),
    "versions twice": (versions(), versions()),
    "versions of an ill-named client": (versions(client_software_name="-"), versions(), login()),
    "a handshake twice": (shake(PLAIN), shake(PLAIN), closed),
    "versions in place of a token": (shake(PLAIN), versions(), closed),
    "a request first": (lives,),
    "a token first": (send(b"x"),),
    "raw": (shake(PLAIN, 0), raw(b"\0alice\0in-secret"), lives),
    "raw, wrong": (shake(PLAIN, 0), raw(b"\0alice\0wrong")),
    "again": (login(), login(), lives),
    "again at once": (login(), login(), shake(PLAIN), lives),
    "again, wrong": (login(), login("wrong"), closed),
    "again by another mechanism": (login(), shake(SHA_256), send(b"n,,n=alice,r=x"), closed),
    "no SCRAM message": (shake(SHA_256), send(b"x"), closed),
    "SCRAM with channel binding": (shake(SHA_256), send(b"p=tls-unique,,n=alice,r=x"), closed),
    "SCRAM for another": (shake(SHA_256), send(b"n,a=root,n=alice,r=x"), closed),
    "SCRAM with a token": (shake(SHA_256), send(b"n,,n=alice,r=x,tokenauth=true"), closed),
}


@pytest.mark.parametrize("case", LOGINS)
def test_logins(both: tuple[int, int], case: str) -> None:
    ours, theirs = (run(port, LOGINS[case]) for port in both)
    assert ours == theirs


def test_where_they_differ(both: tuple[int, int]) -> None:
    """A user that does not exist fails at the end here; and what is not for this stage is not even parsed."""
    nobody = (shake(SHA_256), send(b"n,,n=bob,r=x"))
    assert [run(port, nobody)[1][0] for port in both] == [0, 58]
    early = (shake(SHA_256), lambda client: client.metadata().controller_id)
    assert [run(port, early)[1] for port in both] == ["closed", -1]


def users(client: SaslClient, **asked: Any) -> list[Any]:
    results = client.ask(ALTER_USERS, 0, **asked).results
    return sorted((each.user, int(each.error_code), each.error_message) for each in results)


def described(client: SaslClient, *names: str) -> list[Any]:
    results = client.ask(DESCRIBE_USERS, 0, users=[{"name": name} for name in names]).results
    found = [(each, sorted((info.mechanism, info.iterations) for info in each.credential_infos)) for each in results]
    return sorted((each.user, int(each.error_code), each.error_message, infos) for each, infos in found)


def deletion(name: str, mechanism: int = 1) -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism}


CHANGES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "no name": {"upsertions": [credential("")]},
    "mechanism 0": {"upsertions": [credential("b", 0)]},
    "mechanism 3": {"upsertions": [credential("b", 3)]},
    "few iterations": {"upsertions": [credential("b", iterations=4095)]},
    "many iterations": {"upsertions": [credential("b", iterations=16385)]},
    "a user twice": {"upsertions": [credential("b"), credential("b", 2)]},
    "a user three times": {"upsertions": [credential("b"), credential("b", 2), credential("b")]},
    "deleted and set": {"deletions": [deletion("alice")], "upsertions": [credential("alice", 2)]},
    "not there, and set": {"deletions": [deletion("b")], "upsertions": [credential("b", 2)]},
    "bad, then good": {"upsertions": [credential("b", iterations=1), credential("b", 2)]},
    "good, then bad": {"upsertions": [credential("b"), credential("b", 2, iterations=1)]},
    "not there": {"deletions": [deletion("b")]},
    "mechanism 7, deleted": {"deletions": [deletion("alice", 7)]},
    "deleted twice": {"deletions": [deletion("alice"), deletion("alice", 2)]},
    "one can, one cannot": {"upsertions": [credential("c"), credential("d", iterations=1)]},
}


@pytest.mark.parametrize("case", CHANGES)
def test_changes_of_users(both: tuple[int, int], case: str) -> None:
    ours, theirs = (run(port, (login(), lambda client: users(client, **CHANGES[case]))) for port in both)
    assert ours == theirs


@pytest.mark.parametrize("names", [("alice",), ("nobody",), ("alice", "nobody", "x", "x")], ids=str)
def test_descriptions_of_users(both: tuple[int, int], names: tuple[str, ...]) -> None:
    ours, theirs = (run(port, (login(), lambda client: described(client, *names))) for port in both)
    assert ours == theirs


@pytest.mark.parametrize("key", TOKENS)
def test_delegation_tokens(both: tuple[int, int], key: int) -> None:
    for version in SERVED[key]:
        ours, theirs = (run(port, (login(), lambda client, v=version: str(client.ask(key, v)))) for port in both)
        assert ours == theirs


@pytest.mark.parametrize("version", SERVED[SASL_HANDSHAKE])
def test_a_listener_without_sasl(broker: KetchServer, kafka_ports: tuple[int, int], version: int) -> None:
    steps: tuple[Step, ...] = (
        shake(PLAIN, version),
        shake("GSSAPI", version),
        lambda client: client.ask(SASL_AUTHENTICATE, 2, auth_bytes=b"x"),
    )
    assert run(broker.port, steps) == run(kafka_ports[0], steps)
