"""What a handler may use of the broker: a narrow protocol.

The broker is built from its parts. This names the parts, not the broker itself, so imports go one way:
server -> connection -> dispatch -> handlers -> api -> services -> the parts.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from ketch.broker.alerts import WritesAlert
from ketch.broker.coordination.adoption import Adoption
from ketch.broker.coordination.assignments import Assignments
from ketch.broker.coordination.cluster import Cluster
from ketch.broker.coordination.groups import Groups
from ketch.broker.coordination.transactions import Transactions
from ketch.broker.dynamic import DynamicConfigs
from ketch.broker.sessions import Sessions
from ketch.broker.telemetry import Telemetry
from ketch.configs.settings import Settings
from ketch.connections.budget import Gate
from ketch.log.appending.notes import TopicNotes
from ketch.log.log import Log
from ketch.redis.url import RedisAddress


class Services(Protocol):
    """The parts of a broker, and what it does for handlers across them.

    Attributes:
        apis: the dispatch table: `api.Api` by API key.
        redis: where the log is.
        dynamic: broker configs that change while it runs; `settings` has their values.
        adoption: finds commits that another Redis client has set.
        topic_notes: keeps what the log learns of a topic from its batches.
        assignments: which member of a group reads which partition.
        telemetry: what clients are to push of their metrics, and have pushed.
        writes_alert: says that Redis takes no writes.
        inflated: bounds the records that lie decompressed.
        fetching, fetching_cold: bound how many fetches read at a time, from Redis and from the archive.
        unsent: bytes of responses being made, or that peers do not take.
        cluster_id: the id of all brokers on this keyspace.
        port: the one that is listened on.
    """

    settings: Settings
    apis: dict[int, Any]
    redis: RedisAddress
    log: Log
    sessions: Sessions
    topic_notes: TopicNotes
    assignments: Assignments
    cluster: Cluster
    groups: Groups
    transactions: Transactions
    adoption: Adoption
    dynamic: DynamicConfigs
    telemetry: Telemetry
    writes_alert: WritesAlert
    inflated: Gate
    fetching: asyncio.Semaphore
    fetching_cold: asyncio.Semaphore
    unsent: int
    cluster_id: str
    port: int

    @property
    def fetch_room(self) -> int:
        """Bytes that a fetch may give now."""

    def background(self, work: asyncio.Future[Any]) -> None:
        """Keeps a task alive until it is done."""
