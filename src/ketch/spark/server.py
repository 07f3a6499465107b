"""Where Redis is, in a form that travels to executors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ketch.store.url import RedisAddress


@dataclass(frozen=True, slots=True)
class Server:
    """A Redis URL and what belongs to it. (A TLS context cannot be sent to another process.)"""

    url: str
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    timeout: float = 10.0  # s to connect, and to wait for a reply
    patience: float = (
        60.0  # s that it may be away before what needs it fails, as default.api.timeout.ms of Kafka's clients
    )

    def address(self) -> RedisAddress:
        """Raises ConfigError where the URL or a file is not what it should be."""
        from ketch.store.url import RedisAddress

        ca, cert, key = (Path(name) if name else None for name in (self.ca, self.cert, self.key))
        return RedisAddress.parse(self.url, ca, cert, key)
