"""The SASL mechanisms that this broker offers, and one exchange of each: tokens in, tokens out, then a name.

What an exchange needs of the world is asked for here: credentials of Redis, and threads for what takes long. The rules
are `ketch.security`'s; what a connection may send when is `broker.access.authentication`'s.

The credentials are read anew for each exchange. So a change counts on all brokers from the next login on; who is
logged in stays so until it has to do it again (`connections.max.reauth.ms`), as in Kafka.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Protocol

from ketch.broker.access.key_set import KeySet
from ketch.configs.lists import items
from ketch.configs.settings import Settings
from ketch.errors import ConfigError
from ketch.log.log import Log
from ketch.security import oauth, plain, scram
from ketch.security.sasl import RefusedWithReason
from ketch.security.scram import BY_NAME, ServerExchange
from ketch.store.access import users
from ketch.store.access.users import Known

log = logging.getLogger(__name__)

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"

# A password takes 5 to 40 ms of a core, without the interpreter's lock. The log needs cores, too.
_PASSWORDS_AT_ONCE = 2


class Exchange(Protocol):
    """One SASL exchange on the server's side.

    Attributes:
        name: who the client is; None while it has not shown it.
        lifetime_ms: for how long that is so by the client's own credential; None where that says nothing.
        refused: why the exchange has failed, once the client was told so in a token that it has to confirm; else "".
    """

    name: str | None
    lifetime_ms: int | None
    refused: str

    async def answer(self, token: bytes) -> bytes:
        """The token that answers one of the client's.

        Raises:
            InvalidCredentials, RefusedWithReason: the exchange has failed.
            StorageUnavailable, NoKeys: what the client's token is compared with cannot be read now.
        """


class Mechanisms:
    """All mechanisms that there are; `Settings.mechanisms` has those that a listener offers."""

    def __init__(self, settings: Settings, log: Log) -> None:
        self._settings, self._log = settings, log
        self._key_sets: dict[str, KeySet] = {}
        self._passwords: ThreadPoolExecutor | None = None

    def check(self) -> None:
        """Logs which listeners let passwords go over the network in clear.

        Raises:
            ConfigError: a mechanism that a listener offers lacks a setting or a package.
        """
        for listener in self._settings.endpoints:
            settings = self._settings.of(listener.name)
            if not listener.protocol.sasl:
                continue
            if PLAIN in settings.mechanisms and not listener.protocol.tls:
                log.warning("listener %s has no TLS: with PLAIN whoever listens in reads passwords", listener.name)
            if OAUTHBEARER in settings.mechanisms:
                _check_oauth(settings)

    def exchange(self, mechanism: str, settings: Settings) -> Exchange:
        """A new exchange of a mechanism that is offered.

        Args:
            settings: as they are for the listener.
        """
        if mechanism == OAUTHBEARER:
            return _OAuth(self, settings)
        return _Plain(self) if mechanism == PLAIN else _Scram(self, BY_NAME[mechanism])

    def keys(self, settings: Settings) -> KeySet:
        """The keys of the issuer whose tokens a listener takes."""
        url = settings.sasl_oauthbearer_jwks_endpoint_url
        assert url is not None  # by `check`
        if url not in self._key_sets:
            self._key_sets[url] = KeySet(url, settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000)
        return self._key_sets[url]

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
    refused = ""

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
    refused = ""

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


class _OAuth:
    """One message, with a token. An invalid one is answered with why; the client has to say that it has seen that."""

    def __init__(self, mechanisms: Mechanisms, settings: Settings) -> None:
        self.name: str | None = None
        self.lifetime_ms: int | None = None
        self._keys, self._rules = mechanisms.keys(settings), _rules(settings)
        self.refused = ""

    async def answer(self, token: bytes) -> bytes:
        if self.refused:
            raise RefusedWithReason(oauth.INVALID_TOKEN, self.refused)
        bearer = oauth.parse(token)
        try:
            keys = await self._keys.get(oauth.key_id(bearer.token))
            identity = oauth.validate(bearer.token, keys, self._rules)
        except oauth.InvalidToken as error:
            self.refused = f"invalid token: {error}"
            return oauth.INVALID_TOKEN.encode()
        if bearer.authzid and bearer.authzid != identity.name:
            raise RefusedWithReason(
                f"Authentication failed: Client requested an authorization id ({bearer.authzid}) that is different from"
                f" the token's principal name ({identity.name})"
            )
        self.name, self.lifetime_ms = identity.name, identity.expires_ms - int(time.time() * 1000)
        return b""


def _rules(settings: Settings) -> oauth.Rules:
    return oauth.Rules(
        settings.sasl_oauthbearer_expected_issuer,
        tuple(items(settings.sasl_oauthbearer_expected_audience or "")),
        settings.sasl_oauthbearer_clock_skew_seconds,
        settings.sasl_oauthbearer_scope_claim_name,
        settings.sasl_oauthbearer_sub_claim_name,
    )


def _check_oauth(settings: Settings) -> None:
    """Raises ConfigError where tokens could not be looked at."""
    if settings.sasl_oauthbearer_jwks_endpoint_url is None:
        raise ConfigError("OAUTHBEARER needs sasl_oauthbearer_jwks_endpoint_url: where the issuer's public keys are.")
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        raise ConfigError("OAUTHBEARER needs PyJWT and cryptography: pip install 'ketch[oauth]'.")
