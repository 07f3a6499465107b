"""Redis servers that take no client without a certificate, a user and a password, and certificates of a test's own
authority for them.

Each server is a client of the others by its own certificate. Those of `tests.support.certificates` are good for one of
the two alone.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.modules import binary


def certificate(directory: Path, name: str, *options: object) -> tuple[Path, Path]:
    """The PEM files of a certificate and its key, signed by itself unless the options of openssl say otherwise."""
    cert, key = directory / f"{name}.pem", directory / f"{name}.key"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -keyout {key} -out {cert}".split()
    subprocess.run([*command, *map(str, options)], check=True, capture_output=True)
    return cert, key


def signed(directory: Path, name: str, *options: object) -> tuple[Path, Path]:
    """As `certificate`, signed by the authority `ca` of the directory."""
    return certificate(directory, name, *options, "-CA", directory / "ca.pem", "-CAkey", directory / "ca.key")


@dataclass(frozen=True, slots=True)
class Secured:
    """How servers are secured: the options that they need, and the clients that they take.

    Attributes:
        ca: the certificate of the authority.
        server, client: certificates and keys.
        admin: the password of the default user, by which servers know each other.
        user, password: of the ACL user that a broker is.
    """

    ca: Path
    server: tuple[Path, Path]
    client: tuple[Path, Path]
    admin: str = "admin-secret"
    user: str = "ketch"
    password: str = "ketch-secret"

    @classmethod
    def make(cls, directory: Path) -> Secured:
        """With certificates in a directory. Skips the test where no server with TLS is installed."""
        binary("redis-server")  # Debian's, the one that has TLS
        directory.mkdir()
        ca, _ = certificate(directory, "ca", "-addext", "basicConstraints=critical,CA:TRUE")
        server = signed(directory, "server", "-addext", "subjectAltName=IP:127.0.0.1")
        return cls(ca, server, signed(directory, "client"))

    @property
    def tls(self) -> dict[str, str]:
        """Settings of every server, of sentinels too."""
        cert, key = map(str, self.server)
        return {"tls-cert-file": cert, "tls-key-file": key, "tls-ca-cert-file": str(self.ca), "tls-replication": "yes"}

    def options(self, port: int) -> list[str]:
        """Of a server on a port."""
        settings = {"port": "0", "tls-port": str(port), "requirepass": self.admin, "masterauth": self.admin, **self.tls}
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        return [*words, "--user", self.user, "on", f">{self.password}", "~*", "&*", "+@all"]

    def of_sentinel(self, port: int) -> list[str]:
        """Lines of the configuration of a sentinel on a port; sentinels know each other by the same password."""
        settings = {"port": 0, "tls-port": port, "requirepass": self.admin, "sentinel sentinel-pass": self.admin}
        return [f"{name} {value}" for name, value in (settings | self.tls).items()]

    def client_options(self) -> dict[str, Any]:
        """Of redis-py, for the default user."""
        cert, key = map(str, self.client)
        return {
            "password": self.admin, "ssl": True, "ssl_ca_certs": str(self.ca), "ssl_certfile": cert, "ssl_keyfile": key,
        }  # fmt: skip
