"""Metadata (3), versions 0 to 12: brokers and topics; those asked for by name are created where that is allowed.

Every broker on one Redis can serve every partition; each partition has one of them as its leader, so that they share
the work. It is the partition's first replica; where Redis has replicas, these follow it, with ids of their own and no
place among the brokers: `log.followers` says why. They are at most a second old, and none are shown that Redis took too
long to name. The controller, which clients ask to create and delete, is the one with the lowest node id.

Topics that the client may not describe are left out of the list of all; asked for by name they get
TOPIC_AUTHORIZATION_FAILED (29), there or not, and by id UNKNOWN_TOPIC_ID (100). One that would have to be created gets
29 where the client may not create it.

A topic that was just created is in the first answer already (Kafka has the client ask again).

Each broker has the address of the listener that the client came in by. One without such a listener is left out, and its
partitions have no leader: LISTENER_NOT_FOUND, LEADER_NOT_AVAILABLE up to version 5 (Kafka's KRaftMetadataCache).
"""

from __future__ import annotations

from functools import lru_cache
from uuid import UUID

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.describing import NOT_ASKED, authorized
from ketch.broker.errors import Refused, code_of
from ketch.broker.topics import ZERO_ID, find_topic
from ketch.broker.touches import CREATES_ON_DEMAND, LISTS_TOPIC, SHOWS_OPERATIONS
from ketch.errors import InvalidTopic, KetchError, UnknownTopicId, UnknownTopicOrPartition
from ketch.log.creation import create_on_demand
from ketch.log.followers import NONE, Shown
from ketch.security.acls import CLUSTER_NAME, ResourceType
from ketch.store.topics.topic import Topic, TopicKey, shown
from ketch.wire.responses import Body, Kept

NO_NODE = -1
_LISTENERS_SINCE = 6  # versions in which a partition can say that its leader lacks the listener
_NULL_NAMES_SINCE = 12  # topics can be asked for by id alone (KIP-516)


async def handle(request: Request) -> Answer:
    broker = request.broker
    nodes = broker.cluster.reached_by(request.caller.listener)
    return {
        "brokers": [{"node_id": node.id, "host": node.host, "port": node.port, "rack": None} for node in nodes],
        "cluster_id": broker.cluster_id,
        "controller_id": nodes[0].id if nodes else NO_NODE,
        "topics": await _topics(request),
        "cluster_authorized_operations": cluster_operations(request),
    }


def cluster_operations(request: Request) -> int:
    """What the caller may do with the cluster, where it asks for that; 0 where it may not describe it."""
    if not getattr(request.body, "include_cluster_authorized_operations", False):
        return NOT_ASKED
    denied = request.denial_by(SHOWS_OPERATIONS, CLUSTER_NAME)
    return 0 if denied else authorized(request, ResourceType.CLUSTER, CLUSTER_NAME)


def _operations(request: Request, topic: str) -> int:
    if not getattr(request.body, "include_topic_authorized_operations", False):
        return NOT_ASKED
    return authorized(request, ResourceType.TOPIC, topic)


async def _topics(request: Request) -> list[Body | Kept]:
    asked = request.body.topics
    if asked is None or (request.version == 0 and not asked):
        # Without Redis this raises, which closes the connection: there is no place for an error but in a topic, and a
        # list that looks complete and is not would be worse than none.
        topics = await request.broker.log.topics.all()
        return [await _describe(request, topic) for topic in topics if not request.denial_by(LISTS_TOPIC, topic.name)]
    ids = dict.fromkeys(topic.topic_id for topic in asked if getattr(topic, "topic_id", None))
    if ids:  # what is asked for by name is left out then, as Kafka does
        await request.broker.log.topics.prefetch(ids)
        return [await _by_id(request, topic_id) for topic_id in ids]
    names = dict.fromkeys(topic.name or "" for topic in asked)
    await request.broker.log.topics.prefetch(names)
    return [await _by_name(request, name) for name in names]


async def _by_id(request: Request, topic_id: UUID) -> Body | Kept:
    if request.version < _NULL_NAMES_SINCE:
        return _error(ErrorCode.invalid_request, "", topic_id)
    topic = await look_up(request, topic_id)
    return await _describe(request, topic) if isinstance(topic, Topic) else _error(topic, None, topic_id)


async def _by_name(request: Request, name: str) -> Body | Kept:
    topic = await look_up(request, name)
    # Versions 0 to 3 have no say in it.
    if topic is ErrorCode.unknown_topic_or_partition and getattr(request.body, "allow_auto_topic_creation", True):
        topic = await _create(request, name)
    return await _describe(request, topic) if isinstance(topic, Topic) else _error(topic, name)


async def look_up(request: Request, key: TopicKey) -> Topic | ErrorCode:
    """A topic, or the code that says that it cannot be described."""
    try:
        return await find_topic(request, key, legal=True)
    except (InvalidTopic, Refused, UnknownTopicId, UnknownTopicOrPartition) as error:
        return code_of(error)  # no line in the log: clients ask until a topic is there
    except KetchError as error:
        return request.refuse(shown(key), error, ErrorCode.leader_not_available)


async def _create(request: Request, name: str) -> Topic | ErrorCode:
    if request.broker.settings.auto_create_topics and (code := request.denial_by(CREATES_ON_DEMAND, name)):
        return code
    try:
        request.mutate(request.broker.settings.default_partitions, strict=False)
        return await create_on_demand(request.broker.log, request.broker.settings, name, request.client)
    except UnknownTopicOrPartition as error:
        return code_of(error)
    except InvalidTopic as error:
        return request.refuse(name, error)
    except KetchError as error:
        return request.refuse(name, error, ErrorCode.leader_not_available)


async def _describe(request: Request, topic: Topic) -> Kept:
    cluster = request.broker.cluster
    leaders, hidden = cluster.leaders(topic.id, topic.partitions), cluster.out_of_reach(request.caller.listener)
    followers = await request.broker.log.followers.of(topic)
    operations = _operations(request, topic.name)
    missing = ErrorCode.none
    if hidden:
        old = request.version < _LISTENERS_SINCE
        missing = ErrorCode.leader_not_available if old else ErrorCode.listener_not_found
    return _described(topic.name, topic.id, leaders, followers, operations, hidden, missing)


@lru_cache(4096)  # topics; some 30 bytes of each of their partitions are kept
def _described(
    name: str,
    topic_id: UUID,
    leaders: tuple[int, ...],
    followers: tuple[Shown, ...],
    operations: int,
    hidden: frozenset[int],
    missing: ErrorCode,
) -> Kept:
    def body() -> Body:
        pairs = zip(leaders, followers or (NONE,) * len(leaders), strict=True)
        return {
            "error_code": ErrorCode.none,
            "name": name,
            "topic_id": topic_id,
            "is_internal": False,
            "partitions": [
                partition(leader, index, each, hidden, missing) for index, (leader, each) in enumerate(pairs)
            ],
            "topic_authorized_operations": operations,
        }

    return Kept(body)


def partition(
    node: int, index: int, followers: Shown, hidden: frozenset[int], missing: ErrorCode = ErrorCode.none
) -> Body:
    """A partition that exists.

    Args:
        node: the broker that leads it.
        followers: its other replicas.
        hidden: the node ids of the brokers that have no address for this client.
        missing: the error of a partition whose leader is one of them.
    """
    away = node in hidden
    return {
        "error_code": missing if away else ErrorCode.none,
        "partition_index": index,
        "leader_id": NO_NODE if away else node,
        "leader_epoch": 0,
        "replica_nodes": (node, *followers.replicas),
        "isr_nodes": (node, *followers.in_sync),
        "offline_replicas": (node,) if away else (),
    }


def _error(code: ErrorCode, name: str | None, topic_id: UUID = ZERO_ID) -> Body:
    return {"error_code": code, "name": name, "topic_id": topic_id, "partitions": ()}
