"""The password of the embedded Valkey: a file in the data directory, which its owner alone can read.

With one, Valkey asks everybody for it, on the unix socket too. Valkey itself gets it in a file of its own, as a command
line is everybody's to read. Each start with a password writes that second file, and each start without removes it: so
it is there exactly if the Valkey that runs has a password.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ketch.errors import KetchError, reason

if TYPE_CHECKING:
    from ketch.configs.settings import Settings

FILE = "redis-password"
_CONFIG = "valkey-password.conf"


def of(settings: Settings) -> str | None:
    """The password, made where there is none yet; None where the settings want none. Raises as `prepare`."""
    return prepare(settings.data_dir) if wanted(settings) else None


def wanted(settings: Settings) -> bool:
    """Whether `redis_auth` wants one; where it is `auto`, whether TLS, SASL or ACLs keep anybody out."""
    if settings.redis_auth == "auto":
        secured = (listener.protocol.tls or listener.protocol.sasl for listener in settings.endpoints)
        return settings.authorizes or any(secured)
    return settings.redis_auth == "password"


def prepare(data_dir: Path) -> str:
    """The password, made where there is none yet.

    Raises:
        KetchError: the file cannot be written or read, or has no password.
    """
    path = data_dir / FILE
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            _write(path, f"{secrets.token_urlsafe(32)}\n", os.O_EXCL)
        password = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = reason(error) if isinstance(error, OSError) else "it is not text"
        raise KetchError(f"The password of the embedded Valkey cannot be had from {path}: {why}.") from None
    if not password:
        raise KetchError(f"{path} should have the password of the embedded Valkey, and is empty.")
    return password


def configure(directory: Path, password: str | None) -> list[str]:
    """Tells a Valkey in this directory its password, by a file; the arguments that name the file, which come first."""
    path = directory / _CONFIG
    if password is None:
        path.unlink(missing_ok=True)
        return []
    quoted = "".join(f"\\x{byte:02x}" for byte in password.encode())
    _write(path, f'requirepass "{quoted}"\nprimaryauth "{quoted}"\n', os.O_TRUNC)
    return [str(path)]


def running(data_dir: Path, directory: Path) -> str | None:
    """The password of the Valkey that runs in `directory`, whose password is kept in `data_dir`; None without one."""
    with suppress(OSError):  # another user's, for instance
        if (directory / _CONFIG).exists():
            return (data_dir / FILE).read_text().strip()
    return None


def login(password: str | None) -> str:
    """What a Redis URL has before the host."""
    return "" if password is None else f":{quote(password, safe='')}@"


def _write(path: Path, text: str, flag: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
