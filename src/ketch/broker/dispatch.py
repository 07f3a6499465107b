"""The dispatch table: every API that is served, in which versions. ApiVersions is derived from it."""

from __future__ import annotations

from ketch.broker.api import Api
from ketch.broker.handlers import (
    api_versions,
    create_topics,
    delete_topics,
    describe_configs,
    fetch,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)

TABLE: dict[int, Api] = {
    api.key: api
    for api in (
        # librdkafka before 2.6 turns compression off unless Produce v0 is advertised (KAFKA-18659).
        Api(0, 0, 12, produce.handle, served=3),
        Api(1, 4, 16, fetch.handle),
        Api(2, 1, 9, list_offsets.handle),
        Api(3, 0, 12, metadata.handle),
        Api(18, 0, 4, api_versions.handle),
        Api(19, 2, 7, create_topics.handle),
        Api(20, 1, 6, delete_topics.handle),
        Api(22, 0, 5, init_producer_id.handle),
        Api(32, 1, 4, describe_configs.handle),
    )
}
api_versions.TABLE = TABLE
