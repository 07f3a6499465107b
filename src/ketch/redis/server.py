"""Where Redis is, and how long to try, as a plain value: Spark pickles it to its executors. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ketch.redis.url import RedisAddress


@dataclass(frozen=True, slots=True)
class Server:
    """A Redis URL and what belongs to it. (A TLS context cannot be sent to another process.)

    Attributes:
        ca, cert, key: PEM files for rediss://.
        timeout: s to wait for a reply.
        patience: s that Redis may be away before what needs it fails.
        connect_timeout: s to connect; None for `timeout`.
    """

    url: str
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    timeout: float = 10.0
    patience: float = 60.0  # as default.api.timeout.ms of Kafka's clients
    connect_timeout: float | None = None

    def address(self) -> RedisAddress:
        """Raises ConfigError where the URL or a file is not what it should be."""
        from ketch.redis.url import RedisAddress

        ca, cert, key = (Path(name) if name else None for name in (self.ca, self.cert, self.key))
        return RedisAddress.parse(self.url, ca, cert, key)
