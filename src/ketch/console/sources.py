"""What the console knows of the broker that it runs beside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ketch.configs.settings import Settings
from ketch.redis.driver import Driver
from ketch.redis.url import RedisAddress
from ketch.security.acls import Operation, ResourceType
from ketch.security.rules import Decision
from ketch.store.cluster.brokers import Node
from ketch.store.keys import Keyspace
from ketch.views.health import Check

if TYPE_CHECKING:  # they need pyiceberg
    from ketch.lake.index import File, Snapshot


class Client(Protocol):
    """A connection of a Kafka client; see `broker.connection.ClientFacts`."""

    @property
    def peer(self) -> str: ...
    @property
    def client_id(self) -> str: ...
    @property
    def principal(self) -> str: ...
    @property
    def listener(self) -> str: ...
    @property
    def software(self) -> tuple[str, str]: ...
    @property
    def idle(self) -> float: ...
    @property
    def held(self) -> int: ...


class Ask(Protocol):
    """Sends the broker a request of Kafka's protocol; see `broker.inside.Inside.ask`."""

    def __call__(
        self, body: Any, host: str, report: Callable[[str], None], user: str | None = None
    ) -> Awaitable[dict[str, Any]]: ...


class Rights(Protocol):
    """What a user may do; see `broker.access.authorizer.Rights`."""

    def decide(self, operation: Operation, resource: ResourceType, name: str | None) -> Decision: ...


class Tables(Protocol):
    """The archive's tables, read by the threads and through the index by which the broker serves archived records.

    Both raise StorageUnavailable where a table cannot be read.
    """

    async def files(
        self, topic: str, first: int, count: int, partition: int | None
    ) -> tuple[int, Sequence[tuple[int, File]]]:
        """How many data files there are, and some with their partitions; see `lake.index.Index.some`."""

    async def snapshots(self, topic: str) -> Sequence[Snapshot]:
        """The newest first."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The broker, as far as the console may see it.

    Attributes:
        settings: as they are now.
        driver, keys: the way to Redis, for views.
        redis: where it is.
        defaults: of topic configs, as they are now.
        cluster_id: Kafka's.
        nodes: the live brokers by node id, this one included.
        clients: the connections that are open.
        checks: looks whether Redis is fit, as `ketch doctor` does, over connections of its own.
        kafka: where Kafka's clients connect, HOST:PORT.
        ask: the way to the broker's APIs.
        knows: whether this is the password of a user.
        rights: what a user at an address may do; None where nobody is asked.
        tables: the archive's.
    """

    settings: Callable[[], Settings]
    driver: Driver
    keys: Keyspace
    redis: RedisAddress
    defaults: Mapping[str, str]
    cluster_id: str
    nodes: Callable[[], Sequence[Node]]
    clients: Callable[[], Sequence[Client]]
    checks: Callable[[], Awaitable[list[Check]]]
    kafka: Callable[[], str]
    ask: Ask
    knows: Callable[[str, str], Awaitable[bool]]
    rights: Callable[[str, str], Rights | None]
    tables: Tables
