"""Which embedded storage a broker starts, one Valkey or a cluster of shards, and where one that runs can be reached."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, unquote, urlsplit

from ketch.embedded import directory, password
from ketch.embedded.locks import running_cluster, running_socket
from ketch.embedded.valkey import STOP_SECONDS, EmbeddedValkey

if TYPE_CHECKING:
    from ketch.configs.settings import Settings


class Storage(Protocol):
    """The child processes of a broker that keep its log."""

    @property
    def url(self) -> str:
        """Where it is, see `redis.url`; known once it was started."""

    @property
    def address(self) -> str:
        """The same without a password, for a person."""

    async def start(self) -> None:
        """Returns when it takes writes; raises KetchError where it cannot be started."""

    async def stop(self, patience: float = STOP_SECONDS) -> None:
        """Stops it in order, within `patience` seconds. Does nothing the second time."""


def storage(settings: Settings) -> Storage:
    """As the settings say.

    Raises:
        KetchError: the data directory has several shards, and the settings ask for one.
    """
    if settings.shards == 1:
        directory.check(settings.data_dir, 1)
        return EmbeddedValkey.of(settings)
    from ketch.embedded.shards import Shards  # with all that a cluster needs: one Valkey starts sooner without

    return Shards.of(settings)


def with_password(url: str) -> str:
    """The Redis URL, with its password where it is the socket of an embedded Valkey that this user may read."""
    parts = urlsplit(url)
    if parts.scheme != "unix" or parts.password is not None:
        return url
    data_dir = Path(unquote(parts.path)).parent
    return _with_login(url, data_dir, data_dir)


def running_url(data_dir: Path) -> str | None:
    """The Redis URL of what uses the data directory now, if something does."""
    if cluster := running_cluster(data_dir):
        return _with_login(cluster, data_dir, directory.shard_directory(data_dir, 0))
    socket = running_socket(data_dir)
    return None if socket is None else _with_login(f"unix://{quote(str(socket))}", data_dir, data_dir)


def _with_login(url: str, data_dir: Path, of_valkey: Path) -> str:
    """The URL with the password of the Valkey that runs in `of_valkey`, where it has one."""
    return url.replace("://", f"://{password.login(password.running(data_dir, of_valkey))}", 1)
