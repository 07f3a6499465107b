"""A certificate authority to try TLS with: its own certificate, and those that it signs for brokers and clients.

All of it is bytes in PEM, which the caller writes into files. Keys are of the curve P-256, PKCS#8 without a password.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Self

from ketch.errors import KetchError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_BACKDATED = timedelta(hours=1)  # the other machine's clock may be behind


@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate and its key, both in PEM."""

    key: bytes
    certificate: bytes


class Authority:
    """Signs certificates.

    Raises:
        KetchError: the package `cryptography` is not installed.
    """

    def __init__(self, certificate: x509.Certificate, key: EllipticCurvePrivateKey) -> None:
        self._certificate, self._key = certificate, key

    @classmethod
    def new(cls, days: int, now: datetime | None = None) -> Self:
        """A new one, whose certificate is valid for so many days."""
        _require()
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("Ketch test authority")
        return cls(_signed(name, key, name, key, days, now, authority=True), key)

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Self:
        """One that was made earlier; ValueError where the bytes are no such certificate and key in PEM."""
        _require()
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        found = load_pem_private_key(key, None)
        if not isinstance(found, EllipticCurvePrivateKey):
            raise ValueError("the key is of another kind")
        return cls(x509.load_pem_x509_certificate(certificate), found)

    @property
    def pem(self) -> Signed:
        return Signed(_key_pem(self._key), _certificate_pem(self._certificate))

    def sign(self, name: str, hosts: Iterable[str] = (), days: int = 365, now: datetime | None = None) -> Signed:
        """A certificate whose subject is CN=name.

        Args:
            hosts: names and addresses of the server that it is for; without any it is for a client.
            now: when it was made; it is valid for `days` from then on.
        """
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self._certificate.subject
        made = _signed(_name(name), key, issuer, self._key, days, now, hosts=tuple(hosts))
        return Signed(_key_pem(key), _certificate_pem(made))


def _require() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise KetchError(
            "To make certificates, `pip install 'ketch[certificates]'` (the package cryptography) is needed."
        ) from None


def _name(common_name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _signed(
    subject: x509.Name,
    key: EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: EllipticCurvePrivateKey,
    days: int,
    now: datetime | None,
    hosts: tuple[str, ...] = (),
    authority: bool = False,
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    now = now or datetime.now(UTC)
    key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(_usage(authority), critical=True)
        .add_extension(key_id, critical=False)
        .add_extension(issuer_id, critical=False)
    )
    if not authority:
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    if hosts:
        names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _usage(authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)
