"""The brokers of a cluster, and what a Ketch broker says of itself. Asks through the Kafka protocol."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ketch.views.kafka import topics
from ketch.views.kafka.answers import TIMEOUT, ClientError, result

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker as Metadata names it to clients."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """Kafka's cluster id, and its brokers by id."""

    id: str
    brokers: tuple[Broker, ...]


def cluster(admin: AdminClient) -> Cluster:
    """The brokers that live now. Costs little however many topics there are.

    Raises:
        ClientError: no answer.
    """
    found = result(admin.describe_cluster(request_timeout=TIMEOUT), "The cluster cannot be described")
    brokers = sorted((Broker(node.id, node.host, node.port) for node in found.nodes), key=lambda broker: broker.id)
    if not brokers:
        raise ClientError("The cluster cannot be described: the broker that answered knows none.")
    return Cluster(found.cluster_id, tuple(brokers))


@dataclass(frozen=True, slots=True)
class LeadingBroker:
    """A broker, and how many partitions it leads."""

    id: int
    host: str
    port: int
    leads: int


def leaders(admin: AdminClient, of: Cluster) -> list[LeadingBroker]:
    """The brokers with the partitions that each leads; raises ClientError where there is no answer."""
    found = topics.metadata(admin).topics.values()
    leads = Counter(partition.leader for topic in found for partition in topic.partitions.values())
    return [LeadingBroker(broker.id, broker.host, broker.port, leads[broker.id]) for broker in of.brokers]


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What a Ketch broker says of itself; `redis` is a URL without user and password."""

    node_id: int
    version: str
    redis: str
    keyspace: str


def broker_facts(admin: AdminClient, node_id: int | None = None) -> BrokerFacts | None:
    """What a broker says of itself, by default the one with the least node id; None where it is not Ketch.

    Raises:
        ClientError: no answer.
    """
    node = cluster(admin).brokers[0].id if node_id is None else node_id
    own = {name: value for name, value in broker_configs(admin, node).items() if name.startswith("ketch.")}
    if "ketch.redis" not in own:
        return None
    return BrokerFacts(node, own["ketch.version"], own["ketch.redis"], own["ketch.keyspace"])


def broker_configs(admin: AdminClient, node_id: int | None = None) -> dict[str, str]:
    """The configs of a broker, of any Kafka, by default of the one with the least node id; "" is one without a value.

    Raises:
        ClientError: no answer, or they may not be seen.
    """
    from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

    node = cluster(admin).brokers[0].id if node_id is None else node_id
    asked = [ConfigResource(ResourceType.BROKER, str(node))]
    (future,) = admin.describe_configs(asked, request_timeout=TIMEOUT).values()
    found = result(future, f"Broker {node} cannot be described")
    return {name: str(entry.value or "") for name, entry in found.items()}
