"""`ketch certificates`: an authority, a broker's and clients' certificates to try TLS with, as PEM files.

A second run in the same directory signs further ones by the authority that is there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from ketch.errors import ConfigError, KetchError, reason
from ketch.security.authority import Authority, Signed

_AUTHORITY, _AUTHORITY_KEY, _BROKER = "ca.pem", "ca-key.pem", "broker"
_HOST = re.compile(r"[0-9A-Za-z.:*_-]+")
_CLIENT = re.compile(r"[0-9A-Za-z._-]+")  # it names a file, too


def command(
    directory: Annotated[Path, typer.Argument(help="Where the files go; made where it is missing.", metavar="DIR")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="Name or address by which clients reach the broker; several: repeat it."),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option("--client", help="User that a client's certificate names; several: repeat it. [default: client]"),
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=36500, help="How long they are good for.")] = 365,
) -> None:
    """Make certificates to try TLS with: an authority, a broker's, and one for each client.

    The authority's key lies beside them, so they are for trials and tests. Files with a key can be read by you alone.
    What is there already is left as it is: a second run signs further certificates by the same authority, without
    --host for clients alone.
    """
    hosts, clients = host or [], client or ["client"]
    _check(hosts, clients)
    if not hosts and not (directory / _AUTHORITY).exists():
        raise ConfigError("--host should say by which name or address clients reach the broker.")
    wanted = [*([_BROKER] if hosts else []), *clients]
    if there := [name for name in wanted if (directory / f"{name}.pem").exists()]:
        raise ConfigError(f"{directory / there[0]}.pem is there already: remove it, or name another directory.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        authority = _authority(directory, days)
        if hosts:
            _write_pair(directory / f"{_BROKER}.pem", authority.sign(hosts[0], hosts, days))
        for name in clients:
            _write_pair(directory / f"{name}.pem", authority.sign(name, (), days))
    except OSError as error:
        raise KetchError(f"{error.filename or directory} cannot be written: {reason(error)}.") from None
    _show(directory, bool(hosts), clients)


def _check(hosts: list[str], clients: list[str]) -> None:
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise ConfigError(f"--host {host!r} should be a host name or an IP address.")
    for name in clients:
        if not _CLIENT.fullmatch(name) or name in (_BROKER, "ca", "ca-key"):
            raise ConfigError(
                f"--client {name!r} should be letters, digits, dots and hyphens, as it names a file, too."
            )
    if len(set(clients)) < len(clients):
        raise ConfigError("--client names the same user twice.")


def _authority(directory: Path, days: int) -> Authority:
    certificate, key = directory / _AUTHORITY, directory / _AUTHORITY_KEY
    if not (certificate.exists() or key.exists()):
        authority = Authority.new(days)
        _write(key, authority.pem.key, secret=True)
        _write(certificate, authority.pem.certificate, secret=False)
        return authority
    try:
        return Authority.load(certificate.read_bytes(), key.read_bytes())
    except OSError as error:
        raise KetchError(f"The authority in {directory} cannot be read: {error.filename}: {reason(error)}.") from None
    except (ValueError, TypeError):
        raise KetchError(f"The authority in {directory} is none of ours: name another directory.") from None


def _write_pair(path: Path, signed: Signed) -> None:
    _write(path, signed.key + signed.certificate, secret=True)


def _write(path: Path, data: bytes, secret: bool) -> None:
    """Never over a file that is there; with a secret it is the owner's alone from the beginning."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _show(directory: Path, broker: bool, clients: list[str]) -> None:
    print(f"{directory / _AUTHORITY}  the authority, for brokers and clients to trust")
    if broker:
        print(f"{directory / _BROKER}.pem  ssl_keystore_location of the broker: its key and certificate")
    for name in clients:
        print(f"{directory / name}.pem  ssl.keystore.location of a client, CN={name}: its key and certificate")
