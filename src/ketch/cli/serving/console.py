"""Makes the broker's console, and gives it what it may know of the broker: neither of the two packages imports the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ketch.broker.access.authorizer import Rights
from ketch.broker.access.mechanisms import PLAIN
from ketch.broker.caller import Caller
from ketch.broker.inside import Inside
from ketch.cli.examine import examine
from ketch.configs.listeners import bracketed
from ketch.console.app import Console
from ketch.console.sources import Sources
from ketch.security.sasl import InvalidCredentials, RefusedWithReason
from ketch.views.health import Check

if TYPE_CHECKING:
    from ketch.broker.server import Broker
    from ketch.lake.cold import Cold
    from ketch.lake.index import File, Snapshot

T = TypeVar("T")


def attached(broker: Broker, embedded: bool) -> Callable[[str | None], Console]:
    """What makes the broker's console, from the token that its users have to know.

    Args:
        embedded: whether the broker's Redis is its own.
    """
    sources = Sources(
        settings=lambda: broker.settings,
        driver=broker.log.driver,
        keys=broker.log.keys,
        redis=broker.redis,
        checks=partial(_checks, broker, embedded),
        defaults=broker.log.defaults,
        cluster_id=broker.cluster_id,
        nodes=lambda: broker.cluster.nodes,
        clients=lambda: [client.facts() for client in broker.clients],
        kafka=lambda: _bootstrap(broker),
        ask=Inside(broker, broker.apis).ask,
        knows=partial(_knows, broker),
        rights=partial(_rights, broker),
        tables=_Tables(broker),
    )
    return lambda token: Console(sources, token)


async def _checks(broker: Broker, embedded: bool) -> list[Check]:
    settings = broker.settings
    timeout = settings.redis_timeout_ms / 1000
    return await examine(broker.redis, timeout, embedded, settings.append, settings.keyspace)


async def _knows(broker: Broker, user: str, password: str) -> bool:
    """Whether a client could log in so; the answer takes as long for a user that there is not."""
    exchange = broker.mechanisms.exchange(PLAIN, broker.settings)
    try:
        await exchange.answer(f"\0{user}\0{password}".encode())
    except (InvalidCredentials, RefusedWithReason):
        return False
    return True


def _rights(broker: Broker, user: str, host: str) -> Rights | None:
    if broker.authorizer is None:
        return None
    return broker.authorizer.rights(Caller(f"User:{user}", "console", f"/{host}"))


def _bootstrap(broker: Broker) -> str:
    """Where a client on this machine connects."""
    first = broker.settings.announced(broker.ports.numbers)[0]
    return f"{bracketed(first.host)}:{first.port}"


class _Tables:
    """The archive's tables, see `console.sources.Tables`."""

    def __init__(self, broker: Broker) -> None:
        self._log = broker.log

    async def files(
        self, topic: str, first: int, count: int, partition: int | None
    ) -> tuple[int, Sequence[tuple[int, File]]]:
        return await self._of(topic, lambda cold: cold.files(first, count, partition)) or (0, ())

    async def snapshots(self, topic: str) -> Sequence[Snapshot]:
        return await self._of(topic, lambda cold: cold.snapshots()) or ()

    async def _of(self, name: str, work: Callable[[Cold], T]) -> T | None:
        """None where nothing is archived."""
        topic = await self._log.topics.get(name)
        return None if topic is None else await self._log.archived(topic, work)
