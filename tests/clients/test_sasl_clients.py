"""confluent-kafka, aiokafka, kafka-python and kcat log in, and are told why they may not."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.errors import KafkaError as AioError
from kafka.errors import KafkaError as PythonError

from tests.support.certificates import Certificates
from tests.support.ketch import KetchServer, eventually
from tests.support.sasl import ALL, PLAIN, SHA_256, SHA_512, add_user, sasl_server

PASSWORD = "in-secret"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KetchServer]:
    server = sasl_server(tmp_path_factory.mktemp("sasl"), "--connections-max-reauth-ms", "1500").start()
    add_user(server, "alice", PASSWORD)
    yield server
    assert server.stop() == 0
    assert "Traceback" not in server.log


# -- each writes a value, or gives the words of the error


def by_confluent(server: KetchServer, topic: str, mechanism: str, name: str, password: str) -> str:
    errors: list[confluent_kafka.KafkaError] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": password,
            "error_cb": errors.append,
            "log_level": 0,
        }
    )
    producer.produce(topic, b"confluent")
    eventually(lambda: producer.flush(0.1) == 0 or errors)
    producer.purge()
    return errors[0].str() if errors else ""


def by_aiokafka(server: KetchServer, topic: str, mechanism: str, name: str, password: str) -> str:
    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=server.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=name,
            sasl_plain_password=password,
        )
        try:
            await producer.start()
            await producer.send_and_wait(topic, b"aiokafka")
        finally:
            await producer.stop()

    try:
        asyncio.run(write())
    except AioError as error:
        return str(error) or repr(error)
    return ""


def by_kafka_python(server: KetchServer, topic: str, mechanism: str, name: str, password: str) -> str:
    try:
        producer = kafka.KafkaProducer(
            bootstrap_servers=server.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=name,
            sasl_plain_password=password,
            max_block_ms=3000,
            bootstrap_timeout_ms=3000,
        )
    except PythonError as error:
        return str(error) or repr(error)
    try:
        producer.send(topic, b"kafka-python").get(20)
    except PythonError as error:
        return str(error) or repr(error)
    finally:
        producer.close()
    return ""


def by_kcat(server: KetchServer, topic: str, mechanism: str, name: str, password: str) -> str:
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.username": name}
    options |= {"sasl.password": password, "message.timeout.ms": "2000"}
    words = [word for key, value in options.items() for word in ("-X", f"{key}={value}")]
    command = ["kcat", "-P", "-b", server.bootstrap, "-t", topic, *words]
    done = subprocess.run(command, input=b"kcat\n", stderr=subprocess.PIPE, timeout=30)
    return done.stderr.decode() if done.returncode else ""


CLIENTS = {"confluent": by_confluent, "aiokafka": by_aiokafka, "kafka-python": by_kafka_python, "kcat": by_kcat}
Client = Callable[[KetchServer, str, str, str, str], str]
LIBRDKAFKA = re.search(
    r"librdkafka (\d+)\.(\d+)", subprocess.run(["kcat", "-V"], capture_output=True, text=True).stdout
)
# Its nonce is wrong, which Kafka has refused since CVE-2024-56128 was found.
NONCE_IS_WRONG = LIBRDKAFKA is not None and tuple(map(int, LIBRDKAFKA.groups())) < (2, 2)
each_client = pytest.mark.parametrize("client", CLIENTS.values(), ids=list(CLIENTS))
each_mechanism = pytest.mark.parametrize("mechanism", ALL.split(","))


@each_client
@each_mechanism
def test_logs_in(server: KetchServer, client: Client, mechanism: str, topic: str) -> None:
    if client is by_kcat and mechanism != PLAIN and NONCE_IS_WRONG:
        pytest.skip("kcat's librdkafka is older than 2.2")
    assert client(server, topic, mechanism, "alice", PASSWORD) == ""
    assert server.redis().xlen(f"korvet:stream:{topic}:0") == 1


@each_client
@each_mechanism
@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("nobody", PASSWORD)], ids=["password", "user"])
def test_is_told_why_not(
    server: KetchServer,
    client: Client,
    mechanism: str,
    topic: str,
    name: str,
    password: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """aiokafka and kafka-python log it, the latter only where it reads the answer before the end of the connection."""
    words = client(server, topic, mechanism, name, password)
    assert words
    said = {PLAIN: "Authentication failed: Invalid username or password"}
    other = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    assert client is by_kafka_python or said.get(mechanism, other) in words + caplog.text
    assert not server.redis().exists(f"korvet:stream:{topic}:0")


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_librdkafka_authenticates_again_while_it_works(server: KetchServer, mechanism: str, topic: str) -> None:
    """Connections last on: the broker closes those of clients that do not authenticate again."""
    options: dict[str, Any] = {"bootstrap.servers": server.bootstrap, "security.protocol": "SASL_PLAINTEXT"}
    options |= {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": PASSWORD}
    errors: list[Any] = []
    producer = confluent_kafka.Producer({**options, "error_cb": errors.append, "linger.ms": 0})
    delivered: list[Any] = []

    def writes() -> bool:
        producer.produce(topic, b"x", on_delivery=lambda error, _: delivered.append(error))
        producer.flush(5)
        return len(delivered) > 300 and time.monotonic() > end

    end = time.monotonic() + 4  # more than two sessions
    eventually(writes, 60)
    assert delivered == [None] * len(delivered)
    assert errors == []


@pytest.mark.parametrize("mechanism", [SHA_512, PLAIN])
def test_over_tls(tmp_path: Path, mechanism: str, topic: str) -> None:
    """SASL_SSL: the client is who it logs in as, whatever certificate it has."""
    certificates = Certificates(tmp_path / "certificates")
    words = ("--listener-security-protocol-map", "PLAINTEXT:SASL_SSL", "--sasl-enabled-mechanisms", mechanism)
    server = KetchServer(tmp_path / "ketch", *words, "--ssl-keystore-location", str(certificates.broker())).start()
    add_user(server, "alice", PASSWORD)
    options = {"bootstrap.servers": server.bootstrap, "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism}
    options |= {"sasl.username": "alice", "sasl.password": PASSWORD, "ssl.ca.location": str(certificates.ca)}
    producer = confluent_kafka.Producer(options)
    failed: list[Any] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(20) == 0
    assert not failed
    assert "reads passwords" not in server.log
    assert server.stop() == 0
