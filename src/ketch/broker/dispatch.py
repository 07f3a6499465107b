"""The dispatch table: every API that is served, in which versions. ApiVersions is derived from it."""

from __future__ import annotations

from ketch.broker.api import Api
from ketch.broker.handlers import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    sync_group,
)

TABLE: dict[int, Api] = {
    api.key: api
    for api in (
        # librdkafka before 2.6 turns compression off unless Produce v0 is advertised (KAFKA-18659).
        Api(0, 0, 13, produce.handle, served=3),
        Api(1, 4, 16, fetch.handle),
        Api(2, 1, 9, list_offsets.handle),
        Api(3, 0, 12, metadata.handle),
        Api(8, 2, 9, offset_commit.handle),
        Api(9, 1, 9, offset_fetch.handle),
        Api(10, 0, 6, find_coordinator.handle),
        Api(11, 0, 9, join_group.handle),
        Api(12, 0, 4, heartbeat.handle),
        Api(13, 0, 5, leave_group.handle),
        Api(14, 0, 5, sync_group.handle),
        Api(15, 0, 6, describe_groups.handle),
        Api(16, 0, 5, list_groups.handle),
        Api(18, 0, 4, api_versions.handle),
        Api(19, 2, 7, create_topics.handle),
        Api(20, 1, 6, delete_topics.handle),
        Api(21, 0, 2, delete_records.handle),
        Api(22, 0, 5, init_producer_id.handle),
        Api(32, 1, 4, describe_configs.handle),
        Api(33, 0, 2, alter_configs.handle),
        Api(37, 0, 3, create_partitions.handle),
        Api(42, 0, 2, delete_groups.handle),
        Api(44, 0, 1, incremental_alter_configs.handle),
        Api(47, 0, 0, offset_delete.handle),
        Api(74, 0, 1, list_config_resources.handle),
        Api(75, 0, 0, describe_topic_partitions.handle),
    )
}
api_versions.TABLE = TABLE
