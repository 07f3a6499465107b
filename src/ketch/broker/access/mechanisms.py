"""The SASL mechanisms that this broker offers, and one exchange of each: tokens in, tokens out, then a name.

What an exchange needs of the world is asked for here: credentials of Redis, and threads for what takes long. The rules
are `ketch.security`'s; what a connection may send when is `broker.access.authentication`'s.

The credentials are read anew for each exchange. So a change counts on all brokers from the next login on; who is
logged in stays so until it has to do it again (`connections.max.reauth.ms`), as in Kafka.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from ketch.configs.listeners import Listener
from ketch.configs.settings import Settings
from ketch.log.log import Log
from ketch.security import plain, scram
from ketch.security.scram import BY_NAME, ServerExchange
from ketch.store.access import users
from ketch.store.access.users import Known

log = logging.getLogger(__name__)

PLAIN = "PLAIN"

# A password takes 5 to 40 ms of a core, without the interpreter's lock. The log needs cores, too.
_PASSWORDS_AT_ONCE = 2


class Exchange(Protocol):
    """One SASL exchange on the server's side.

    Attributes:
        name: who the client is; None while it has not shown it.
        lifetime_ms: for how long that is so by the client's own credential; None where that says nothing.
    """

    name: str | None
    lifetime_ms: int | None

    async def answer(self, token: bytes) -> bytes:
        """The token that answers one of the client's.

        Raises:
            InvalidCredentials, RefusedWithReason: the exchange has failed.
            StorageUnavailable: the credentials cannot be read now.
        """


class Mechanisms:
    """The mechanisms of the setting `sasl_enabled_mechanisms`.

    Attributes:
        enabled: their names, in the setting's order.
    """

    def __init__(self, settings: Settings, log: Log) -> None:
        self.enabled = settings.mechanisms
        self._log = log
        self._passwords: ThreadPoolExecutor | None = None

    def warn(self, listeners: Iterable[Listener]) -> None:
        """Logs which listeners let passwords go over the network in clear."""
        open_ = [each.name for each in listeners if each.protocol.sasl and not each.protocol.tls]
        if open_ and PLAIN in self.enabled:
            log.warning("listener %s has no TLS: with PLAIN whoever listens in reads passwords", ", ".join(open_))

    def exchange(self, mechanism: str) -> Exchange:
        """A new exchange of an enabled mechanism."""
        return _Plain(self) if mechanism == PLAIN else _Scram(self, BY_NAME[mechanism])

    async def known(self, name: str) -> Known:
        """Raises StorageUnavailable."""
        return await self._log.driver.ask(users.known(self._log.keys, name))

    async def fits(self, credential: scram.Credential, mechanism: scram.Mechanism, password: str) -> bool:
        """Whether a credential is of this password."""
        if self._passwords is None:
            self._passwords = ThreadPoolExecutor(_PASSWORDS_AT_ONCE, "ketch-passwords")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._passwords, credential.fits, mechanism, password)


class _Scram:
    def __init__(self, mechanisms: Mechanisms, mechanism: scram.Mechanism) -> None:
        self.name: str | None = None
        self.lifetime_ms: int | None = None
        self._mechanisms, self._mechanism = mechanisms, mechanism
        self._exchange: ServerExchange | None = None

    async def answer(self, token: bytes) -> bytes:
        if self._exchange is not None:
            final = self._exchange.verify(token)
            self.name = self._exchange.username
            return final
        self._exchange = exchange = ServerExchange(self._mechanism, token)
        known = await self._mechanisms.known(exchange.username)
        nobody = scram.nobody(self._mechanism, known.secret, exchange.username)
        return exchange.challenge(known.credentials.get(self._mechanism, nobody))


class _Plain:
    """The password is compared with any SCRAM credential of the user: nothing else is kept of it."""

    lifetime_ms: int | None = None

    def __init__(self, mechanisms: Mechanisms) -> None:
        self.name: str | None = None
        self._mechanisms = mechanisms

    async def answer(self, token: bytes) -> bytes:
        login = plain.parse(token)
        known = await self._mechanisms.known(login.username)
        mechanism = next(iter(known.credentials), scram.Mechanism.SHA_512)
        nobody = scram.nobody(mechanism, known.secret, login.username)
        credential = known.credentials.get(mechanism, nobody)
        plain.check(login, await self._mechanisms.fits(credential, mechanism, login.password))
        self.name = login.username
        return b""
