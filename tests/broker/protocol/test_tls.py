"""TLS on the Kafka port, several listeners on one broker, and what clients of each are told: with real clients."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from tests.support.batches import batch, records
from tests.support.certificates import PASSWORD, Certificates
from tests.support.kafka import DESCRIBE_CLUSTER, DESCRIBE_CONFIGS, FIND_COORDINATOR, Kafka
from tests.support.ketch import KetchServer, eventually
from tests.support.quick import commands
from tests.support.raw import RawClient

LISTENERS = ("PLAIN", "SSL", "MUTUAL", "ASKING", "OLD", "TURNING", "SUITES")
LIMIT = 20.0

CONFIG = """
ssl_keystore_location = "{encrypted}"
ssl_truststore_location = "{ca}"
[listener.mutual]
ssl_client_auth = "required"
ssl_principal_mapping_rules = "RULE:CN=(.*)/$1/L"
[listener.asking]
ssl_client_auth = "requested"
[listener.old]
ssl_enabled_protocols = "TLSv1.2"
[listener.turning]
ssl_keystore_location = "{turning}"
[listener.suites]
ssl_cipher_suites = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, files: Certificates) -> Iterator[KetchServer]:
    """One broker with a listener for each kind of client."""
    directory = tmp_path_factory.mktemp("tls")
    paths = {"ca": files.ca, "turning": files.broker("turning")}
    paths["encrypted"] = files.encrypted(files.broker(), "encrypted.pem")
    config = directory / "ketch.toml"
    config.write_text(CONFIG.format(**paths))
    listeners = ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS)
    protocols = ",".join(f"{name}:{'PLAINTEXT' if name == 'PLAIN' else 'SSL'}" for name in LISTENERS)
    server = KetchServer(
        directory,
        *("--config", str(config), "--listeners", listeners, "--listener-security-protocol-map", protocols),
        env={"KETCH_SSL_KEY_PASSWORD": PASSWORD},
    )
    yield server.start()
    assert server.stop() == 0
    assert "Traceback" not in server.log
    assert PASSWORD not in server.log


def secured(ca: Path, own: Path | None = None, **given: Any) -> dict[str, Any]:
    """librdkafka's properties."""
    found = {"security.protocol": "ssl", "ssl.ca.location": str(ca), **given}
    if own is not None:
        found |= {"ssl.certificate.location": str(own), "ssl.key.location": str(own)}
    return found


def admin(server: KetchServer, listener: str, **properties: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": f"127.0.0.1:{server.ports[listener]}", "log_level": 0, **properties})


class TlsClient(Kafka):
    """A connection of our own over Python's ssl."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        super().__init__(port)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")


def trusting(files: Certificates, own: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files.ca)
    if own is not None:
        context.load_cert_chain(own)
    return context


def handshake(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), LIMIT), server_hostname="localhost")


def test_clients_are_told_the_addresses_of_the_listener_they_came_by(server: KetchServer, files: Certificates) -> None:
    given = {
        "PLAIN": {},
        "SSL": secured(files.ca),
        "MUTUAL": secured(files.ca, files.client("Told")),
        "OLD": secured(files.ca),
    }
    for listener, properties in given.items():
        found = admin(server, listener, **properties).list_topics(timeout=LIMIT)
        (broker,) = found.brokers.values()
        assert broker.port == server.ports[listener]
    with Kafka(server.ports["PLAIN"]) as plain, TlsClient(server.ports["SSL"], trusting(files)) as over_tls:
        for client, port in ((plain, server.ports["PLAIN"]), (over_tls, server.ports["SSL"])):
            assert [each.port for each in client.ask(DESCRIBE_CLUSTER, 1).brokers] == [port]
            (coordinator,) = client.ask(FIND_COORDINATOR, 4, coordinator_keys=["g"]).coordinators
            assert coordinator.port == port


def test_records_there_and_back(server: KetchServer, files: Certificates, topic: str) -> None:
    """More than the buffers of one connection hold, and through a second listener back."""
    properties = {"bootstrap.servers": f"127.0.0.1:{server.ports['MUTUAL']}", "log_level": 0}
    producer = confluent_kafka.Producer({**properties, **secured(files.ca, files.client("Writer")), "linger.ms": 50})
    values = [b"%d %s" % (n, os.urandom(4000)) for n in range(2000)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(LIMIT) == 0
    properties["bootstrap.servers"] = f"127.0.0.1:{server.ports['SSL']}"
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**properties, **secured(files.ca), **group})
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < len(values):
        messages = consumer.consume(500, LIMIT)
        assert messages
        found += [message.value() for message in messages]
    consumer.close()
    assert found == values


def test_a_response_larger_than_every_buffer(server: KetchServer, files: Certificates, topic: str) -> None:
    with Kafka(server.ports["PLAIN"]) as client:
        client.create(topic)
        for _ in range(12):
            client.stored(topic, batch(records([os.urandom(900_000)])))
    with TlsClient(server.ports["SSL"], trusting(files)) as client:
        assert len(client.read_all(topic)) == 12


def test_kcat(server: KetchServer, files: Certificates, topic: str) -> None:
    options = [f"-X{name}={value}" for name, value in secured(files.ca, files.client("kcat")).items()]
    command = ["kcat", "-b", f"127.0.0.1:{server.ports['MUTUAL']}", *options]
    subprocess.run([*command, "-P", "-t", topic], input=b"one\ntwo\n", check=True, timeout=LIMIT)
    done = subprocess.run([*command, "-C", "-t", topic, "-e", "-q"], check=True, timeout=LIMIT, capture_output=True)
    assert done.stdout == b"one\ntwo\n"


def refused(server: KetchServer, listener: str, line: str, **properties: Any) -> None:
    """The client gets nowhere, and the log says why."""
    failure = []
    client = admin(server, listener, error_cb=failure.append, **properties)
    with pytest.raises(confluent_kafka.KafkaException):
        client.list_topics(timeout=2)
    eventually(lambda: line in server.log, what=line)


def test_client_certificates(server: KetchServer, files: Certificates, tmp_path: Path) -> None:
    strangers = Certificates(tmp_path / "strangers")
    begun = "listener MUTUAL: 127.0.0.1:"
    refused(server, "MUTUAL", "TLS handshake failed: the client shows no certificate", **secured(files.ca))
    # A minute must pass before the next line about this listener; the client is told all the same.
    why = {strangers.client("Mallory"): "UNKNOWN_CA", files.client("Late", expired=True): "EXPIRED", None: "REQUIRED"}
    for own, alert in why.items():
        with pytest.raises(ssl.SSLError, match=f"ALERT.*{alert}"):
            alive(handshake(server.ports["MUTUAL"], trusting(files, own)))
        old = trusting(files, own)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError, match="ALERT"):
            handshake(server.ports["MUTUAL"], old)
    assert begun in server.log
    # Where a certificate is only requested none is fine, and a bad one is not.
    with pytest.raises(ssl.SSLError, match="ALERT_UNKNOWN_CA"):
        alive(handshake(server.ports["ASKING"], trusting(files, strangers.client("Trudy"))))
    eventually(lambda: "listener ASKING: 127.0.0.1" in server.log)
    assert "the client's certificate is refused: unable to get local issuer certificate" in server.log
    with TlsClient(server.ports["ASKING"], trusting(files)) as client:
        assert client.ask(DESCRIBE_CLUSTER, 1).error_code == 0


def alive(connection: ssl.SSLSocket) -> None:
    """Raises where the broker has ended the connection: with TLS 1.3 a client learns of that when it reads."""
    with connection:
        connection.settimeout(LIMIT)
        connection.sendall(b"\0\0\0\x0f\0\x12\0\0\0\0\0\1\xff\xff")
        if not connection.recv(1):
            raise ConnectionError("closed")


def test_a_client_that_does_not_trust_the_broker(server: KetchServer, tmp_path: Path) -> None:
    other = Certificates(tmp_path / "other")
    line = "the client does not trust this broker's certificate"
    refused(server, "SSL", line, **secured(other.ca))


def test_a_name_that_is_not_in_the_certificate(server: KetchServer, files: Certificates) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        trusting(files).wrap_socket(
            socket.create_connection(("127.0.0.1", server.ports["SSL"]), LIMIT), server_hostname="elsewhere"
        )


def test_versions_and_suites(server: KetchServer, files: Certificates) -> None:
    with handshake(server.ports["SSL"], trusting(files)) as connection:
        assert connection.version() == "TLSv1.3"
    with handshake(server.ports["OLD"], trusting(files)) as connection:
        assert connection.version() == "TLSv1.2"
    newest = trusting(files)
    newest.minimum_version = ssl.TLSVersion.TLSv1_3
    with pytest.raises((ssl.SSLError, ConnectionError)):
        handshake(server.ports["OLD"], newest)
    with handshake(server.ports["SUITES"], trusting(files)) as connection:
        assert connection.cipher()[:2] == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2")


def test_tls_where_there_is_none_and_none_where_there_is(server: KetchServer, files: Certificates) -> None:
    for _ in range(3):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            handshake(server.ports["PLAIN"], trusting(files))
    eventually(lambda: "listener PLAIN: 127.0.0.1" in server.log)
    assert server.log.count("a TLS handshake on a plaintext port") == 1
    for _ in range(3):
        with RawClient("127.0.0.1", server.ports["TURNING"]) as client:
            client.send_frame(b"\0\x12\0\0\0\0\0\1\xff\xff")
            assert client.receive() is None
    eventually(lambda: "listener TURNING: 127.0.0.1" in server.log)
    assert server.log.count("a client without TLS has come to a port with TLS") == 1


def test_a_certificate_is_replaced_without_dropping_connections(server: KetchServer, files: Certificates) -> None:
    def serial() -> int:
        with handshake(server.ports["TURNING"], trusting(files)) as connection:
            return int(connection.getpeercert()["serialNumber"], 16)

    path = files.directory / "turning.pem"
    good = path.read_bytes()
    with TlsClient(server.ports["TURNING"], trusting(files)) as client:
        before = serial()
        path.write_bytes(b"nothing\n")
        eventually(lambda: "listener TURNING goes on with its old certificate: ssl_keystore_location" in server.log)
        assert serial() == before
        path.write_bytes(good)
        files.broker("turning")
        eventually(lambda: serial() != before)
        assert client.ask(DESCRIBE_CLUSTER, 1).error_code == 0
    assert server.log.count("listener TURNING goes on with its old certificate") == 1


@pytest.fixture(scope="module")
def lingering(server: KetchServer) -> Iterator[list[socket.socket]]:
    """Clients that begin and never send a handshake, while all the other tests run."""
    found = [socket.create_connection(("127.0.0.1", server.ports["SUITES"])) for _ in range(100)]
    yield found
    for each in found:
        each.close()


@pytest.fixture(autouse=True)
def _lingering(lingering: list[socket.socket]) -> None:
    """They are there from the first test on."""


def test_who_does_not_finish_a_handshake_is_sent_away(lingering: list[socket.socket]) -> None:
    for each in lingering:
        each.settimeout(LIMIT)
        assert each.recv(1) == b""


def test_what_configs_say(server: KetchServer, files: Certificates) -> None:
    with Kafka(server.port) as client:
        asked = [{"resource_type": 4, "resource_name": "1", "configuration_keys": None}]
        (found,) = client.ask(DESCRIBE_CONFIGS, 4, resources=asked, include_synonyms=True).results
    configs = {each.name: each for each in found.configs}
    assert configs["listeners"].value == ",".join(f"{name}://127.0.0.1:{server.ports[name]}" for name in LISTENERS)
    assert configs["advertised.listeners"].value == configs["listeners"].value
    assert configs["listener.name.mutual.ssl.client.auth"].value == "required"
    assert configs["ssl.keystore.type"].value == "PEM"
    password = configs["ssl.key.password"]
    assert (password.value, password.is_sensitive, password.config_type) == (None, True, 9)
    assert not any(PASSWORD in (synonym.value or "") for each in found.configs for synonym in each.synonyms)


def test_options_show_no_secret() -> None:
    done = subprocess.run([*commands.program(), "serve", "--help"], capture_output=True, text=True, check=True)
    assert "--ssl-keystore-location" in done.stdout
    assert "--ssl-key-password" not in done.stdout
    assert "--ssl-keystore-key" not in done.stdout
