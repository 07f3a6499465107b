"""Logging in with a token, frame by frame; and librdkafka with one."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import confluent_kafka
import pytest

from ketch.configs.settings import Settings
from ketch.errors import ConfigError
from tests.support.certificates import Certificates
from tests.support.kafka import METADATA, SASL_AUTHENTICATE
from tests.support.ketch import KetchServer, eventually
from tests.support.sasl import OAUTHBEARER, SaslClient, add_user, bearer_message, oauth_server, sasl_server
from tests.support.tokens import Issuer, write_keys

ISSUER, OTHER = Issuer("RS256", "one"), Issuer("ES256", "two")
INVALID = '{"status":"invalid_token"}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    delay = ("--connection-failed-authentication-delay-ms", "10")
    server, keys = oauth_server(tmp_path_factory.mktemp("oauth"), *delay)
    write_keys(keys, ISSUER)
    server.start()
    add_user(server, "alice", "in-secret")
    yield server
    assert server.stop() == 0
    assert "Traceback" not in server.log


@pytest.fixture
def client(server: KetchServer) -> Iterator[SaslClient]:
    with SaslClient(server.port) as client:
        yield client


def token(issuer: Issuer = ISSUER, seconds: float = 3600, **claims: Any) -> str:
    now = time.time()
    return issuer.token(
        {"sub": "alice", "iss": "https://idp", "aud": "kafka", "iat": now, "exp": now + seconds, **claims}
    )


def test_a_token(client: SaslClient) -> None:
    answer = client.bearer(token())
    assert (answer.error_code, answer.auth_bytes) == (0, b"")
    assert 3500 < answer.session_lifetime.total_seconds() <= 3600
    assert client.metadata().brokers


def test_it_does_not_keep_others_from_their_mechanism(client: SaslClient) -> None:
    assert client.scram("alice", "in-secret", "SCRAM-SHA-512").error_code == 0


@pytest.mark.parametrize(
    "bad",
    [
        token(seconds=-100),
        token(OTHER),
        token(Issuer("RS256", "one")),
        token(iss="https://other"),
        token(aud="other"),
        token(sub=""),
        "a.b.c",
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9.",
    ],
    ids=["expired", "unknown key", "forged", "issuer", "audience", "no name", "no token", "unsigned"],
)
def test_an_invalid_token(server: KetchServer, client: SaslClient, bad: str) -> None:
    name = "{}:{}".format(*client.socket.getsockname())
    answer = client.bearer(bad)
    assert (answer.error_code, answer.auth_bytes.decode()) == (0, INVALID)
    answer = client.token(b"\x01")
    assert (answer.error_code, answer.error_message) == (58, INVALID)
    assert client.closed()
    (line,) = (line for line in server.log.splitlines() if name in line)
    assert "authentication failed (OAUTHBEARER): invalid token: " in line
    assert bad not in server.log


@pytest.mark.parametrize("after", ["request", "end"])
def test_a_client_that_does_not_confirm_the_refusal_is_named_in_the_log(server: KetchServer, after: str) -> None:
    """franz-go hangs up then, aiokafka and KafkaJS go on as if they had logged in."""
    with SaslClient(server.port) as client:
        name = "{}:{}".format(*client.socket.getsockname())
        client.bearer(token(seconds=-100))
        if after == "request":
            client.send(METADATA, 12)
            assert client.closed()
    eventually(lambda: name in server.log)
    (line,) = (line for line in server.log.splitlines() if name in line)
    assert "authentication failed (OAUTHBEARER): invalid token: ExpiredSignatureError" in line


def test_a_client_may_act_for_itself_alone(server: KetchServer) -> None:
    with SaslClient(server.port) as client:
        assert client.bearer(token(), "alice").error_code == 0
    with SaslClient(server.port) as client:
        answer = client.bearer(token(), "root")
        assert (answer.error_code, "authorization id (root)" in answer.error_message) == (58, True)


def test_what_is_no_message(client: SaslClient) -> None:
    client.handshake(OAUTHBEARER)
    assert client.token(b"n,,").error_code == 58
    assert client.closed()


def test_a_session_ends_with_its_token(client: SaslClient) -> None:
    assert client.bearer(token(seconds=2)).session_lifetime.total_seconds() <= 2
    assert client.metadata().brokers
    time.sleep(2.1)
    client.send(METADATA, 12)
    assert client.closed()


def test_a_newer_token_prolongs_the_session(client: SaslClient) -> None:
    client.bearer(token(seconds=2))
    assert client.bearer(token()).session_lifetime.total_seconds() > 3500
    time.sleep(2.1)
    assert client.metadata().brokers


def test_neither_a_token_of_somebody_else_nor_another_mechanism_does(server: KetchServer) -> None:
    with SaslClient(server.port) as client:
        client.bearer(token())
        message = "Cannot change principals during re-authentication from User.alice: User.bob"
        assert client.bearer(token(sub="bob")).error_message == message
        assert client.closed()
    with SaslClient(server.port) as client:
        client.bearer(token())
        assert client.handshake("SCRAM-SHA-512").error_code == 0
        client.send(SASL_AUTHENTICATE, 2, auth_bytes=b"n,,n=alice,r=x")
        assert client.closed()


def test_new_keys_are_found(tmp_path: Path) -> None:
    server, keys = oauth_server(tmp_path / "ketch", jwks_endpoint_refresh_ms="1")
    write_keys(keys, ISSUER)
    server.start()
    for issuer, other in ((ISSUER, OTHER), (OTHER, ISSUER)):
        write_keys(keys, issuer)
        with SaslClient(server.port) as client:
            assert client.bearer(token(issuer)).auth_bytes == b""
        with SaslClient(server.port) as client:
            assert client.bearer(token(other)).auth_bytes.decode() == INVALID
    assert server.stop() == 0


def test_keys_that_cannot_be_read(tmp_path: Path) -> None:
    """Nobody can tell whether a token is valid: the connection is closed, and clients try again."""
    server, _ = oauth_server(tmp_path / "ketch")
    server.start()
    with SaslClient(server.port) as client:
        client.handshake(OAUTHBEARER)
        client.send(SASL_AUTHENTICATE, 2, auth_bytes=bearer_message(token()))
        assert client.closed()
    assert "cannot be read: " in server.log
    assert "connection closed: the keys at file://" in server.log
    assert server.stop() == 0


class Answers(BaseHTTPRequestHandler):
    """`/keys` has them; `/moved` leads there."""

    keys = b""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/keys" else 302)
        self.send_header("Location", "/keys")
        self.end_headers()
        self.wfile.write(self.keys)

    def log_message(self, *_: object) -> None:
        """Not on stderr."""


@pytest.fixture
def https(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Where a key set is, and the authority that the server's certificate is of."""
    certificates = Certificates(tmp_path / "certificates")
    web = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    Answers.keys = json.dumps({"keys": [ISSUER.public]}).encode()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.broker())
    web.socket = context.wrap_socket(web.socket, server_side=True)
    thread = Thread(target=web.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{web.server_port}", certificates.ca
    web.shutdown()
    thread.join()
    web.server_close()


@pytest.mark.parametrize(("path", "trusted"), [("/keys", True), ("/keys", False), ("/moved", True)])
def test_keys_over_https(tmp_path: Path, https: tuple[str, Path], path: str, trusted: bool) -> None:
    url, ca = https
    words = ("--sasl-oauthbearer-jwks-endpoint-url", url + path)
    server = sasl_server(tmp_path / "ketch", *words, mechanisms=OAUTHBEARER)
    server.env["SSL_CERT_FILE"] = str(ca) if trusted else "/dev/null"
    server.start()
    with SaslClient(server.port) as client:
        if path == "/keys" and trusted:
            assert (client.bearer(token()).error_code, client.metadata().controller_id) == (0, 1)
        else:
            client.handshake(OAUTHBEARER)
            client.send(SASL_AUTHENTICATE, 2, auth_bytes=bearer_message(token()))
            assert client.closed()
            why = "HTTP Error 302" if trusted else "certificate verify failed"
            assert f"the keys at {url}{path} cannot be read: " in server.log
            assert why in server.log
    assert server.stop() == 0


# -- librdkafka


def options(server: KetchServer, give: Any, errors: list[Any]) -> dict[str, Any]:
    return {
        "bootstrap.servers": server.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": OAUTHBEARER,
        "oauth_cb": give,
        "error_cb": errors.append,
        "log_level": 0,
    }


def test_librdkafka(server: KetchServer, topic: str) -> None:
    errors: list[Any] = []
    given = 0

    def give(_: str) -> tuple[str, float]:
        nonlocal given
        given += 1
        # It asks for a new one in time: with one that is about to end it would authenticate again within a second.
        return token(seconds=4), time.time() + 2

    producer = confluent_kafka.Producer(options(server, give, errors))
    failed: list[Any] = []
    end = time.monotonic() + 6  # more than a session

    def writes() -> bool:
        producer.produce(topic, b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.flush(1)
        return time.monotonic() > end

    eventually(writes, 60)
    assert (failed, errors) == ([], [])
    assert given > 2


def test_librdkafka_with_an_expired_token(server: KetchServer, topic: str) -> None:
    errors: list[Any] = []
    producer = confluent_kafka.Producer(options(server, lambda _: (token(seconds=-100), time.time() + 60), errors))
    producer.produce(topic, b"x")
    eventually(lambda: producer.poll(0.1) or errors)
    assert json.loads(INVALID)["status"] in errors[0].str()
    producer.purge()


@pytest.mark.parametrize("url", ["http://127.0.0.1/keys", "/etc/keys", "ftp://x"])
def test_keys_from_where_they_must_not_come(url: str) -> None:
    with pytest.raises(ConfigError, match="it should begin with https:// or file:///"):
        Settings.load(None, {"sasl_oauthbearer_jwks_endpoint_url": url})
