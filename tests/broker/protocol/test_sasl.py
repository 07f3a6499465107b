"""Logging in, frame by frame: what Kafka's SaslServerAuthenticator takes in which state, and nothing else."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.batches import batch, records
from tests.support.kafka import (
    ALTER_USERS,
    API_VERSIONS,
    DESCRIBE_CONFIGS,
    DESCRIBE_USERS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SERVED,
    TOKENS,
    Kafka,
)
from tests.support.ketch import KetchServer, eventually
from tests.support.sasl import ALL, PLAIN, SHA_256, SHA_512, SaslClient, add_user, proof, sasl_server

SOFTWARE = {"client_software_name": "raw", "client_software_version": "1"}
INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism "
WRONG = "Authentication failed: Invalid username or password"

Connect = Callable[[], SaslClient]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    delay = ("--connection-failed-authentication-delay-ms", "10")
    server = sasl_server(tmp_path_factory.mktemp("sasl"), *delay).start()
    add_user(server, "alice", "in-secret")
    add_user(server, "Ünï=,x", "päss", "--iterations", "8192")
    add_user(server, "old", "in-secret", "--mechanism", SHA_256)
    yield server
    assert server.stop() == 0
    assert "Traceback" not in server.log


@pytest.fixture
def client(server: KetchServer) -> Iterator[SaslClient]:
    with SaslClient(server.port) as client:
        yield client


def line_of(server: KetchServer, client: Kafka, address: tuple[str, int]) -> str:
    """The only line that the log has of a client."""
    (line,) = eventually(lambda: [line for line in server.log.splitlines() if "{}:{}:".format(*address) in line])
    return line


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_scram(client: SaslClient, mechanism: str) -> None:
    assert client.scram("alice", "in-secret", mechanism).error_code == 0
    assert client.metadata().brokers


def test_a_name_of_any_characters(client: SaslClient) -> None:
    assert client.scram("Ünï=3D=2Cx", "päss").error_code == 0


@pytest.mark.parametrize("version", SERVED[SASL_AUTHENTICATE])
def test_plain(client: SaslClient, version: int) -> None:
    answer = client.plain("alice", "in-secret", version=version)
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, "", b"")
    assert client.metadata().brokers


def test_plain_takes_a_credential_of_either_mechanism(client: SaslClient) -> None:
    assert client.plain("old", "in-secret").error_code == 0


def test_a_client_asks_for_versions_first(client: SaslClient) -> None:
    assert client.ask(API_VERSIONS, 3, **SOFTWARE).error_code == 0
    answer = client.handshake(PLAIN)
    assert (answer.error_code, list(answer.mechanisms)) == (0, ALL.split(","))
    assert client.token(b"\0alice\0in-secret").error_code == 0
    assert client.ask(API_VERSIONS, 3, **SOFTWARE).error_code == 0


def test_a_version_of_api_versions_that_is_not_served_may_be_followed_by_one_that_is(client: SaslClient) -> None:
    frame = bytearray(client.request(API_VERSIONS, 0))
    frame[2:4] = (99).to_bytes(2)
    client.send_frame(bytes(frame))
    assert client.answer(API_VERSIONS, 0)[1].error_code == 35
    assert client.ask(API_VERSIONS, 3, **SOFTWARE).error_code == 0
    assert client.plain("alice", "in-secret").error_code == 0


@pytest.mark.parametrize("mechanism", [SHA_256, PLAIN])
def test_raw_tokens_after_a_handshake_of_version_0(client: SaslClient, mechanism: str) -> None:
    assert client.handshake(mechanism, 0).error_code == 0
    if mechanism == PLAIN:
        assert client.raw_token(b"\0alice\0in-secret") == b""
    else:
        challenge = client.raw_token(b"n,,n=alice,r=nonce")
        assert challenge
        final, expected = proof(mechanism, "n=alice,r=nonce", challenge.decode(), "in-secret")
        assert client.raw_token(final) == expected
    assert client.metadata().brokers


def test_a_wrong_raw_token_gets_no_answer(client: SaslClient) -> None:
    assert client.handshake(PLAIN, 0).error_code == 0
    assert client.raw_token(b"\0alice\0wrong") is None


@pytest.mark.parametrize("name", ["alice", "nobody"])
@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512, PLAIN])
def test_a_wrong_password_and_an_unknown_user_get_the_same_answer(
    server: KetchServer, client: SaslClient, name: str, mechanism: str
) -> None:
    address = client.socket.getsockname()
    answer = client.plain(name, "wrong") if mechanism == PLAIN else client.scram(name, "wrong", mechanism)
    message = WRONG if mechanism == PLAIN else INVALID + mechanism
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (58, message, b"")
    assert client.closed()
    line = line_of(server, client, address)
    assert (
        f"WARNING ketch.broker.connection: raw at 127.0.0.1:{address[1]}: authentication failed ({mechanism})" in line
    )
    assert "wrong" not in line.partition("): ")[2].replace("wrong password", "")


def test_an_unknown_user_has_a_salt_that_stays(server: KetchServer) -> None:
    def challenged(name: str) -> str:
        with SaslClient(server.port) as client:
            client.handshake(SHA_256)
            return client.token(f"n,,n={name},r=x".encode()).auth_bytes.decode().split(",", 1)[1]

    assert challenged("nobody") == challenged("nobody") != challenged("nobody2")
    assert len(challenged("nobody")) == len(challenged("alice"))


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0in-secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"a\0b\0c\0d\0e", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0\0in-secret", "Authentication failed: username not specified"),
        (b"\0\xff\0x", WRONG),
    ],
)
def test_what_is_no_plain_message(client: SaslClient, token: bytes, message: str) -> None:
    client.handshake(PLAIN)
    answer = client.token(token)
    assert (answer.error_code, answer.error_message) == (58, message)
    assert client.closed()


def test_a_client_may_act_for_itself_alone(server: KetchServer) -> None:
    with SaslClient(server.port) as client:
        assert client.plain("alice", "in-secret", authzid="alice").error_code == 0
    with SaslClient(server.port) as client:
        answer = client.plain("alice", "in-secret", authzid="root")
        assert (answer.error_code, "different from username" in answer.error_message) == (58, True)
        assert client.closed()


@pytest.mark.parametrize("mechanism", ["GSSAPI", "", "scram-sha-256", "x\nINFO forged"])
def test_a_mechanism_that_is_not_enabled(server: KetchServer, client: SaslClient, mechanism: str) -> None:
    address = client.socket.getsockname()
    answer = client.handshake(mechanism)
    assert (answer.error_code, list(answer.mechanisms)) == (33, ALL.split(","))
    assert client.closed()
    assert "is not enabled" in line_of(server, client, address)


@pytest.mark.parametrize("stage", ["begin", "versions", "tokens"])
@pytest.mark.parametrize("key", [key for key in SERVED if key not in (SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS)])
def test_nothing_else_is_parsed_before(server: KetchServer, client: SaslClient, stage: str, key: int) -> None:
    if stage == "versions":
        client.ask(API_VERSIONS, 3, **SOFTWARE)
    if stage == "tokens":
        client.handshake(SHA_256)
    address = client.socket.getsockname()
    client.send_frame(struct.pack(">hhih", key, SERVED[key][-1], 1, -1) + b"\xff" * 40)
    assert client.closed()
    assert "before it has authenticated" in line_of(server, client, address)


@pytest.mark.parametrize("key", [SASL_HANDSHAKE, API_VERSIONS])
def test_another_request_in_place_of_a_token(client: SaslClient, key: int) -> None:
    client.handshake(SHA_256)
    assert client.ask(key, 1, mechanism=SHA_256).error_code == 34
    assert client.closed()


def test_an_ill_named_client_may_say_it_better(client: SaslClient) -> None:
    assert client.ask(API_VERSIONS, 3, client_software_name="-", client_software_version="1").error_code == 42
    assert client.ask(API_VERSIONS, 3, **SOFTWARE).error_code == 0
    assert client.plain("alice", "in-secret").error_code == 0


@pytest.mark.parametrize("keys", [(API_VERSIONS, API_VERSIONS), (SASL_AUTHENTICATE,)])
def test_requests_out_of_order(client: SaslClient, keys: tuple[int, ...]) -> None:
    for key in keys[:-1]:
        assert client.ask(key, 1, mechanism=PLAIN).error_code == 0
    client.send(keys[-1], 1)
    assert client.closed()


def test_large_frames_come_in_only_afterwards(server: KetchServer, topic: str) -> None:
    with SaslClient(server.port) as client:
        address = client.socket.getsockname()
        client.send_frame(b"", length=65_537)
        assert client.closed()
        assert "sasl_server_max_receive_size" in line_of(server, client, address)
    with SaslClient(server.port) as client:
        assert client.handshake(PLAIN).error_code == 0
        assert client.token(b"\0alice\0in-secret".ljust(65_000)).error_code == 58
    with SaslClient(server.port) as client:
        assert client.plain("alice", "in-secret").error_code == 0
        client.create(topic)
        assert client.stored(topic, batch(records([bytes(500_000)]))) >= 0


def test_after_logging_in_there_is_nothing_to_authenticate(client: SaslClient) -> None:
    client.plain("alice", "in-secret")
    answer = client.token(b"\0alice\0in-secret")
    assert answer.error_code == 34
    assert answer.error_message == "SaslAuthenticate request received after successful authentication"
    assert client.metadata().brokers


@pytest.mark.parametrize("version", SERVED[SASL_HANDSHAKE])
def test_a_listener_without_sasl(kafka: Kafka, version: int) -> None:
    answer = kafka.ask(SASL_HANDSHAKE, version, mechanism=PLAIN)
    assert (answer.error_code, list(answer.mechanisms)) == (34, [])
    assert kafka.ask(SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0in-secret").error_code == 34
    assert kafka.metadata().brokers


@pytest.mark.parametrize("key", TOKENS)
def test_delegation_tokens(kafka: Kafka, client: SaslClient, key: int) -> None:
    """As a Kafka without `delegation.token.secret.key`."""
    client.plain("alice", "in-secret")
    for version in SERVED[key]:
        assert kafka.ask(key, version).error_code == 64
        assert client.ask(key, version).error_code == 61


def test_a_secret_is_in_no_config(server: KetchServer, client: SaslClient) -> None:
    client.plain("alice", "in-secret")
    resources = [{"resource_type": 4, "resource_name": "1", "configuration_keys": None}]
    (result,) = client.ask(DESCRIBE_CONFIGS, 4, resources=resources).results
    configs = {config.name: config.value for config in result.configs}
    assert configs["sasl.enabled.mechanisms"] == ALL
    assert "in-secret" not in str(result) + server.log
    assert "in-secret" not in str(server.redis().hgetall("korvet:users"))


def test_passwords_in_clear_are_warned_of_once(server: KetchServer) -> None:
    line = "WARNING ketch.broker.access.mechanisms: listener PLAINTEXT has no TLS: with PLAIN"
    assert server.log.count(line) == 1


# -- time


def test_a_client_that_does_not_authenticate(tmp_path: Path) -> None:
    server = sasl_server(tmp_path, "--authentication-timeout-ms", "300").start()
    add_user(server, "alice", "in-secret")
    with SaslClient(server.port) as silent, SaslClient(server.port) as half, SaslClient(server.port) as good:
        assert good.plain("alice", "in-secret").error_code == 0
        addresses = [each.socket.getsockname() for each in (silent, half)]
        half.handshake(SHA_256)
        half.socket.sendall(b"\0\0\1\0")
        assert silent.closed()
        assert half.closed()
        assert good.metadata().brokers
        assert all("not authenticated within 0.3 s" in line_of(server, silent, address) for address in addresses)
    assert server.stop() == 0


def test_a_refusal_comes_late(tmp_path: Path) -> None:
    server = sasl_server(tmp_path, "--connection-failed-authentication-delay-ms", "700").start()
    begin = time.monotonic()
    with SaslClient(server.port) as client:
        assert client.plain("alice", "wrong").error_code == 58
        assert client.closed()
    assert time.monotonic() - begin >= 0.7
    assert server.stop() == 0


# -- re-authentication (KIP-368)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    """A broker whose sessions last two seconds."""
    server = sasl_server(tmp_path_factory.mktemp("short"), "--connections-max-reauth-ms", "2000").start()
    add_user(server, "alice", "in-secret")
    add_user(server, "bob", "in-secret")
    yield server
    assert server.stop() == 0


def test_a_client_authenticates_again(short: KetchServer) -> None:
    with SaslClient(short.port) as client:
        assert client.scram("alice", "in-secret").session_lifetime == timedelta(seconds=2)
        for _ in range(2):
            time.sleep(1.1)  # it may once a second
            assert client.scram("alice", "in-secret").error_code == 0
            assert client.metadata().brokers


def test_a_session_ends(short: KetchServer) -> None:
    with SaslClient(short.port) as client:
        address = client.socket.getsockname()
        assert client.plain("alice", "in-secret").error_code == 0
        assert client.metadata().brokers
        time.sleep(2.1)
        client.send(METADATA, 12)
        assert client.closed()
        assert "its session has ended" in line_of(short, client, address)


def test_it_may_authenticate_again_once_a_second(short: KetchServer) -> None:
    with SaslClient(short.port) as client:
        client.plain("alice", "in-secret")
        assert client.plain("alice", "in-secret").error_code == 0
        assert client.handshake(PLAIN).error_code == 34
        assert client.metadata().brokers


def test_neither_principal_nor_mechanism_changes(short: KetchServer) -> None:
    with SaslClient(short.port) as client:
        client.plain("alice", "in-secret")
        answer = client.plain("bob", "in-secret")
        message = "Cannot change principals during re-authentication from User.alice: User.bob"
        assert (answer.error_code, answer.error_message) == (58, message)
        assert client.closed()
    with SaslClient(short.port) as client:
        client.plain("alice", "in-secret")
        assert client.handshake(SHA_256).error_code == 0
        client.send(SASL_AUTHENTICATE, 2, auth_bytes=b"n,,n=alice,r=x")
        assert client.closed()


def test_a_failure_while_authenticating_again(short: KetchServer) -> None:
    with SaslClient(short.port) as client:
        client.scram("alice", "in-secret")
        answer = client.scram("alice", "wrong")
        assert answer.error_message == INVALID.replace("authentication due", "re-authentication due") + SHA_256
        assert client.closed()


# -- users through the protocol


def info(mechanism: int = 1, iterations: int = 4096, name: str = "carol") -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism, "iterations": iterations, "salt": b"salt", "salted_password": b"x"}


def test_users_come_and_go(client: SaslClient) -> None:
    client.plain("alice", "in-secret")
    assert codes(client, upsertions=[info(2), info(1, name="dave")]) == {"carol": 0, "dave": 0}
    assert codes(client, upsertions=[info(1, 5000)]) == {"carol": 0}
    assert described(client, "carol") == {"carol": (0, [(1, 5000), (2, 4096)])}
    assert codes(client, deletions=[{"name": "carol", "mechanism": 1}, {"name": "dave", "mechanism": 2}]) == {
        "carol": 0,
        "dave": 91,
    }
    assert described(client, "carol") == {"carol": (0, [(2, 4096)])}
    assert codes(client, deletions=[{"name": "carol", "mechanism": 2}]) == {"carol": 0}
    assert described(client, "carol", "dave", "dave") == {"carol": (91, []), "dave": (92, [])}
    assert {"alice", "dave", "Ünï=,x"} <= set(described(client))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (info(name=""), 93),
        (info(3), 33),
        (info(0), 33),
        (info(iterations=4095), 93),
        (info(iterations=16385), 93),
    ],
)
def test_what_cannot_be_a_credential(client: SaslClient, change: dict[str, Any], code: int) -> None:
    client.plain("alice", "in-secret")
    assert codes(client, upsertions=[change, info(name="erin")]) == {change["name"]: code, "erin": 0}


def test_a_user_is_named_once(client: SaslClient) -> None:
    client.plain("alice", "in-secret")
    assert codes(client, upsertions=[info(1, name="frank"), info(2, name="frank")]) == {"frank": 92}
    deletion = {"name": "frank", "mechanism": 1}
    assert codes(client, deletions=[deletion], upsertions=[info(2, name="frank")]) == {"frank": 91}  # the first error
    assert codes(client, upsertions=[info(2, 1, name="frank"), info(2, name="frank")]) == {"frank": 93}
    assert described(client, "frank") == {"frank": (91, [])}


def test_a_changed_password_counts_from_the_next_login_on(server: KetchServer) -> None:
    add_user(server, "grace", "one")
    with SaslClient(server.port) as client:
        assert client.scram("grace", "one").error_code == 0
        add_user(server, "grace", "two", command="set")
        with SaslClient(server.port) as other:
            assert other.scram("grace", "one").error_code == 58
        with SaslClient(server.port) as other:
            assert other.scram("grace", "two").error_code == 0
        assert client.metadata().brokers


def codes(client: Kafka, **given: Any) -> dict[str, int]:
    return {result.user: int(result.error_code) for result in client.ask(ALTER_USERS, 0, **given).results}


def described(client: Kafka, *names: str) -> dict[str, tuple[int, list[tuple[int, int]]]]:
    answer = client.ask(DESCRIBE_USERS, 0, users=[{"name": name} for name in names] or None)
    assert answer.error_code == 0
    return {
        result.user: (int(result.error_code), [(each.mechanism, each.iterations) for each in result.credential_infos])
        for result in answer.results
    }


# -- bad clients


_quick = settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])


def drained(client: Kafka) -> None:
    """Reads until the broker has closed the connection."""
    with suppress(ConnectionError):
        while client.receive() is not None:
            pass


@given(data=st.binary(max_size=300), handshake=st.sampled_from([None, 0, 1]))
@_quick
def test_random_bytes(server: KetchServer, data: bytes, handshake: int | None) -> None:
    with SaslClient(server.port) as client:
        if handshake is not None:
            client.handshake(SHA_256, handshake)
        with suppress(ConnectionError):
            client.socket.sendall(data)
            client.socket.shutdown(1)
        drained(client)
    assert "Traceback" not in server.log


@given(data=st.binary(max_size=100), key=st.sampled_from([17, 18, 36]), version=st.integers(-1, 5))
@_quick
def test_random_bodies(server: KetchServer, data: bytes, key: int, version: int) -> None:
    with SaslClient(server.port) as client:
        with suppress(ConnectionError):
            client.send_frame(struct.pack(">hhih", key, version, 1, -1) + data)
            client.send_frame(b"")
        drained(client)
    assert "Traceback" not in server.log


@given(tokens=st.lists(st.binary(max_size=100), min_size=1, max_size=3), mechanism=st.sampled_from(ALL.split(",")))
@_quick
def test_random_tokens(server: KetchServer, tokens: list[bytes], mechanism: str) -> None:
    with SaslClient(server.port) as client:
        client.handshake(mechanism)
        with suppress(ConnectionError):
            for token in tokens:
                if client.token(token).error_code:
                    break
            else:
                return
        assert client.closed()


def test_a_flood_of_frames_is_bounded(server: KetchServer) -> None:
    """Nobody sends so much without waiting for an answer: it is cut off, for its length or for what is in it."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}")
    (status / "clear_refs").write_text("5")
    clients = [SaslClient(server.port, timeout=0.2) for _ in range(100)]
    flood = (len(request := clients[0].request(API_VERSIONS, 0)).to_bytes(4) + request) * 100_000
    for client in clients:
        with suppress(OSError):
            client.handshake(SHA_256)
            client.socket.sendall(flood)
    with SaslClient(server.port) as good:
        assert good.scram("alice", "in-secret").error_code == 0
    for client in clients:
        client.close()
    ends = ("a flood of requests before it has authenticated", "in place of a token")
    eventually(lambda: any(end in server.log for end in ends))
    (line,) = (line for line in (status / "status").read_text().splitlines() if line.startswith("VmHWM"))
    assert int(line.split()[1]) >> 10 < 400
