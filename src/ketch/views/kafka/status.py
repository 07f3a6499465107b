"""A broker at a glance: `ketch status`. Asks the broker through the Kafka protocol, and the Redis that it names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ketch.errors import ConfigError, KetchError
from ketch.views.kafka import cluster, groups, topics
from ketch.views.kafka.asker import Redis
from ketch.views.kafka.cluster import Broker, Cluster
from ketch.views.server import RedisServer, server, together
from ketch.views.topics import Totals, figures, totals

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


@dataclass(frozen=True, slots=True)
class Status:
    """What was found; None for what is not known, and why in `failures`.

    Attributes:
        broker: that with the least node id.
        version: of Ketch; None where the broker is not Ketch.
        redis_address: where the broker's Redis is, as people read it.
        topics, partitions: how many there are.
        groups: how many there are in each state, as Kafka names it.
        held: records, bytes and archives of all topics.
    """

    broker: Broker
    version: str | None
    cluster: Cluster
    redis: RedisServer | None = None
    redis_address: str | None = None
    topics: int | None = None
    partitions: int | None = None
    groups: Mapping[str, int] | None = None
    held: Totals | None = None
    failures: tuple[KetchError, ...] = ()


class _Look:
    """One look, which goes on after a failure."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self.failures: list[KetchError] = []
        self.redis: Redis | None = None
        self.server: RedisServer | None = None
        self.topics: list[tuple[str, int]] | None = None
        self.groups: Counter[str] | None = None
        self.held: Totals | None = None

    def at_redis(self, redis: Callable[[], Redis]) -> None:
        try:
            found = redis()
            self.server, self.redis = together(found.ask_each(server)), found
        except ConfigError:
            raise
        except KetchError as error:
            self.failures.append(error)

    def at_topics(self) -> None:
        try:
            self.topics = topics.listed(self._admin)
            self.groups = Counter(group.state for group in groups.listed(self._admin))
            if self.redis is not None:
                self.held = totals(self.redis.ask(figures(self.redis.keys, self.topics)))
        except KetchError as error:
            self.failures.append(error)


def status(admin: AdminClient, redis: Callable[[], Redis]) -> Status:
    """The status of the broker that `admin` asks.

    Args:
        redis: gives the broker's Redis, or raises StorageUnavailable, which is then one of the failures.

    Raises:
        ClientError: the broker does not answer.
        ConfigError: what `redis` raises.
    """
    found = cluster.cluster(admin)
    first = found.brokers[0]
    facts = cluster.broker_facts(admin, first.id)
    look = _Look(admin)
    look.at_redis(redis)
    look.at_topics()
    return Status(
        broker=first,
        version=facts.version if facts else None,
        cluster=found,
        redis=look.server,
        redis_address=look.redis.address if look.redis else None,
        topics=len(look.topics) if look.topics is not None else None,
        partitions=sum(count for _, count in look.topics) if look.topics is not None else None,
        groups=look.groups,
        held=look.held,
        failures=tuple(look.failures),
    )
