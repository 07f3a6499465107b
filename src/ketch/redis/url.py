"""Redis URLs. Of one server in the form that Redis clients share: `redis://user:password@host:port/db`, `rediss://` the
same over TLS, `unix://user:password@/path?db=0`. Of several:

- `redis+cluster://user:password@host:port,host:port`: a Redis Cluster, by some of its nodes; `rediss+cluster://`.
  Nodes of 127.0.0.1 are reached by their unix sockets with `?sockets=port:/path,port:/path`.
- `redis+sentinel://user:password@host:port,host:port/master/db`: the master of that name, by some of the sentinels that
  watch it; `rediss+sentinel://` is TLS to the sentinels, too. User and password are the master's. Sentinels that want
  some of their own get `?sentinel_username=` and `?sentinel_password=`.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

from ketch.errors import ConfigError

if TYPE_CHECKING:
    from ketch.configs.settings import Settings

Kind = Literal["single", "cluster", "sentinel"]

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 6379
DEFAULT_SENTINEL_PORT = 26379

_KINDS: dict[str, Kind] = {
    "redis": "single",
    "rediss": "single",
    "unix": "single",
    "redis+cluster": "cluster",
    "rediss+cluster": "cluster",
    "redis+sentinel": "sentinel",
    "rediss+sentinel": "sentinel",
}
_BEGINNINGS = "redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://"
_PARAMETERS: dict[Kind, tuple[str, ...]] = {
    "single": (),
    "cluster": ("sockets",),
    "sentinel": ("sentinel_username", "sentinel_password"),
}
_MASTER = re.compile(r"[A-Za-z0-9._-]+")  # what Sentinel's documentation allows in a name


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where Redis is and how to introduce oneself; by `path` (a unix socket), or by `host` and `port` where it is None.

    Attributes:
        username, password: of Redis; behind sentinels, the master's.
        kind: one server, a cluster, or a master behind sentinels.
        others: beside `host` and `port`, which are the first, further nodes of the cluster or further sentinels.
        sockets: of nodes of a cluster on this machine, each with its port.
        master: its name with the sentinels.
        sentinel_username, sentinel_password: of the sentinels.
        of_sentinel: it is the address of one sentinel.
    """

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    path: str | None = None
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ssl: ssl.SSLContext | None = field(default=None, repr=False)
    kind: Kind = "single"
    others: tuple[tuple[str, int], ...] = ()
    sockets: tuple[tuple[int, str], ...] = ()
    master: str = ""
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    of_sentinel: bool = field(default=False, repr=False, compare=False)

    @classmethod
    def parse(cls, url: str, ca: Path | None = None, cert: Path | None = None, key: Path | None = None) -> RedisAddress:
        """The address in `url`, with TLS from PEM files for rediss://.

        Raises:
            ConfigError: one sentence, never with the password in it.
        """
        try:
            first, further = _apart(url)
            parts = urlsplit(first)
            hosts = [(each.hostname, each.port) for each in (parts, *(urlsplit(f"//{host}") for host in further))]
        except ValueError as error:
            raise ConfigError(f"The Redis URL is not valid: {_safe(error, url)}.") from None
        kind, tls = _kind(parts, len(hosts)), parts.scheme.startswith("rediss")
        if not tls and (ca or cert or key):
            raise ConfigError(f"redis_ca, redis_cert and redis_key are for rediss:// URLs, not {parts.scheme}://.")
        query = _query(parts, kind)
        socket_path = _socket_path(parts) if parts.scheme == "unix" else None
        (host, port), *others = _places(hosts, kind) if socket_path is None else [("", 0)]
        master, db = _master_and_database(parts, query, kind)
        return cls(
            host=host,
            port=port,
            path=socket_path,
            db=db,
            username=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
            ssl=tls_context(ca, cert, key) if tls else None,
            kind=kind,
            others=tuple(others),
            sockets=_sockets(query.get("sockets", "")),
            master=master,
            sentinel_username=query.get("sentinel_username"),
            sentinel_password=query.get("sentinel_password"),
        )

    @classmethod
    def of(cls, settings: Settings) -> RedisAddress:
        """The address that the settings name; `settings.redis` must be given."""
        assert settings.redis is not None
        return cls.parse(settings.redis, settings.redis_ca, settings.redis_cert, settings.redis_key)

    @property
    def seeds(self) -> tuple[tuple[str, int], ...]:
        """Host and port of everything that the URL names: the server, nodes of the cluster, or sentinels."""
        return ((self.host, self.port), *self.others)

    def at(self, host: str, port: int) -> RedisAddress:
        """One server of those that this address stands for: a node of the cluster, or the master."""
        path = dict(self.sockets).get(port) if host == DEFAULT_HOST else None
        return RedisAddress(host, port, path, self.db, self.username, self.password, None if path else self.ssl)

    def sentinel(self, host: str, port: int) -> RedisAddress:
        """One of the sentinels."""
        user, password = self.sentinel_username, self.sentinel_password
        return RedisAddress(host, port, None, 0, user, password, self.ssl, of_sentinel=True)

    def describe(self) -> str:
        """The URL without users and passwords, for log lines and errors."""
        if self.path is not None:
            return f"unix://{quote(self.path)}" + (f"?db={self.db}" if self.db else "")
        scheme = ("rediss" if self.ssl else "redis") + ("" if self.kind == "single" else f"+{self.kind}")
        hosts = ",".join(spelled(host, port) for host, port in self.seeds)
        path = (f"/{self.master}" if self.master else "") + (f"/{self.db}" if self.db else "")
        return f"{scheme}://{hosts}{path}"


def spelled(host: str, port: int) -> str:
    """Host and port as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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


def _apart(url: str) -> tuple[str, list[str]]:
    """The URL with the first of its hosts only, as `urlsplit` knows URLs; and the other hosts, with their ports."""
    scheme, mark, rest = url.partition("://")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    user, at, hosts = authority.rpartition("@")
    first, *further = hosts.split(",")
    return f"{scheme}{mark}{user}{at}{first}{rest[len(authority) :]}", further


def _kind(parts: SplitResult, hosts: int) -> Kind:
    kind = _KINDS.get(parts.scheme)
    if kind is None:
        raise ConfigError(f"A Redis URL begins with {_BEGINNINGS}.")
    if kind == "single" and hosts > 1:
        raise ConfigError("A Redis URL with several hosts begins with redis+cluster:// or redis+sentinel://.")
    return kind


def _places(hosts: Sequence[tuple[str | None, int | None]], kind: Kind) -> list[tuple[str, int]]:
    if len(hosts) > 1 and not all(host for host, _ in hosts):
        raise ConfigError("The Redis URL has a comma without a host beside it.")
    default = DEFAULT_SENTINEL_PORT if kind == "sentinel" else DEFAULT_PORT
    return [(host or DEFAULT_HOST, port or default) for host, port in hosts]


def _socket_path(parts: SplitResult) -> str:
    if not parts.path:
        raise ConfigError("A unix:// Redis URL needs a path: unix:///run/redis.sock.")
    return unquote(parts.path)


def _sockets(text: str) -> tuple[tuple[int, str], ...]:
    places = [each.partition(":") for each in text.split(",") if each]
    if not all(port.isascii() and port.isdigit() and path for port, _, path in places):
        raise ConfigError("The sockets of a cluster are given as ?sockets=7000:/path,7001:/path.")
    return tuple((int(port), unquote(path)) for port, _, path in places)  # a second time: it may have a comma


def _query(parts: SplitResult, kind: Kind) -> Mapping[str, str]:
    # A plus sign is no space here, as it is none in the user and password before the host.
    query = {name: values[0] for name, values in parse_qs(parts.query.replace("+", "%2B")).items()}
    known = ("db", *_PARAMETERS[kind])
    if unknown := query.keys() - set(known):
        names = f"{', '.join(known[:-1])} and {known[-1]} are" if len(known) > 1 else f"{known[0]} is"
        # Behind a bare & in a password it is a part of that.
        name = "" if "sentinel_password" in query else f" {min(unknown)}"
        raise ConfigError(f"The Redis URL has an unknown parameter{name}; only {names} known.")
    return query


def _master_and_database(parts: SplitResult, query: Mapping[str, str], kind: Kind) -> tuple[str, int]:
    path, master = parts.path.strip("/") if parts.scheme != "unix" else "", ""
    if kind == "sentinel":
        master, _, path = path.partition("/")
        if not _MASTER.fullmatch(master):
            raise ConfigError(f"A Sentinel URL needs the name of the master: {parts.scheme}://host:port/mymaster.")
    text = query.get("db") or path or "0"
    if not (text.isascii() and text.isdigit()):
        form = f"{parts.scheme}://host:port/mymaster/0" if master else "redis://host:port/0"
        raise ConfigError(f"The database in the Redis URL should be a number: {form}.")
    if kind == "cluster" and int(text):
        raise ConfigError(f"A Redis Cluster has database 0 only, not {int(text)}.")
    return master, int(text)


def _safe(error: ValueError, url: str) -> str:
    """urlsplit quotes what it stumbles over, and that may be a password with a bare `/` or `:` in it."""
    return str(error) if "@" not in url else "its user, password, host or port (special characters need %-encoding)"
