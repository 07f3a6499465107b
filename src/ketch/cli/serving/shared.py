"""Gives /metrics what it may know of the broker: neither of the two packages imports the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ketch.monitoring.families import SharedMetrics
from ketch.monitoring.reading import Sources

if TYPE_CHECKING:
    from ketch.broker.server import Broker


def shared_metrics(broker: Broker) -> SharedMetrics:
    """What the broker shows of things that all brokers share."""
    cluster, settings = broker.cluster, broker.settings
    sources = Sources(
        driver=broker.log.driver,
        keys=broker.log.keys,
        topics=broker.log.topics,
        leads=cluster.leads,
        coordinates=cluster.coordinates,
        copies=broker.log.followers.of,
        partitions_max=settings.metrics_partitions_max,
        group_partitions_max=settings.metrics_group_partitions_max,
    )
    return SharedMetrics(sources, lambda: len(cluster.nodes))
