"""The ports that a broker listens on for Kafka's clients, one for each listener.

It owns the listening sockets and says what cannot be listened on. A connection is its own from the moment it is made.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from ketch.complaints import Complaints
from ketch.configs.listeners import Listener, bracketed
from ketch.configs.settings import Settings
from ketch.connections.tls import TlsPort
from ketch.errors import ConfigError, KetchError, reason
from ketch.security import dn
from ketch.security.tls import Credentials

log = logging.getLogger(__name__)

_BACKLOG = 1024


class Ports:
    """The listening sockets of one broker.

    Args:
        make: a connection's protocol, by the listener that it came through.
    """

    def __init__(self, settings: Settings, make: Callable[[Listener], asyncio.BaseProtocol]) -> None:
        self._settings, self._make = settings, make
        self._open: list[asyncio.Server | TlsPort] = []
        self._complaints: dict[str, Complaints] = {}
        self.numbers: dict[str, int] = {}  # by listener

    async def open(self) -> None:
        """Listens.

        Raises:
            ConfigError: the settings of a listener, or the files that they name, cannot be used.
            KetchError: a port can't be listened on.
        """
        for listener in self._settings.endpoints:
            _check_rules(listener)
            try:
                self.numbers[listener.name] = await self._listen(listener)
            except OSError as error:
                raise KetchError(f"Cannot listen on {_address(listener)}: {reason(error)}; {self._advice()}") from None
            if not listener.loopback and not listener.protocol.tls and not self._settings.allow_plaintext:
                log.warning(
                    "listener %s on %s is not encrypted and other machines can reach it: --allow-plaintext says that"
                    " this is meant",
                    listener.name,
                    _address(listener),
                )

    async def _listen(self, listener: Listener) -> int:
        if listener.protocol.tls:
            credentials = self._credentials(listener)
            secured = TlsPort(listener.name, credentials, lambda: self._make(listener))
            secured.start(listener.host, listener.port, _BACKLOG)
            self._open.append(secured)
            return secured.port
        server = await asyncio.get_running_loop().create_server(
            lambda: self._make(listener), listener.host or None, listener.port, backlog=_BACKLOG
        )
        self._open.append(server)
        return int(server.sockets[0].getsockname()[1])

    def _credentials(self, listener: Listener) -> Credentials:
        try:
            return Credentials(self._settings.of(listener.name), listener.name)
        except ConfigError as error:
            if self._settings.listeners is None:
                raise
            raise ConfigError(f"Listener {listener.name}: {error}") from None

    def _advice(self) -> str:
        simple = self._settings.listeners is None
        return "--port and --host choose another." if simple else "--listeners chooses another."

    def complain(self, listener: Listener, text: str) -> None:
        """Logs what clients of a listener do wrong before anybody knows who they are, once a minute at most."""
        line = self._complaints.setdefault(listener.name, Complaints()).line(text, time.monotonic())
        if line:
            log.warning("listener %s: %s", listener.name, line)

    def close(self) -> None:
        """Accepts nothing more."""
        for each in self._open:
            each.close()


def _check_rules(listener: Listener) -> None:
    try:
        dn.rules(listener.principal_rules)
    except ValueError as error:
        raise ConfigError(f"ssl_principal_mapping_rules of listener {listener.name}: {error}.") from None


def _address(listener: Listener) -> str:
    return f"{bracketed(listener.host)}:{listener.port}"
