"""Certificates for tests: an authority, files of keys and certificates, and what is wrong with some of them."""

from __future__ import annotations

import ssl
import subprocess
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ketch.security.authority import Authority

PASSWORD = "the password of the key"


class Certificates:
    """An authority and the files that it signs, in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.authority = Authority.new(30)
        self.ca = self.write("ca.pem", self.authority.pem.certificate)

    def write(self, name: str, data: bytes) -> Path:
        path = self.directory / name
        path.write_bytes(data)
        path.chmod(0o600)
        return path

    def broker(self, name: str = "broker", *hosts: str, expired: bool = False) -> Path:
        """Key and certificate of a server on this machine, good or expired."""
        return self._signed(name, hosts or ("localhost", "127.0.0.1"), expired)

    def client(self, name: str = "client", expired: bool = False) -> Path:
        """Key and certificate of a client, good or expired."""
        return self._signed(name, (), expired)

    def _signed(self, name: str, hosts: tuple[str, ...], expired: bool) -> Path:
        now = datetime.now(UTC) - timedelta(days=9) if expired else None
        signed = self.authority.sign(name, hosts, 3, now)
        return self.write(f"{name}.pem", signed.key + signed.certificate)

    def encrypted(self, pem: Path, name: str) -> Path:
        """The same with its key under PASSWORD (PKCS#8)."""
        command = ["openssl", "pkcs8", "-topk8", "-in", str(pem), "-passout", f"pass:{PASSWORD}"]
        key = subprocess.run(command, check=True, capture_output=True).stdout
        return self.write(name, key + certificate_of(pem))


def certificate_of(pem: Path) -> bytes:
    """The certificate in a file without its key."""
    data = pem.read_bytes()
    return data[data.index(b"-----BEGIN CERTIFICATE-----") :]


def key_of(pem: Path) -> bytes:
    """The key in a file without its certificate."""
    data = pem.read_bytes()
    return data[: data.index(b"-----BEGIN CERTIFICATE-----")]


def client_hello() -> bytes:
    """What a client of TLS sends first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> ssl.SSLObject:
    """The server's end after a handshake in memory."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(back, there, server_hostname=host), server.wrap_bio(there, back, server_side=True)]
    pending = list(ends)
    while pending:
        for end in list(pending):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            pending.remove(end)
    return ends[1]
