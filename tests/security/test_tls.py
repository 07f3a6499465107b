"""What operators get wrong with keys and certificates is one sentence, and none has a secret in it."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from ketch.configs.settings import Settings
from ketch.errors import ConfigError
from ketch.security.tls import Credentials, openssl_name, server_context, server_pair
from tests.support.certificates import PASSWORD, Certificates, certificate_of, key_of


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def context(**given: Any) -> ssl.SSLContext:
    return server_context(Settings(**given))


def refused(**given: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        context(**given)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    assert PASSWORD not in message
    assert "PRIVATE KEY-----" not in message
    return message


def test_a_file_and_its_content_are_the_same(files: Certificates) -> None:
    pem = files.broker()
    assert context(ssl_keystore_location=pem).verify_mode == ssl.CERT_NONE
    text = {"ssl_keystore_key": key_of(pem).decode(), "ssl_keystore_certificate_chain": certificate_of(pem).decode()}
    assert context(**text).verify_mode == ssl.CERT_NONE
    trust = {"ssl_truststore_certificates": f"# ä\n{files.ca.read_text()}", "ssl_client_auth": "requested"}
    assert context(**text, **trust).verify_mode == ssl.CERT_OPTIONAL
    trust = {"ssl_truststore_location": files.ca, "ssl_client_auth": "required"}
    assert context(**text, **trust).verify_mode == ssl.CERT_REQUIRED


def test_an_encrypted_key(files: Certificates) -> None:
    pem = files.encrypted(files.broker(), "encrypted.pem")
    assert context(ssl_keystore_location=pem, ssl_key_password=PASSWORD)
    name = f"ssl_keystore_location {pem}"
    assert refused(ssl_keystore_location=pem) == (
        f"{name} has an encrypted key: ssl_key_password should be its password."
    )
    wrong = refused(ssl_keystore_location=pem, ssl_key_password="wrong")
    assert wrong == f"{name} has a key that ssl_key_password does not open."


def test_an_encrypted_key_for_http_has_no_setting_for_its_password(files: Certificates) -> None:
    pem = files.encrypted(files.broker(), "http.pem")
    with pytest.raises(ConfigError) as caught:
        server_pair(pem, "http_ssl_keystore_location")
    assert (
        str(caught.value) == f"http_ssl_keystore_location {pem} has an encrypted key, and should have one that is not."
    )


def test_keys_and_certificates_that_cannot_be_used(files: Certificates, tmp_path: Path) -> None:
    pem, other = files.broker(), files.broker("other")
    cases = {
        "key": (key_of(pem), "has no certificate in PEM format."),
        "certificate": (certificate_of(pem), "has no private key in PEM format."),
        "mixed": (key_of(pem) + certificate_of(other), "has a key that does not fit its first certificate."),
        "damaged": (key_of(pem) + certificate_of(pem).replace(b"MII", b"MIJ"), "cannot be used: "),
        "store.jks": (b"\xfe\xed\xfe\xed\0\0", "is a Java key store (JKS): PEM alone is read"),
        "store.p12": (b"0\x82\x01\0", "is a PKCS#12 store: PEM alone is read"),
        "binary": (b"\xff\xfe\0", "has no private key in PEM format."),
    }
    for name, (data, said) in cases.items():
        path = files.write(name, data)
        message = refused(ssl_keystore_location=path)
        assert message.startswith(f"ssl_keystore_location {path} {said}")
    missing = tmp_path / "no.pem"
    assert refused(ssl_keystore_location=missing) == (
        f"ssl_keystore_location {missing} cannot be read: No such file or directory."
    )
    assert "ssl_keystore_location names a PEM file" in refused()
    assert "give one or the other" in refused(ssl_keystore_location=pem, ssl_keystore_key="x")


def test_stores_of_trust_that_cannot_be_used(files: Certificates, tmp_path: Path) -> None:
    own = {"ssl_keystore_location": files.broker()}
    missing = tmp_path / "no.pem"
    assert refused(**own, ssl_client_auth="required").startswith(
        "ssl_client_auth = required needs ssl_truststore_location: "
    )
    assert "cannot be read: No such file" in refused(**own, ssl_truststore_location=missing)
    empty = files.write("empty.pem", b"nothing")
    said = "has no certificate in PEM format that can be read."
    assert refused(**own, ssl_truststore_location=empty) == f"ssl_truststore_location {empty} {said}"
    assert refused(**own, ssl_truststore_certificates="x") == f"ssl_truststore_certificates {said}"


def test_versions_and_suites(files: Certificates) -> None:
    own = {"ssl_keystore_location": files.broker()}
    found = context(**own, ssl_enabled_protocols=" TLSv1.3 ")
    assert (found.minimum_version, found.maximum_version) == (ssl.TLSVersion.TLSv1_3,) * 2
    for wrong in ("TLSv1.1,TLSv1.2", "", "SSLv3"):
        assert "ssl_enabled_protocols has no version" in refused(**own, ssl_enabled_protocols=wrong)
    older = context(**own, ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,ECDHE-RSA-AES128-GCM-SHA256")
    assert older.maximum_version == ssl.TLSVersion.TLSv1_2
    newer = "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256"
    assert context(**own, ssl_cipher_suites=newer).minimum_version == ssl.TLSVersion.TLSv1_3
    assert "lacks TLS_CHACHA20_POLY1305_SHA256" in refused(**own, ssl_cipher_suites=newer.replace("CHACHA20", "X"))
    assert "has TLS_NO_SUCH, which OpenSSL does not know" in refused(**own, ssl_cipher_suites="TLS_NO_SUCH")
    message = refused(**own, ssl_cipher_suites=newer, ssl_enabled_protocols="TLSv1.2")
    assert message == "ssl_cipher_suites has no suite for a version of TLS that ssl_enabled_protocols has."


def test_java_knows_suites_by_names_that_openssl_has_others_for() -> None:
    assert openssl_name("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256") == "ECDHE-ECDSA-CHACHA20-POLY1305"
    assert openssl_name("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384") == "ECDHE-RSA-AES256-SHA384"
    assert openssl_name("TLS_RSA_WITH_AES_128_CBC_SHA") == "AES128-SHA"
    assert openssl_name("AES128-SHA") == "AES128-SHA"
    known = {each["name"] for each in ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).get_ciphers()}
    assert openssl_name("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384") in known


def test_files_that_change(files: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    path = files.broker("changing")
    credentials = Credentials(Settings(ssl_keystore_location=path), "SSL")
    first = credentials.context
    credentials.refresh()
    assert credentials.context is first
    path.write_bytes(b"damaged")
    for _ in range(3):
        credentials.refresh()
    assert credentials.context is first
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    path.unlink()
    credentials.refresh()
    assert credentials.context is first
    files.broker("changing")
    credentials.refresh()
    assert credentials.context is not first
