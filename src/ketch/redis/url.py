"""Redis URLs in the form that Redis clients share: `redis://user:password@host:port/db`, `rediss://` the same over TLS,
`unix://user:password@/path?db=0`.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

from ketch.errors import ConfigError, reason

if TYPE_CHECKING:
    from ketch.configs.settings import Settings

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 6379


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where Redis is and how to introduce oneself; either `path` (a unix socket) or `host` and `port`."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    path: str | None = None
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ssl: ssl.SSLContext | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str, ca: Path | None = None, cert: Path | None = None, key: Path | None = None) -> RedisAddress:
        """The address in `url`, with TLS from PEM files for rediss://.

        Raises:
            ConfigError: one sentence, never with the password in it.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"The Redis URL is not valid: {_safe(error, url)}.") from None
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise ConfigError("A Redis URL begins with redis://, rediss:// or unix://.")
        if parts.scheme != "rediss" and (ca or cert or key):
            raise ConfigError(f"redis_ca, redis_cert and redis_key are for rediss:// URLs, not {parts.scheme}://.")
        return cls(
            host=parts.hostname or DEFAULT_HOST if parts.scheme != "unix" else "",
            port=port or DEFAULT_PORT if parts.scheme != "unix" else 0,
            path=_socket_path(parts) if parts.scheme == "unix" else None,
            db=_database(parts),
            username=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
            ssl=tls_context(ca, cert, key) if parts.scheme == "rediss" else None,
        )

    @classmethod
    def of(cls, settings: Settings) -> RedisAddress:
        """The address that the settings name; `settings.redis` must be given."""
        assert settings.redis is not None
        return cls.parse(settings.redis, settings.redis_ca, settings.redis_cert, settings.redis_key)

    def describe(self) -> str:
        """The URL without user and password, for log lines and errors."""
        if self.path is not None:
            return f"unix://{quote(self.path)}" + (f"?db={self.db}" if self.db else "")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'rediss' if self.ssl else 'redis'}://{host}:{self.port}" + (f"/{self.db}" if self.db else "")


def why_unusable(error: BaseException) -> str:
    """Why Redis cannot be connected to, as a phrase for a person: "Connection refused".

    Args:
        error: of the system or of a connection, or Redis's own answer.
    """
    text = str(error)
    if any(word in text for word in ("NOAUTH", "Authentication required", "client already authenticated")):
        return "it wants a password, which belongs into the URL: redis://:PASSWORD@HOST:PORT"
    if any(word in text for word in ("WRONGPASS", "AUTH called", "AUTH <password>", "invalid username-password")):
        return "it does not accept the user and password of the URL"
    if isinstance(error, OSError):
        return reason(error)
    if isinstance(error.__context__, OSError):  # a connection's error: the system's own words say more
        return reason(error.__context__)
    return text.rstrip(".") or "no answer in time"


def tls_context(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    """A client context that verifies the server, with a client certificate where one is given.

    Raises:
        ConfigError: a file is missing or not what it should be.
    """
    if key and not cert:
        raise ConfigError("redis_key needs redis_cert.")
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"redis_ca {ca} cannot be used: {error.strerror or error}.") from None
    if cert:
        try:
            # An encrypted key would ask at the terminal; a broker has none.
            context.load_cert_chain(cert, key, password=lambda: "")
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"redis_cert {cert} cannot be used: {error.strerror or error}.") from None
    return context


def _socket_path(parts: SplitResult) -> str:
    if not parts.path:
        raise ConfigError("A unix:// Redis URL needs a path: unix:///run/redis.sock.")
    return unquote(parts.path)


def _database(parts: SplitResult) -> int:
    query = parse_qs(parts.query)
    unknown = set(query) - {"db"}
    if unknown:
        raise ConfigError(f"The Redis URL has an unknown parameter {min(unknown)}; only db is known.")
    path = parts.path.strip("/") if parts.scheme != "unix" else ""
    text = query["db"][0] if "db" in query else path or "0"
    if not (text.isascii() and text.isdigit()):
        raise ConfigError("The database in the Redis URL should be a number: redis://host:port/0.")
    return int(text)


def _safe(error: ValueError, url: str) -> str:
    """urlsplit quotes what it stumbles over, and that may be a password with a bare `/` or `:` in it."""
    return str(error) if "@" not in url else "its user, password, host or port (special characters need %-encoding)"
