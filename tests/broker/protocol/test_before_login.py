"""Clients that have not logged in yet, by TLS and SASL: each ends after a bounded time, and holds up nobody else."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ketch.connections import tls
from tests.support.certificates import Certificates, client_hello
from tests.support.kafka import API_VERSIONS
from tests.support.ketch import KetchServer, eventually
from tests.support.sasl import SHA_256, SaslClient, add_user

SOFTWARE = {"client_software_name": "raw", "client_software_version": "1"}
BETWEEN_S = 0.05  # two bytes of a client that is slow on purpose
PATIENCE_S = 40.0  # a handshake of TLS has 10 s, a login half a second


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, files: Certificates) -> Iterator[KetchServer]:
    """A broker where clients log in by SASL, with TLS and without."""
    server = KetchServer(
        tmp_path_factory.mktemp("secured"),
        *("--listeners", "SASL_SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"),
        *("--ssl-keystore-location", str(files.broker()), "--authentication-timeout-ms", "500"),
    ).start()
    add_user(server, "alice", "in-secret", "--mechanism", SHA_256)
    yield server
    assert server.stop() == 0
    assert "Traceback" not in server.log


class Login(SaslClient):
    """A client of one of the two listeners."""

    def __init__(self, server: KetchServer, listener: str, files: Certificates) -> None:
        super().__init__(server.ports[listener], PATIENCE_S)
        if listener == "SASL_SSL":
            context = ssl.create_default_context(cafile=files.ca)
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")


def test_who_does_not_finish_its_login_is_sent_away(server: KetchServer, files: Certificates) -> None:
    """At each step: it says nothing more, or it goes on byte by byte, and so has never said nothing for long."""
    steps = [
        lambda client: None,
        lambda client: client.ask(API_VERSIONS, 3, **SOFTWARE),
        lambda client: client.handshake(SHA_256),
        lambda client: (client.handshake(SHA_256), client.token(b"n,,n=alice,r=x")),
    ]
    with ExitStack() as clients, ThreadPoolExecutor() as pool:
        ended = []
        for listener in server.ports:
            for step in steps:
                for slow in (False, True):
                    client = clients.enter_context(Login(server, listener, files))
                    step(client)
                    ended.append(pool.submit(is_sent_away, client.socket, bytes(1000) if slow else b""))
        assert all(each.result() for each in ended)
    assert works(server, files)


def test_who_does_not_finish_a_handshake_of_tls_is_sent_away(server: KetchServer, files: Certificates) -> None:
    hello = client_hello()
    said = [b"", hello[:1], hello[:5], hello[: len(hello) // 2], hello]
    with ExitStack() as sockets, ThreadPoolExecutor() as pool:
        ended = []
        for first, rest in [*((each, b"") for each in said), (b"", hello[:-1])]:
            client = sockets.enter_context(socket.create_connection(("127.0.0.1", server.ports["SASL_SSL"]), 5))
            client.sendall(first)
            ended.append(pool.submit(is_sent_away, client, rest))
        assert all(each.result() for each in ended)
    assert works(server, files)


def is_sent_away(client: socket.socket, rest: bytes) -> bool:
    """Whether the broker ends a connection, over which the rest comes slowly; waits for it."""
    client.settimeout(BETWEEN_S)
    deadline = time.monotonic() + PATIENCE_S
    left = iter(rest)
    with suppress(ConnectionError, ssl.SSLError):
        while time.monotonic() < deadline:
            if (byte := next(left, None)) is not None:
                client.sendall(bytes([byte]))
            with suppress(TimeoutError):
                if not client.recv(65536):
                    return True
        return False
    return True


def works(server: KetchServer, files: Certificates) -> bool:
    """Whether a client with the right password gets in, over both listeners."""
    for listener in server.ports:
        with Login(server, listener, files) as client:
            assert client.scram("alice", "in-secret").error_code == 0
            assert client.metadata().brokers
    return True


def test_handshakes_that_nobody_finishes_make_room(server: KetchServer, files: Certificates) -> None:
    """More of them than may be under way."""
    with ExitStack() as sockets:
        address = "127.0.0.1", server.ports["SASL_SSL"]
        first = sockets.enter_context(socket.create_connection(address, PATIENCE_S))
        for _ in range(tls._HANDSHAKES_MAX + 50):
            sockets.enter_context(socket.create_connection(address, PATIENCE_S))
        assert works(server, files)
        eventually(lambda: "512 handshakes of TLS are under way: the oldest makes room" in server.log)
        assert first.recv(1) == b""


@given(
    data=st.binary(max_size=200),
    changes=st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), max_size=8),
    whole=st.booleans(),
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_handshakes(server: KetchServer, data: bytes, changes: list[tuple[int, int]], whole: bool) -> None:
    """Rubbish, and a hello of TLS with some bytes changed and rubbish behind it."""
    hello = bytearray(client_hello() if whole else b"")
    for place, byte in changes:
        if hello:
            hello[place % len(hello)] = byte
    with socket.create_connection(("127.0.0.1", server.ports["SASL_SSL"]), PATIENCE_S) as client:
        with suppress(ConnectionError):
            client.sendall(bytes(hello) + data)
            client.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while client.recv(65536):
                pass


def test_it_works_after_all_that(server: KetchServer, files: Certificates) -> None:
    assert works(server, files)


def test_a_frame_above_64_kb_is_not_read_by_tls_either(server: KetchServer, files: Certificates) -> None:
    with Login(server, "SASL_SSL", files) as client:
        client.send_frame(b"", length=65_537)
        assert client.closed()
    eventually(lambda: "sasl_server_max_receive_size" in server.log)
