"""One side of a copy: a Kafka cluster, and the librdkafka clients of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ketch.cli import client
from ketch.views.kafka import cluster

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


@dataclass(frozen=True)
class Cluster:
    """A cluster that is copied from or to.

    Attributes:
        login: how to log in there, as librdkafka has it; None: as the command says.
    """

    bootstrap: str
    login: Mapping[str, Any] | None = None

    @cached_property
    def admin(self) -> AdminClient:
        """Raises as `client.admin`."""
        return client.admin(self.bootstrap, login=self.login)

    @cached_property
    def id(self) -> str:
        """Kafka's cluster id; raises ClientError where there is no answer."""
        return cluster.cluster(self.admin).id

    @cached_property
    def is_ketch(self) -> bool:
        """Whether a Ketch answers there; raises ClientError where there is no answer."""
        return cluster.broker_facts(self.admin) is not None

    def configuration(self) -> dict[str, Any]:
        """librdkafka's properties; raises as `client.configuration`."""
        return client.configuration(self.bootstrap, login=self.login)
