"""Brokers whose clients have to log in, and a client that does so frame by frame, as a test wants."""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path
from typing import Any

from tests.support.cli import in_process
from tests.support.kafka import SASL_AUTHENTICATE, SASL_HANDSHAKE, Kafka
from tests.support.ketch import KetchServer

OAUTHBEARER = "OAUTHBEARER"
SHA_256, SHA_512, PLAIN = "SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"
ALL = f"{SHA_512},{SHA_256},{PLAIN}"


def sasl_server(directory: Path, *arguments: str, mechanisms: str = ALL) -> KetchServer:
    """A broker that is not started yet. Its only listener speaks SASL_PLAINTEXT, and is called PLAINTEXT."""
    protocol = ("--listener-security-protocol-map", "PLAINTEXT:SASL_PLAINTEXT")
    listener = (*protocol, "--sasl-enabled-mechanisms", mechanisms)
    return KetchServer(directory, *listener, *arguments)


def add_user(server: KetchServer, name: str, password: str, *arguments: str, command: str = "add") -> None:
    """As an operator does it, in Redis itself."""
    words = ["users", command, name, "--redis", server.redis_url, *arguments]
    done = in_process(words, password.encode() + b"\n", dict(server.env))
    assert done.returncode == 0, done.stderr


def oauth_server(directory: Path, *arguments: str, **settings: str) -> tuple[KetchServer, Path]:
    """A broker that takes tokens of OAUTHBEARER, not started yet, and the file with the keys that it goes by.

    Args:
        settings: those of OAUTHBEARER, by what comes after `sasl_oauthbearer_`.
    """
    directory.mkdir(exist_ok=True)
    keys = directory / "keys.json"
    given = {"expected_issuer": "https://idp", "expected_audience": "kafka", **settings}
    words = [word for name, value in given.items() for word in (f"--sasl-oauthbearer-{name.replace('_', '-')}", value)]
    words += ["--sasl-oauthbearer-jwks-endpoint-url", f"file://{keys}"]
    return sasl_server(directory, *words, *arguments, mechanisms=f"{SHA_512},{OAUTHBEARER}"), keys


class SaslClient(Kafka):
    """A connection that has not logged in yet."""

    def handshake(self, mechanism: str, version: int = 1) -> Any:
        return self.ask(SASL_HANDSHAKE, version, mechanism=mechanism)

    def token(self, token: bytes, version: int = 2) -> Any:
        return self.ask(SASL_AUTHENTICATE, version, auth_bytes=token)

    def raw_token(self, token: bytes) -> bytes | None:
        """As after a SaslHandshake of version 0; None where the broker closes."""
        self.send_frame(token)
        return self.receive()

    def plain(self, name: str, password: str, authzid: str = "", version: int = 2) -> Any:
        assert self.handshake(PLAIN).error_code == 0
        return self.token(f"{authzid}\0{name}\0{password}".encode(), version)

    def bearer(self, token: str, authzid: str = "") -> Any:
        """The first answer."""
        assert self.handshake(OAUTHBEARER).error_code == 0
        return self.token(bearer_message(token, authzid))

    def scram(self, name: str, password: str, mechanism: str = SHA_256) -> Any:
        """The last answer of the exchange, of which the client has seen that the server knows the password too."""
        assert self.handshake(mechanism).error_code == 0
        bare = f"n={name},r=nonce"
        first = self.token(f"n,,{bare}".encode())
        assert first.error_code == 0, first
        final, expected = proof(mechanism, bare, first.auth_bytes.decode(), password)
        last = self.token(final)
        assert last.error_code or last.auth_bytes == expected
        return last


def bearer_message(token: str, authzid: str = "") -> bytes:
    """The client's message of OAUTHBEARER (RFC 7628)."""
    who = f"a={authzid}" if authzid else ""
    return f"n,{who},\x01auth=Bearer {token}\x01\x01".encode()


def proof(mechanism: str, bare: str, challenge: str, password: str, gs2: str = "n,,") -> tuple[bytes, bytes]:
    """The client's final message of SCRAM, and the answer of a server that knows the password (RFC 5802)."""
    name = {SHA_256: "sha256", SHA_512: "sha512"}[mechanism]
    nonce, salt, iterations = (part[2:] for part in challenge.split(",", 2))
    salted = hashlib.pbkdf2_hmac(name, password.encode(), base64.b64decode(salt), int(iterations))
    client_key, server_key = (hmac.digest(salted, text, name) for text in (b"Client Key", b"Server Key"))
    unproven = f"c={base64.b64encode(gs2.encode()).decode()},r={nonce}"
    message = f"{bare},{challenge},{unproven}".encode()
    signature = hmac.digest(hashlib.new(name, client_key).digest(), message, name)
    proven = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
    expected = b"v=" + base64.b64encode(hmac.digest(server_key, message, name))
    return f"{unproven},p={proven.decode()}".encode(), expected
