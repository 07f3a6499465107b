"""`ketch serve --legacy-port`: the port for Kafka 0.7 clients, and with `--zookeeper` the broker's entries there.

It owns the listening socket, the connections, and the task that keeps ZooKeeper up to date with the topics. The broker
knows nothing of it: `cli.commands.serve` starts it beside the broker and stops it first.
"""

from __future__ import annotations

import asyncio
import logging
import time

from ketch import metrics
from ketch.errors import KetchError, reason
from ketch.legacy07.bytelog import ByteLogs
from ketch.legacy07.connection import Connection, Host
from ketch.legacy07.numbers import Numbers
from ketch.legacy07.registry import Registry
from ketch.legacy07.service import Service
from ketch.legacy07.topics import WatchedTopics
from ketch.store.topics.topic import Topic

log = logging.getLogger(__name__)

_BACKLOG = 1024
_STALLED_S = 30.0  # a request that has begun and stopped coming would hold its memory for ever
_ACQUAINTED_BEATS = 2  # heartbeats after which brokers that were started together know each other
_AT_ONCE = 100  # topics whose brokers are asked for at one time


class LegacyListener:
    """The 0.7 side of one broker.

    Args:
        host: the broker, which has started.
        port: to listen on; 0 is any free one.

    Attributes:
        port: the one that is listened on.
    """

    def __init__(self, host: Host, port: int) -> None:
        self._host, self.port = host, port
        self._settings = host.settings
        registered = self._settings.zookeeper is not None
        self._numbers = Numbers(host.log, host.cluster, self._settings.node_id, registered)
        self._wake = asyncio.Event()
        self._logs = ByteLogs(
            host.log, host.topic_notes, self._settings.socket_request_max_bytes, self._settings.legacy_magic
        )
        self._service = Service(host, self._logs, self._numbers, self._wake.set)
        self._topics = WatchedTopics(host.log)
        self._counted: tuple[list[Topic], dict[str, int]] = [], {}  # topics, and how many partitions each has here
        self._registry: Registry | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Listens, and begins to register.

        Raises:
            KetchError: the port can't be listened on.
            ConfigError: the setting `zookeeper` is wrong.
        """
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: Connection(self._host, self._service, self),
                self._settings.legacy_address,
                self.port,
                backlog=_BACKLOG,
            )
        except OSError as error:
            where = f"{self._settings.legacy_address}:{self.port}"
            raise KetchError(
                f"Cannot listen on {where} for Kafka 0.7: {reason(error)}; --legacy-port chooses another."
            ) from None
        self.port = self._server.sockets[0].getsockname()[1]
        self._tasks.append(loop.create_task(self._watch_connections()))
        if self._settings.zookeeper is not None:
            address = self._settings.announced({})[0].host
            timeout = self._settings.zookeeper_session_timeout_ms / 1000
            zookeeper, broker_id = self._settings.zookeeper, self._settings.node_id
            self._registry = Registry(zookeeper, broker_id, address, self.port, timeout, self._wake.set)
            self._registry.start()
            self._tasks.append(loop.create_task(self._register(self._registry)))

    # -- connections

    def admit(self, connection: Connection) -> bool:
        """Whether a new connection may stay: `max_connections` counts those of this port by themselves."""
        if len(self._connections) >= self._settings.max_connections:
            most = self._settings.max_connections
            log.warning("%s: connection refused: max_connections is %d", connection.client, most)
            metrics.connections_refused.inc()
            return False
        self._connections.add(connection)
        metrics.legacy_connections.set(len(self._connections))
        return True

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        self._connections.discard(connection)
        metrics.legacy_connections.set(len(self._connections))

    async def _watch_connections(self) -> None:
        """Closes those that stopped in the middle of a request, or do not take what they asked for."""
        unread = self._settings.connections_max_idle_ms / 1000
        while True:
            await asyncio.sleep(min(_STALLED_S, unread or _STALLED_S) / 2)
            now = time.monotonic()
            for connection in list(self._connections):
                silent = now - connection.last_active
                if (connection.halfway and silent > _STALLED_S) or (connection.unread and unread and silent > unread):
                    what = "half a request" if connection.halfway else "a response that is not read"
                    log.info("%s: closed after %.0f s with %s", connection.client, silent, what)
                    connection.abort()

    # -- ZooKeeper

    async def _register(self, registry: Registry) -> None:
        pause = self._settings.broker_heartbeat_interval_ms / 1000
        beats = _ACQUAINTED_BEATS if self._settings.redis is not None else 0  # of other brokers, which share the topics
        acquainted = time.monotonic() + beats * pause
        while True:
            await registry.connected()
            try:
                counts = await self._counts() if time.monotonic() >= acquainted else {}
                if await registry.publish(counts):
                    self._numbers.registered = registry.registered
                    await self._pause(pause)
            except KetchError as error:
                log.debug("topics for ZooKeeper: %s", error)
                await asyncio.sleep(pause)
            except Exception:  # the next round must come all the same
                log.exception("ZooKeeper")
                await asyncio.sleep(pause)

    async def _pause(self, seconds: float) -> None:
        """Until there is something new in ZooKeeper or among the topics, or that long."""
        waits = [asyncio.ensure_future(each) for each in (self._wake.wait(), self._topics.changed(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._wake.clear()

    async def _counts(self) -> dict[str, int]:
        """The topics with partitions on this broker, and how many; compacted ones are not for 0.7 (`bytelog`)."""
        topics = await self._topics.all()
        if topics is not self._counted[0]:
            self._numbers.keep(topics)
            here, counts = [topic for topic in topics if not topic.compacts], dict[str, int]()
            for start in range(0, len(here), _AT_ONCE):
                some = here[start : start + _AT_ONCE]
                numbers = await asyncio.gather(*map(self._numbers.mine, some))
                counts |= {topic.name: len(each) for topic, each in zip(some, numbers, strict=True) if each}
            self._counted = topics, counts
        return self._counted[1]

    # -- the end

    async def drain(self) -> None:
        """Leaves ZooKeeper, stops accepting, serves what has come in (within `drain_timeout_ms`), closes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._registry is not None:
            await self._registry.stop()
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.drain()
        try:
            async with asyncio.timeout(self._settings.drain_timeout_ms / 1000):
                while any(connection.busy for connection in self._connections):
                    await asyncio.sleep(0.01)
        except TimeoutError:
            log.warning("%d connections of Kafka 0.7 clients were cut off", len(self._connections))
        self.abort()

    def abort(self) -> None:
        """Closes everything at once."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()
