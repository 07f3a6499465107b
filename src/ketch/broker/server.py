"""The broker: listens, admits connections, owns what they share, and stops in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from ketch import metrics
from ketch.broker import expiry
from ketch.broker.access.authorizer import Authorizer
from ketch.broker.access.mechanisms import Mechanisms
from ketch.broker.alerts import RightsAlert, WritesAlert
from ketch.broker.connection import Connection
from ketch.broker.coordination.adoption import Adoption
from ketch.broker.coordination.assignments import Assignments
from ketch.broker.coordination.cluster import Cluster
from ketch.broker.coordination.groups import Groups
from ketch.broker.coordination.native_groups import NativeGroups
from ketch.broker.coordination.topic_images import TopicImages
from ketch.broker.coordination.transactions import Transactions
from ketch.broker.dispatch import TABLE
from ketch.broker.dynamic import DynamicConfigs
from ketch.broker.following import follow
from ketch.broker.ports import Ports
from ketch.broker.quotas import Quotas
from ketch.broker.refusals import Refusals
from ketch.broker.sessions import Sessions
from ketch.broker.sharing.departures import Departures
from ketch.broker.sharing.sessions import ShareSessions
from ketch.broker.telemetry import Telemetry
from ketch.broker.timekeeper import Timekeeper
from ketch.broker.tracing import open_tracer
from ketch.configs.settings import Settings
from ketch.connections.budget import Budget, Gate
from ketch.connections.room import ResponseRoom
from ketch.errors import KetchError
from ketch.lane import open_lane
from ketch.log.appending.notes import TopicNotes
from ketch.log.log import Log
from ketch.redis.links import links
from ketch.redis.url import RedisAddress
from ketch.security.acls import Operation

if TYPE_CHECKING:
    from ketch.lane import Lane

log = logging.getLogger(__name__)

# Records inflate, and as commands for Redis they grow again: so much may be on the way at a time, and one batch more.
_INFLATED_MAX = 64 << 20
_FAREWELL_S = 1.0  # for the peers of TLS connections to see their end
_STALLED_S = 30.0  # a request that has begun and stopped coming would hold its memory for ever


class Broker:
    """Serves Kafka clients from one Redis.

    Args:
        redis: where the log is.
    """

    def __init__(self, settings: Settings, redis: RedisAddress) -> None:
        self.settings = settings
        self.apis = TABLE
        self.redis = redis
        self.log = Log(settings, links(redis, settings.redis_timeout_ms / 1000))
        self.sessions = Sessions(settings.max_incremental_fetch_session_cache_slots, self.log.watcher.waiter)
        self.topic_notes = TopicNotes(self.log.topics)
        self.refusals = Refusals()
        self.assignments = Assignments()
        self.cluster = Cluster(settings, self.log)
        self._native_groups = NativeGroups(self.log, self.cluster, self.assignments, self.background)
        self.groups = Groups(settings, self.log, self.cluster, self._native_groups)
        self.departures = Departures(self.log, self.groups.configs, self.background)
        most = settings.group_share_max_share_sessions
        self.share_sessions = ShareSessions(most, self.log.watcher.waiter, self.departures.lost)
        self.transactions = Transactions(settings, self.log, self.cluster, self.groups, self.background)
        self.adoption = Adoption(self.log, self.background)
        self.topic_images = TopicImages(self.log.topics)
        self.dynamic = DynamicConfigs(settings, self.log, self._configure)
        self.quotas = Quotas(settings, self.log, lambda: len(self.cluster.nodes))
        self.telemetry = Telemetry(self.log, settings.broker_heartbeat_interval_ms / 1000)
        self.writes_alert = WritesAlert(self.log, self.background)
        self.rights_alert = RightsAlert()
        self.authorizer = Authorizer(settings, self.log) if settings.authorizes else None
        self.mechanisms = Mechanisms(settings, self.log)
        self.tracer = open_tracer(settings)
        self.timekeeper = Timekeeper(settings, self.tracer)
        metrics.limit_topics(settings.metrics_topics_max)
        self.budget = Budget(settings.queued_max_bytes)
        self.inflated = Gate(_INFLATED_MAX)
        self.responses = ResponseRoom()
        self.cluster_id = ""
        self.lane: Lane | None = None  # until it starts
        self.ports = Ports(settings, lambda listener: Connection(self, listener))
        self.http: str | None = None  # set by whoever opens it
        self._connections: set[Connection] = set()
        self._background: set[asyncio.Future[Any]] = set()

    async def start(self) -> None:
        """Connects to Redis and listens.

        Raises:
            StorageUnavailable: Redis can't be reached.
            ConfigError: the settings of a listener cannot be used.
            KetchError: a port can't be listened on, or another broker has the node id.
        """
        await self.log.start()
        self.cluster_id = await self.log.cluster_id()
        await self.dynamic.refresh()
        await self.quotas.refresh()
        await self.groups.configs.refresh()
        if self.authorizer is not None:
            await self.authorizer.refresh()
        self.mechanisms.check()
        self.lane = open_lane(self)
        await self.ports.open()
        await self.cluster.join(self.ports.numbers, alone=self.settings.redis is None)
        loop = asyncio.get_running_loop()
        self.background(loop.create_task(self.cluster.stay()))
        interval = self.settings.broker_heartbeat_interval_ms / 1000
        self.background(loop.create_task(follow(self.dynamic.refresh, interval, "broker configs")))
        self.background(loop.create_task(follow(self.quotas.refresh, interval, "quotas")))
        self.background(loop.create_task(follow(self.groups.configs.refresh, interval, "group configs")))
        self.background(loop.create_task(self.telemetry.stay()))
        if self.authorizer is not None:
            self.background(loop.create_task(self.authorizer.stay()))
        self.background(loop.create_task(self._close_idle()))
        self.background(loop.create_task(self._retain()))
        self.background(loop.create_task(self.transactions.run()))
        if self.settings.log_cleaner_enable:
            self.background(loop.create_task(self._compact()))

    def _configure(self, settings: Settings) -> None:
        self.settings = settings

    def admit(self, connection: Connection) -> bool:
        """Takes a new connection in; False where it has to go at once (`max.connections`), or is ignored already."""
        if len(self._connections) >= self.settings.max_connections:
            log.warning(
                "%s: connection refused: max_connections is %d", connection.client, self.settings.max_connections
            )
            metrics.connections_refused.inc()
            return False
        if self.quotas.in_force and self._is_one_too_many(connection):
            return False
        self._connections.add(connection)
        metrics.connections.set(len(self._connections))
        return True

    def _is_one_too_many(self, connection: Connection) -> bool:
        """Whether too many connections came from its address; then it is ignored, and closed soon (KIP-612)."""
        address = connection.peer.rpartition(":")[0]
        delay = self.quotas.connect(address)
        if delay:
            log.info("%s: too many connections from this address; closed in %.0f ms", connection.client, delay * 1000)
            metrics.connections_refused.inc()
            connection.ignore(delay)
        return bool(delay)

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        metrics.connections.set(len(self._connections))

    def allows_anonymous(self, host: str) -> Callable[[Operation, str, str], bool] | None:
        """What says whether a client of Kafka 0.7 at a host may do something; None: everything."""
        return None if self.authorizer is None else self.authorizer.anonymous(host)

    @property
    def ways(self) -> dict[str, str]:
        """How batches are appended now, and whether there is a lane, as the settings name them."""
        return {
            "append": "module" if self.log.watcher.module else "multi",
            "lane": "off" if self.lane is None else self.settings.lane,
        }

    @property
    def clients(self) -> Collection[Connection]:
        """The connections that are open."""
        return self._connections

    def background(self, work: asyncio.Future[Any]) -> None:
        """Keeps a task alive until it is done."""
        self._background.add(work)
        work.add_done_callback(self._background.discard)

    async def _close_idle(self) -> None:
        idle = self.settings.connections_max_idle_ms / 1000 or math.inf
        while True:
            await asyncio.sleep(min(idle / 2, _STALLED_S / 2))
            now = time.monotonic()
            for connection in list(self._connections):
                limit = _STALLED_S if connection.halfway else idle
                if now - connection.last_active > limit:
                    _note_silence(connection, limit)
                    connection.abort()

    async def _retain(self) -> None:
        while True:
            await asyncio.sleep(self.settings.retention_check_interval_ms / 1000)
            try:
                await self.log.sweep()
                await expiry.sweep(self)
                await self.transactions.expire()
            except KetchError as error:
                log.warning("retention: %s", error)
            except Exception:  # the next round must come all the same
                log.exception("retention")

    async def _compact(self) -> None:
        while True:
            await asyncio.sleep(self.settings.log_cleaner_backoff_ms / 1000)
            try:
                await self.log.compact(self.cluster.leads)
            except KetchError as error:
                log.warning("compaction: %s", error)
            except Exception:  # the next round must come all the same
                log.exception("compaction")

    async def drain(self) -> None:
        """Stops accepting, answers what is in flight, closes: within `drain_timeout_ms`, also where Redis hangs."""
        until = asyncio.get_running_loop().time() + self.settings.drain_timeout_ms / 1000
        with contextlib.suppress(TimeoutError):  # others will notice
            async with asyncio.timeout_at(until):
                await self.cluster.leave()
        self.ports.close()
        for connection in self._connections:
            connection.drain()
        self.log.watcher.close()
        self.groups.stop()
        self.transactions.stop()
        try:
            async with asyncio.timeout_at(until):
                while self._native_groups.busy or any(connection.busy for connection in self._connections):
                    await asyncio.sleep(0.01)
        except TimeoutError:
            log.warning("%d connections had requests in flight and were cut off", len(self._connections))
        await self._close()

    async def _close(self) -> None:
        await self._part_with_secured()
        for connection in list(self._connections):
            connection.abort()
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.log.stop()
        if self.tracer is not None:
            await asyncio.to_thread(self.tracer.stop)

    async def _part_with_secured(self) -> None:
        """Lets the last bytes of TLS connections out."""
        secured = {connection for connection in self._connections if connection.secured}
        for connection in secured:
            connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):
                while secured & self._connections:
                    await asyncio.sleep(0.01)

    def abort(self) -> None:
        """Stops at once."""
        self.ports.close()
        for connection in list(self._connections):
            connection.abort()


def _note_silence(connection: Connection, seconds: float) -> None:
    """Logs why a silent connection is closed."""
    if connection.halfway:
        log.info("%s: closed after %.0f s with half a request", connection.client, seconds)
    else:  # Kafka's Selector does not mention it either: a client keeps connections that it seldom uses
        log.debug("%s: closed after %.0f s without a word", connection.client, seconds)
