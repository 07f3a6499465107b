"""The dispatch table: every API that is served, in which versions. ApiVersions is derived from it."""

from __future__ import annotations

from ketch.broker.api import Api
from ketch.broker.errors import coordinator_error
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
        Api(0, "Produce", 0, 13, produce.handle, oldest_answered=3, carries_records=True),
        Api(1, "Fetch", 4, 16, fetch.handle),
        Api(2, "ListOffsets", 1, 9, list_offsets.handle),
        Api(3, "Metadata", 0, 12, metadata.handle),
        Api(8, "OffsetCommit", 2, 9, offset_commit.handle, codes=coordinator_error),
        Api(9, "OffsetFetch", 1, 9, offset_fetch.handle, codes=coordinator_error),
        Api(10, "FindCoordinator", 0, 6, find_coordinator.handle),
        Api(11, "JoinGroup", 0, 9, join_group.handle, codes=coordinator_error),
        Api(12, "Heartbeat", 0, 4, heartbeat.handle, codes=coordinator_error),
        Api(13, "LeaveGroup", 0, 5, leave_group.handle, codes=coordinator_error),
        Api(14, "SyncGroup", 0, 5, sync_group.handle, codes=coordinator_error),
        Api(15, "DescribeGroups", 0, 6, describe_groups.handle, codes=coordinator_error),
        Api(16, "ListGroups", 0, 5, list_groups.handle, codes=coordinator_error),
        Api(18, "ApiVersions", 0, 4, api_versions.handle, unknown_version=api_versions.unsupported),
        Api(19, "CreateTopics", 2, 7, create_topics.handle),
        Api(20, "DeleteTopics", 1, 6, delete_topics.handle),
        Api(21, "DeleteRecords", 0, 2, delete_records.handle),
        Api(22, "InitProducerId", 0, 5, init_producer_id.handle, codes=coordinator_error),
        Api(32, "DescribeConfigs", 1, 4, describe_configs.handle),
        Api(33, "AlterConfigs", 0, 2, alter_configs.handle),
        Api(37, "CreatePartitions", 0, 3, create_partitions.handle),
        Api(42, "DeleteGroups", 0, 2, delete_groups.handle, codes=coordinator_error),
        Api(44, "IncrementalAlterConfigs", 0, 1, incremental_alter_configs.handle),
        Api(47, "OffsetDelete", 0, 0, offset_delete.handle, codes=coordinator_error),
        Api(74, "ListConfigResources", 0, 1, list_config_resources.handle),
        Api(75, "DescribeTopicPartitions", 0, 0, describe_topic_partitions.handle),
    )
}
