"""What each API touches, by Kafka's rules: a constant for each row of the dispatch table, which names it.

The rules are those of KafkaApis and ControllerApis in Kafka 4.1. Kafka's documentation has other ones for Produce
(IDEMPOTENT_WRITE) and ElectLeaders (CLUSTER_ACTION); there the code counts. Rules stand in the order in which Kafka
asks. The table in docs/protocol.md is made of them (`scripts/access_table.py`).

Each rule says what a denial does (`resources.Denial`): `whole` refuses the request, `asked` has the handler ask;
without either a denied name has its own error in the answer. Rules that handlers ask for have a name of their own here.
"""

from __future__ import annotations

from typing import Any

from ketch.broker.resources import (
    ConfigType,
    Rule,
    Touch,
    asked,
    on_cluster,
    on_groups,
    on_some_topic,
    on_topics,
    on_transactional_ids,
    one_of,
    whole,
)
from ketch.security.acls import Operation, ResourceType

_LISTED = "each in the list"
_SHOWN = "for its operations"


def _creates(body: Any) -> bool:
    """Whether a Metadata request may create topics; versions 0 to 3 have no say in it."""
    return getattr(body, "allow_auto_topic_creation", True)


def _shows_operations(body: Any) -> bool:
    return getattr(body, "include_cluster_authorized_operations", False)


def _seeks(kind: int, body: Any) -> bool:
    """Whether a FindCoordinator is about a group (0), a transactional id (1) or a share partition (2).

    Version 0 knows groups alone.
    """
    return getattr(body, "key_type", 0) == kind


def _is_of_a_broker(body: Any) -> bool:
    """Whether an AddPartitionsToTxn is of version 4 or later, which are for brokers (KIP-890)."""
    return hasattr(body, "transactions")


def _is_not_transactional(body: Any) -> bool:
    return body.transactional_id is None


def _is_about_brokers(body: Any) -> bool:
    """Whether any config is of a broker, its loggers or client metrics: those are the cluster's."""
    return any(each.resource_type not in (ConfigType.TOPIC, ConfigType.GROUP) for each in body.resources)


def _configs(operation: Operation) -> tuple[Rule, ...]:
    names = ("resources.resource_name",)
    return (
        Touch(operation, ResourceType.TOPIC, names, ConfigType.TOPIC),
        Touch(operation, ResourceType.GROUP, names, ConfigType.GROUP),
        on_cluster(operation, when=_is_about_brokers, note="brokers, client metrics"),
    )


Rules = tuple[Rule, ...]

NOTHING: Rules = ()  # everyone may ask it, in Kafka too

# -- rules that handlers ask for

CREATES_ON_DEMAND = asked(
    one_of(
        on_cluster(Operation.CREATE, when=_creates),
        on_topics(Operation.CREATE, "topics.name", when=_creates, note="new ones"),
    )
)
SHOWS_CONFIGS = asked(on_topics(Operation.DESCRIBE_CONFIGS, "topics.name", note="for its configs"))
SHOWS_OPERATIONS = asked(on_cluster(Operation.DESCRIBE, when=_shows_operations, note=_SHOWN))
LISTS_TOPIC = asked(on_topics(Operation.DESCRIBE, note=_LISTED))
LISTS_GROUP = asked(one_of(on_cluster(Operation.DESCRIBE), on_groups(Operation.DESCRIBE, note=_LISTED)))
LISTS_TRANSACTIONAL_ID = asked(on_transactional_ids(Operation.DESCRIBE, note=_LISTED))

# -- records

PRODUCE: Rules = (
    whole(on_transactional_ids(Operation.WRITE, "transactional_id")),
    on_topics(Operation.WRITE, "topic_data.name", "topic_data.topic_id"),
)
# As a consumer's: that of a follower needs CLUSTER_ACTION in Kafka, but here nobody is one, whatever the request says.
FETCH: Rules = (on_topics(Operation.READ, "topics.topic", "topics.topic_id", note="those of its session too"),)
LIST_OFFSETS: Rules = (on_topics(Operation.DESCRIBE, "topics.name"),)
OFFSET_FOR_LEADER_EPOCH: Rules = (
    one_of(on_cluster(Operation.CLUSTER_ACTION), on_topics(Operation.DESCRIBE, "topics.topic")),
)
DELETE_RECORDS: Rules = (on_topics(Operation.DELETE, "topics.name"),)
DESCRIBE_PRODUCERS: Rules = (on_topics(Operation.READ, "topics.name"),)

SHARE_FETCH: Rules = (
    whole(on_groups(Operation.READ, "group_id")),
    on_topics(Operation.READ, "topics.topic_id", note="those of its session too"),
)
SHARE_ACKNOWLEDGE: Rules = (whole(on_groups(Operation.READ, "group_id")), on_topics(Operation.READ, "topics.topic_id"))

# -- topics

METADATA: Rules = (
    on_topics(Operation.DESCRIBE, "topics.name", "topics.topic_id"),
    LISTS_TOPIC,
    CREATES_ON_DEMAND,
    SHOWS_OPERATIONS,
)
DESCRIBE_TOPIC_PARTITIONS: Rules = (
    on_topics(Operation.DESCRIBE, "topics.name", "cursor.topic_name"),
    LISTS_TOPIC,
)
CREATE_TOPICS: Rules = (
    one_of(on_cluster(Operation.CREATE), on_topics(Operation.CREATE, "topics.name")),
    SHOWS_CONFIGS,
)
DELETE_TOPICS: Rules = (
    one_of(
        on_cluster(Operation.DELETE),  # which only an ACL for all operations can grant
        on_topics(Operation.DELETE, "topic_names", "topics.name", "topics.topic_id"),
    ),
)
CREATE_PARTITIONS: Rules = (on_topics(Operation.ALTER, "topics.name"),)

# -- groups

MEMBERSHIP: Rules = (whole(on_groups(Operation.READ, "group_id")),)  # of JoinGroup, SyncGroup, Heartbeat and LeaveGroup
OFFSET_COMMIT: Rules = (whole(on_groups(Operation.READ, "group_id")), on_topics(Operation.READ, "topics.name"))
OFFSET_FETCH: Rules = (
    on_groups(Operation.DESCRIBE, "group_id", "groups.group_id"),
    on_topics(Operation.DESCRIBE, "topics.name", "groups.topics.name"),
    LISTS_TOPIC,
)
OFFSET_DELETE: Rules = (whole(on_groups(Operation.DELETE, "group_id")), on_topics(Operation.READ, "topics.name"))
FIND_COORDINATOR: Rules = (
    on_groups(Operation.DESCRIBE, "key", "coordinator_keys", when=lambda body: _seeks(0, body)),
    on_transactional_ids(Operation.DESCRIBE, "key", "coordinator_keys", when=lambda body: _seeks(1, body)),
    on_cluster(Operation.CLUSTER_ACTION, when=lambda body: _seeks(2, body), note="share partitions"),
)
CONSUMER_GROUP_HEARTBEAT: Rules = (
    whole(on_groups(Operation.READ, "group_id")),
    whole(on_topics(Operation.DESCRIBE, "subscribed_topic_names")),
    LISTS_TOPIC,
)
CONSUMER_GROUP_DESCRIBE: Rules = (on_groups(Operation.DESCRIBE, "group_ids"), LISTS_TOPIC)
SHARE_GROUP_HEARTBEAT: Rules = CONSUMER_GROUP_HEARTBEAT
SHARE_GROUP_DESCRIBE: Rules = CONSUMER_GROUP_DESCRIBE
DESCRIBE_SHARE_GROUP_OFFSETS: Rules = (
    on_groups(Operation.DESCRIBE, "groups.group_id"),
    on_topics(Operation.DESCRIBE, "groups.topics.topic_name"),
    LISTS_TOPIC,
)
ALTER_SHARE_GROUP_OFFSETS: Rules = (
    whole(on_groups(Operation.READ, "group_id")),
    on_topics(Operation.READ, "topics.topic_name"),
)
DELETE_SHARE_GROUP_OFFSETS: Rules = (
    whole(on_groups(Operation.DELETE, "group_id")),
    on_topics(Operation.READ, "topics.topic_name"),
)
DESCRIBE_GROUPS: Rules = (on_groups(Operation.DESCRIBE, "groups"),)
LIST_GROUPS: Rules = (LISTS_GROUP,)
DELETE_GROUPS: Rules = (on_groups(Operation.DELETE, "groups_names"),)

# -- transactions

INIT_PRODUCER_ID: Rules = (
    whole(on_transactional_ids(Operation.WRITE, "transactional_id")),
    whole(
        one_of(
            on_cluster(Operation.IDEMPOTENT_WRITE, when=_is_not_transactional),
            on_some_topic(Operation.WRITE, when=_is_not_transactional),
        )
    ),
)
ADD_PARTITIONS_TO_TXN: Rules = (
    whole(on_transactional_ids(Operation.WRITE, "v3_and_below_transactional_id")),
    whole(on_cluster(Operation.CLUSTER_ACTION, when=_is_of_a_broker, note="alone from version 4 on")),
    on_topics(Operation.WRITE, "v3_and_below_topics.name"),
)
ADD_OFFSETS_TO_TXN: Rules = (
    whole(on_transactional_ids(Operation.WRITE, "transactional_id")),
    whole(on_groups(Operation.READ, "group_id")),
)
TXN_OFFSET_COMMIT: Rules = (*ADD_OFFSETS_TO_TXN, on_topics(Operation.READ, "topics.name"))
END_TXN: Rules = (whole(on_transactional_ids(Operation.WRITE, "transactional_id")),)
WRITE_TXN_MARKERS: Rules = (whole(one_of(on_cluster(Operation.ALTER), on_cluster(Operation.CLUSTER_ACTION))),)
DESCRIBE_TRANSACTIONS: Rules = (on_transactional_ids(Operation.DESCRIBE, "transactional_ids"), LISTS_TOPIC)
LIST_TRANSACTIONS: Rules = (LISTS_TRANSACTIONAL_ID,)

# -- configs, and the cluster

DESCRIBE_CONFIGS: Rules = _configs(Operation.DESCRIBE_CONFIGS)
ALTER_CONFIGS: Rules = _configs(Operation.ALTER_CONFIGS)
CONFIGS_OF_CLUSTER: Rules = (whole(on_cluster(Operation.DESCRIBE_CONFIGS)),)
ALTERS_CONFIGS_OF_CLUSTER: Rules = (whole(on_cluster(Operation.ALTER_CONFIGS)),)
DESCRIBES_CLUSTER: Rules = (whole(on_cluster(Operation.DESCRIBE)),)
ALTERS_CLUSTER: Rules = (whole(on_cluster(Operation.ALTER)),)
DESCRIBE_CLUSTER: Rules = (SHOWS_OPERATIONS,)
