"""TLS on a listener: an SSL context made of the settings that Kafka has for it, and made anew when its files change.

It reads the files that the settings name and opens no connection. What is wrong with them is one sentence for the
operator, without any secret in it. PEM is the one format (`ssl.keystore.type=PEM`, KIP-651).
"""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ketch.configs.lists import items
from ketch.errors import ConfigError, reason

if TYPE_CHECKING:  # client commands need `openssl_name`, and none of the settings
    from ketch.configs.settings import Settings

log = logging.getLogger(__name__)

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
# OpenSSL's own choice for TLS 1.3, which Python cannot change
_SUITES_1_3 = {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"}
_ENCRYPTED = "ENCRYPTED"  # stands in every PEM block of a key under a password
_STORES = {b"\xfe\xed\xfe\xed": "a Java key store (JKS)", b"0\x82": "a PKCS#12 store"}  # by their first bytes


class _Handshake(ssl.SSLObject):
    """Keeps the alert of a handshake that fails, by which a client learns why: as `alert` of the exception.

    OpenSSL leaves it in the buffer of what is to be sent; asyncio and uvloop close the connection without it.
    """

    to_send: ssl.MemoryBIO

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            error.alert = self.to_send.read()  # type: ignore[attr-defined]
            raise


class _ServerContext(ssl.SSLContext):
    sslobject_class = _Handshake

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *given: Any, **named: Any) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, *given, **named)
        assert isinstance(made, _Handshake)
        made.to_send = outgoing
        return made


def alert_of(error: OSError) -> bytes:
    """What a client is to be sent, as it goes over the wire, of a handshake that failed so; b"" for nothing."""
    alert: bytes = getattr(error, "alert", b"")
    return alert


class Credentials:
    """The SSL context of a listener, which is made anew when the files behind it have changed.

    Connections that stand keep the context that they were made with.

    Attributes:
        context: for the next handshake.

    Raises:
        ConfigError: the settings or their files cannot be used.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings, self._name = settings, name
        self._seen = self._state()
        self.context = server_context(settings)

    def refresh(self) -> None:
        """Takes over changed files. Where they cannot be used the old ones stay, and the log says so once."""
        seen = self._state()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.context = server_context(self._settings)
        except ConfigError as error:
            log.error("listener %s goes on with its old certificate: %s", self._name, error)
        else:
            log.info("listener %s has the new certificates of its files", self._name)

    def _state(self) -> list[tuple[int, int, int] | None]:
        paths = (self._settings.ssl_keystore_location, self._settings.ssl_truststore_location)
        return [_fingerprint(path) for path in paths if path is not None]


def _fingerprint(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def server_context(settings: Settings) -> ssl.SSLContext:
    """The context of a server by the `ssl_` settings.

    Raises:
        ConfigError: they, or their files, cannot be used.
    """
    context = _ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load_key(context, settings)
    _load_authorities(context, settings)
    _choose_versions(context, settings.ssl_enabled_protocols)
    if settings.ssl_cipher_suites is not None:
        _choose_suites(context, settings.ssl_cipher_suites)
    return context


# -- the broker's certificate and key


def _load_key(context: ssl.SSLContext, settings: Settings) -> None:
    location, chain, key = (
        settings.ssl_keystore_location,
        settings.ssl_keystore_certificate_chain,
        settings.ssl_keystore_key,
    )
    if location is not None and (chain or key):
        raise ConfigError(
            "ssl_keystore_location is a file with certificates and key, ssl_keystore_certificate_chain and"
            " ssl_keystore_key are the same as text: give one or the other."
        )
    if location is not None:
        name = f"ssl_keystore_location {location}"
        _load_pair(context, location, _text(location, "ssl_keystore_location"), settings.ssl_key_password, name)
    elif chain and key:
        with _as_file(f"{key.strip()}\n{chain.strip()}\n") as path:
            _load_pair(context, path, f"{key}\n{chain}", settings.ssl_key_password, "ssl_keystore_key")
    else:
        raise ConfigError(
            "A listener with TLS needs a certificate: ssl_keystore_location names a PEM file with the key and the"
            " certificate chain (`ketch certificates` makes one to try it)."
        )


def server_pair(path: Path, name: str) -> ssl.SSLContext:
    """A server's context with the key, under no password, and certificates of one PEM file. It asks clients for none.

    Args:
        name: of the setting that names the file.

    Raises:
        ConfigError: it cannot be used.
    """
    text = _text(path, name)
    if _ENCRYPTED in text:
        raise ConfigError(f"{name} {path} has an encrypted key, and should have one that is not.")
    context = _ServerContext(ssl.PROTOCOL_TLS_SERVER)
    _load_pair(context, path, text, None, f"{name} {path}")
    return context


def _load_pair(context: ssl.SSLContext, path: Path, text: str, password: str | None, name: str) -> None:
    """Takes a PEM file of key and certificates.

    Args:
        text: what is in the file.
        name: begins the sentence that says what is wrong with it.

    Raises:
        ConfigError: it cannot be used.
    """
    for what, mark in (("private key", "PRIVATE KEY-----"), ("certificate", "BEGIN CERTIFICATE-----")):
        if mark not in text:
            raise ConfigError(f"{name} has no {what} in PEM format.")
    encrypted = _ENCRYPTED in text
    if encrypted and not password:
        raise ConfigError(f"{name} has an encrypted key: ssl_key_password should be its password.")
    try:
        context.load_cert_chain(path, password=password or "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"{name} has a key that does not fit its first certificate.") from None
        if encrypted:
            raise ConfigError(f"{name} has a key that ssl_key_password does not open.") from None
        raise ConfigError(f"{name} cannot be used: {error.reason or 'it is damaged'}.") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name} cannot be used: {error}.") from None


def _text(path: Path, name: str) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{name} {path} cannot be read: {reason(error)}.") from None
    for start, kind in _STORES.items():
        if data.startswith(start):
            raise ConfigError(f"{name} {path} is {kind}: PEM alone is read (keytool and openssl pkcs12 export it).")
    return data.decode("utf-8", "replace")


@contextmanager
def _as_file(text: str) -> Iterator[Path]:
    """The text in a file that its owner alone can read: Python's ssl takes keys from files only."""
    descriptor, name = tempfile.mkstemp(prefix="ketch-", suffix=".pem")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        yield Path(name)
    finally:
        os.unlink(name)


# -- the authorities of clients' certificates


def _load_authorities(context: ssl.SSLContext, settings: Settings) -> None:
    location, certificates = settings.ssl_truststore_location, settings.ssl_truststore_certificates
    if location is not None and certificates:
        raise ConfigError(
            "ssl_truststore_location is a file, ssl_truststore_certificates the same as text: give one or the other."
        )
    if settings.ssl_client_auth != "none" and not (location or certificates):
        raise ConfigError(
            f"ssl_client_auth = {settings.ssl_client_auth} needs ssl_truststore_location: the authorities that clients'"
            " certificates may be of."
        )
    name = f"ssl_truststore_location {location}" if location else "ssl_truststore_certificates"
    text = _text(location, "ssl_truststore_location") if location else certificates
    if text:
        try:
            context.load_verify_locations(cadata=_certificates(text))
        except (ssl.SSLError, ValueError):
            raise ConfigError(f"{name} has no certificate in PEM format that can be read.") from None
    context.verify_mode = _VERIFY[settings.ssl_client_auth]
    # As in Java, a certificate in the store is trusted whether or not it is a root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _certificates(text: str) -> str:
    """The certificates alone: the store may have comments in any encoding, which OpenSSL does not take as text."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    parts = [part.partition(end)[0] for part in text.split(begin)[1:]]
    return "".join(f"{begin}{part}{end}\n" for part in parts)


# -- versions and suites


def _choose_versions(context: ssl.SSLContext, text: str) -> None:
    names = items(text)
    if not names or (strange := [name for name in names if name not in _VERSIONS]):
        wrong = f" {strange[0]}" if names else ""
        raise ConfigError(f"ssl_enabled_protocols has no version{wrong} to offer: it is TLSv1.2, TLSv1.3 or both.")
    versions = [_VERSIONS[name] for name in names]
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _choose_suites(context: ssl.SSLContext, text: str) -> None:
    names = items(text)
    newer = {name for name in names if name in _SUITES_1_3}
    older = [openssl_name(name) for name in names if name not in newer]
    if newer and newer != _SUITES_1_3:
        missing = ", ".join(sorted(_SUITES_1_3 - newer))
        raise ConfigError(f"ssl_cipher_suites can have the suites of TLS 1.3 all or none, and lacks {missing}.")
    if older:
        _set_ciphers(context, names, older)
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if not newer:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if context.minimum_version > context.maximum_version:
        raise ConfigError("ssl_cipher_suites has no suite for a version of TLS that ssl_enabled_protocols has.")


def _set_ciphers(context: ssl.SSLContext, names: Iterable[str], suites: list[str]) -> None:
    known = {cipher["name"] for cipher in _every_cipher()}
    for name in names:
        if name not in _SUITES_1_3 and openssl_name(name) not in known:
            raise ConfigError(f"ssl_cipher_suites has {name}, which OpenSSL does not know.")
    context.set_ciphers(":".join(suites))


def _every_cipher() -> list[ssl._Cipher]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context.get_ciphers()


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2 by its name in Java: ECDHE-RSA-AES128-GCM-SHA256 of
    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256. One that has no such name is taken for OpenSSL's."""
    exchange, mark, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not mark or not suite.startswith("TLS_"):
        return suite
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "").replace("_", "-")
    if cipher.startswith("CHACHA20"):
        cipher = "CHACHA20-POLY1305"
    return cipher if exchange == "RSA" else f"{exchange.replace('_', '-')}-{cipher}"
