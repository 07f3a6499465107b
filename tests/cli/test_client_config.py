"""How commands log in: properties of Java and of librdkafka, from a file, the environment and ketch.toml."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ketch.cli.client_config import librdkafkas, properties
from ketch.configs.properties import parse
from ketch.errors import ConfigError
from tests.support.certificates import Certificates
from tests.support.ketch import KetchServer
from tests.support.quick import commands

SECRET = "s3cret;\"='"
JAAS = "org.apache.kafka.common.security.{} required"


@pytest.fixture
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("KETCH_CLIENT_", "KETCH_CONFIG"))]:
        monkeypatch.delenv(name)


# -- the files


def test_a_file_of_properties_is_read_as_java_does() -> None:
    text = "# no\n! no\n\n a = 1 \nb:2\nc 3\n d\\ e = f\\\n   g\\\\\n\\u0041=\\t\\u00e4\nempty\nk==v\nlast=x\\"
    assert parse(text) == {
        "a": "1 ",
        "b": "2",
        "c": "3",
        "d e": "fg\\",
        "A": "\tä",
        "empty": "",
        "k": "=v",
        "last": "x",
    }


@given(st.text(max_size=60))
def test_every_text_is_some_properties(text: str) -> None:
    assert all(isinstance(value, str) for value in parse(text).values())


# -- Java's names


def test_names_of_librdkafka_stay() -> None:
    own = {"security.protocol": "ssl", "ssl.ca.location": "/ca.pem", "sasl.username": "u", "sasl.password": "p"}
    assert librdkafkas(own) == own


@pytest.mark.parametrize("module", ["plain.PlainLoginModule", "scram.ScramLoginModule"])
def test_user_and_password(module: str) -> None:
    quoted = SECRET.replace("\\", "\\\\").replace('"', '\\"')
    config = f'{JAAS.format(module)}\n username="al\\\\ice" password="{quoted}" ;'
    found = librdkafkas({"sasl.mechanism": "PLAIN", "sasl.jaas.config": config})
    assert found == {"sasl.mechanism": "PLAIN", "sasl.username": "al\\ice", "sasl.password": SECRET}


def test_tokens() -> None:
    url = {"sasl.oauthbearer.token.endpoint.url": "https://idp/token"}
    module = JAAS.format("oauthbearer.OAuthBearerLoginModule")
    found = librdkafkas({**url, "sasl.jaas.config": f'{module} clientId="c" clientSecret="{"x"}" scope="s";'})
    assert found == {
        **url,
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "c",
        "sasl.oauthbearer.client.secret": "x",
        "sasl.oauthbearer.scope": "s",
    }
    found = librdkafkas({"sasl.jaas.config": f'{module} unsecuredLoginStringClaim_sub="alice";'})
    assert found["sasl.oauthbearer.config"] == "principal=alice"


def test_stores_in_pem(tmp_path: Path) -> None:
    pem = tmp_path / "x.pem"
    pem.write_text("-----BEGIN CERTIFICATE-----")
    given = {
        "ssl.truststore.location": str(pem),
        "ssl.keystore.location": str(pem),
        "ssl.keystore.type": "PEM",
        "ssl.endpoint.identification.algorithm": "",
        "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_RSA_WITH_AES_256_CBC_SHA",
        "bootstrap.servers": "elsewhere:1",
        "key.serializer": "a.Class",
    }
    assert librdkafkas(given) == {
        "ssl.ca.location": str(pem),
        "ssl.certificate.location": str(pem),
        "ssl.key.location": str(pem),
        "ssl.endpoint.identification.algorithm": "none",
        "ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256:AES256-SHA",
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ssl.truststore.location": "{jks}"}, "ssl.truststore.location {jks} is a JKS store, which is not read here"),
        ({"ssl.keystore.location": "x", "ssl.keystore.type": "jks"}, "ssl.keystore.location x is a JKS store"),
        ({"ssl.truststore.location": "x", "ssl.truststore.type": "PKCS12"}, "ssl.truststore.location x is a PKCS12"),
        ({"ssl.truststore.location": "/no"}, "/no cannot be read: No such file or directory."),
        ({"ssl.keystore.location": "/no", "ssl.keystore.type": "PEM"}, "/no cannot be read: No such file"),
        ({"security.protocol": "SASL_SSL", "sasl.username": "a"}, "SASL_SSL needs a sasl.mechanism: PLAIN, SCRAM-"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "ssl.enabled.protocols cannot be chosen here"),
        ({"sasl.jaas.config": f"nonsense {SECRET}"}, "sasl.jaas.config should be: LoginModule required username="),
        ({"sasl.jaas.config": JAAS.format("plain.PlainLoginModule") + ";"}, "has no username and password"),
        ({"sasl.jaas.config": f'com.sun.Krb5LoginModule required password="{"x"}";'}, "names Krb5LoginModule, which"),
        ({"sasl.jaas.config": JAAS.format("o.OAuthBearerLoginModule") + " clientId=a;"}, "token.endpoint.url"),
    ],
)
def test_what_has_no_equal_is_one_sentence(given: dict[str, str], said: str, tmp_path: Path) -> None:
    jks = tmp_path / "t.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed\0")
    with pytest.raises(ConfigError) as caught:
        librdkafkas({name: value.replace("{jks}", str(jks)) for name, value in given.items()})
    assert said.replace("{jks}", str(jks)) in str(caught.value)
    assert SECRET not in str(caught.value)


# -- where they come from


@pytest.mark.usefixtures("_no_variables")
def test_file_beats_environment_beats_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert properties(None) == {}
    toml = tmp_path / "ketch.toml"
    toml.write_text('[client]\nsecurity.protocol = "ssl"\nssl_ca_location = "toml"\n"sasl.username" = "t"\n')
    monkeypatch.setenv("KETCH_CONFIG", str(toml))
    assert properties(None) == {"security.protocol": "ssl", "ssl.ca.location": "toml", "sasl.username": "t"}
    monkeypatch.setenv("KETCH_CLIENT_SSL_CA_LOCATION", "environment")
    assert properties(None)["ssl.ca.location"] == "environment"
    file = tmp_path / "client.properties"
    file.write_text("ssl.ca.location=file\n")
    assert properties(file)["ssl.ca.location"] == "file"
    with pytest.raises(ConfigError, match=r"--command-config no cannot be read: No such file or directory\."):
        properties(Path("no"))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> tuple[KetchServer, Certificates]:
    """A broker that asks its clients for certificates."""
    directory = tmp_path_factory.mktemp("client-config")
    files = Certificates(directory / "certificates")
    listeners = ("--listeners", "SSL://127.0.0.1:0", "--ssl-client-auth", "required")
    stores = ("--ssl-keystore-location", str(files.broker()), "--ssl-truststore-location", str(files.ca))
    server = KetchServer(directory, *listeners, *stores).start()
    yield server, files
    assert server.stop() == 0


def run(server: KetchServer, *arguments: str, given: str | None = None, env: dict[str, str] | None = None) -> str:
    command = [*commands.program(), *arguments, "-b", server.bootstrap]
    variables = {**os.environ, **(env or {})}
    done = subprocess.run(command, input=given, capture_output=True, text=True, env=variables, timeout=60)
    return done.stdout + done.stderr


def test_commands_over_tls(secured: tuple[KetchServer, Certificates], tmp_path: Path) -> None:
    server, files = secured
    own = files.client("Alice")
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
        f"ssl.truststore.location={files.ca}\nssl.keystore.location={own}\n"
    )
    option = ("--command-config", str(file))
    assert run(server, "topics", "create", "t", *option) == "Topic t was created.\n"
    assert run(server, "produce", "t", *option, given="one\n").startswith("1 records to t")
    assert "one" in run(server, "consume", "t", *option)
    variables = {
        "KETCH_CLIENT_SECURITY_PROTOCOL": "ssl",
        "KETCH_CLIENT_SSL_CA_LOCATION": str(files.ca),
        "KETCH_CLIENT_SSL_CERTIFICATE_LOCATION": str(own),
        "KETCH_CLIENT_SSL_KEY_LOCATION": str(own),
    }
    assert "127.0.0.1" in run(server, "cluster", env=variables)
    assert f"up at 127.0.0.1:{server.port}" in run(server, "status", *option)


def test_why_a_command_is_not_let_in(secured: tuple[KetchServer, Certificates], tmp_path: Path) -> None:
    server, _ = secured
    other = Certificates(tmp_path / "other")
    variables = {"KETCH_CLIENT_SECURITY_PROTOCOL": "ssl", "KETCH_CLIENT_SSL_CA_LOCATION": str(other.ca)}
    said = run(server, "cluster", env=variables)
    assert said.startswith("ketch: The cluster cannot be described: ")
    assert "certificate verify failed" in said
    assert said.count("\n") == 1


def test_a_client_without_a_certificate_is_told_that_it_needs_one(secured: tuple[KetchServer, Certificates]) -> None:
    server, files = secured
    variables = {"KETCH_CLIENT_SECURITY_PROTOCOL": "ssl", "KETCH_CLIENT_SSL_CA_LOCATION": str(files.ca)}
    assert "certificate required" in run(server, "cluster", env=variables)


def test_a_client_without_tls_is_asked_whether_it_should_log_in(secured: tuple[KetchServer, Certificates]) -> None:
    said = run(secured[0], "topics", "list")
    assert said == (
        "ketch: The broker cannot be asked: no answer from a Kafka broker in 5 s "
        "(it hangs up; does it want TLS or a login? --command-config says how to log in).\n"
    )


def test_what_is_no_property_of_a_client(secured: tuple[KetchServer, Certificates]) -> None:
    said = run(secured[0], "cluster", env={"KETCH_CLIENT_FOO": SECRET})
    assert said == 'ketch: How to log in to the broker: No such configuration property: "foo".\n'
