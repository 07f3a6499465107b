"""Brokers among others: that know each other, and that fall silent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ketch.broker.coordination.cluster import Cluster
from ketch.configs.settings import Settings
from ketch.log.log import Log
from ketch.redis.links import links
from ketch.redis.url import RedisAddress
from tests.support.kafka import Kafka
from tests.support.ketch import KetchServer, eventually


def acquainted(count: int, *servers: KetchServer) -> None:
    """Waits until each of the servers knows so many brokers."""
    for server in servers:
        with Kafka(server.port) as client:
            eventually(lambda client=client: len(client.metadata().brokers) == count)


class SilentBroker:
    """The parts of a broker that a coordinator needs, in this process. It listens nowhere.

    It sends no heartbeats after the first: it knows those brokers that were there when it came, and no later ones.
    """

    def __init__(self, url: str, keyspace: str, node: int) -> None:
        self.settings = Settings(node_id=node, keyspace=keyspace)
        self.log = Log(self.settings, links(RedisAddress.parse(url), self.settings.redis_timeout_ms / 1000))
        self.cluster = Cluster(self.settings, self.log)

    def stop(self) -> None:
        """Ends what a subclass has started."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.log.start()
        try:
            await self.cluster.join({"PLAINTEXT": 9092 + self.settings.node_id}, alone=False)
            yield
        finally:
            self.stop()
            await self.log.stop()
