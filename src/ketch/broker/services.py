"""What handlers may use of the broker: narrow protocols, one for each concern, and the sum of them.

The broker is built from its parts. This names the parts, not the broker itself, so imports go one way:
server -> connection -> dispatch -> handlers -> topics, committing -> api -> services -> the parts.

A function that serves one concern takes that concern's protocol. Only `Request.broker` has all of them. What is needed
here and missing is best a method of a part that is here already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ketch.broker.access.authorizer import Authorizer
from ketch.broker.alerts import RightsAlert, WritesAlert
from ketch.broker.coordination.adoption import Adoption
from ketch.broker.coordination.assignments import Assignments
from ketch.broker.coordination.cluster import Cluster
from ketch.broker.coordination.groups import Groups
from ketch.broker.coordination.topic_images import TopicImages
from ketch.broker.coordination.transactions import Transactions
from ketch.broker.dynamic import DynamicConfigs
from ketch.broker.ports import Ports
from ketch.broker.quotas import Quotas
from ketch.broker.refusals import Refusals
from ketch.broker.sessions import Sessions
from ketch.broker.sharing.departures import Departures
from ketch.broker.sharing.sessions import ShareSessions
from ketch.broker.telemetry import Telemetry
from ketch.broker.timekeeper import Timekeeper
from ketch.broker.tracing import Tracer
from ketch.configs.settings import Settings
from ketch.connections.budget import Gate
from ketch.connections.room import ResponseRoom
from ketch.log.appending.notes import TopicNotes
from ketch.log.log import Log
from ketch.redis.url import RedisAddress


class Stored(Protocol):
    """The log, the Redis that it is in, and the settings as they are now."""

    settings: Settings
    redis: RedisAddress
    log: Log


class Appending(Stored, Protocol):
    """What Produce takes.

    Attributes:
        topic_notes: keeps what the log learns of a topic from its batches.
        refusals: what idempotent producers are told of a batch that comes again.
        inflated: bounds the records that lie decompressed.
        writes_alert: says that Redis takes no writes.
        rights_alert: says that Redis does not let this broker do what it needs.
    """

    topic_notes: TopicNotes
    refusals: Refusals
    inflated: Gate
    writes_alert: WritesAlert
    rights_alert: RightsAlert


class Fetching(Stored, Protocol):
    """What Fetch takes.

    Attributes:
        sessions: the incremental fetch sessions.
        share_sessions: those of share groups' members.
        departures: gives back what such a member holds.
        responses: bounds what fetches read and give.
    """

    sessions: Sessions
    share_sessions: ShareSessions
    departures: Departures
    responses: ResponseRoom


class Coordinating(Stored, Protocol):
    """Groups, transactions, and the brokers that share them.

    Attributes:
        assignments: which member of a group reads which partition.
        adoption: finds commits that another Redis client has set.
        topic_images: the topics that consumer groups assign.
    """

    cluster: Cluster
    groups: Groups
    transactions: Transactions
    assignments: Assignments
    adoption: Adoption
    topic_images: TopicImages


class Configured(Stored, Protocol):
    """What APIs of configs show and change.

    Attributes:
        dynamic: broker configs that change while it runs; `settings` has their values.
        telemetry: what clients are to push of their metrics, and have pushed.
        ports: those that are listened on.
        http: the URL of the HTTP port; None while there is none.
    """

    dynamic: DynamicConfigs
    telemetry: Telemetry
    ports: Ports
    http: str | None


class Offer(Protocol):
    """What ApiVersions says of a row of the dispatch table; `api.Api` is one."""

    @property
    def key(self) -> int: ...

    @property
    def oldest(self) -> int: ...

    @property
    def newest(self) -> int: ...

    @property
    def offered(self) -> Callable[[Services], bool] | None: ...


class Limited(Protocol):
    """What limits its clients.

    Attributes:
        quotas: how much each may use.
    """

    quotas: Quotas


class Services(Limited, Appending, Fetching, Coordinating, Configured, Protocol):
    """The parts of a broker.

    Attributes:
        cluster_id: the id of all brokers on this keyspace.
        authorizer: says what clients may do; None: everything.
        timekeeper: notes how long requests took.
        tracer: makes the spans of traced records; None where none are wanted.
    """

    cluster_id: str
    tracer: Tracer | None
    timekeeper: Timekeeper
    authorizer: Authorizer | None

    @property
    def apis(self) -> Mapping[int, Offer]:
        """The dispatch table, by API key."""
