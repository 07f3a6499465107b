"""WriteTxnMarkers (27), versions 1 and 2: ends transactions on partitions, as an administrator asks.

Kafka's coordinators send it to the leaders of partitions; Ketch's write markers themselves. So it comes from
`kafka-transactions.sh abort` and AdminClient.abortTransaction alone, which end a transaction that no coordinator knows.
Any broker takes it. A marker for a transaction that is not open is no error, and nothing is written. Version 2 may name
the version of the protocol, which changes nothing here.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.topics import find_partition
from ketch.errors import KetchError
from ketch.records.control import Marker
from ketch.wire.responses import Body

_WHENEVER = 2**53  # ms: the transaction may have begun at any time


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not alter the cluster."""
    markers = [
        {
            "producer_id": marker.producer_id,
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [{"partition_index": index, "error_code": code} for index in topic.partition_indexes],
                }
                for topic in marker.topics
            ],
        }
        for marker in request.body.markers
    ]
    return {"markers": markers}


async def handle(request: Request) -> Answer:
    return {"markers": [await _marker(request, marker) for marker in request.body.markers]}


async def _marker(request: Request, asked: Any) -> Body:
    marker = Marker(
        asked.producer_id, asked.producer_epoch, asked.transaction_result, _WHENEVER, asked.coordinator_epoch
    )
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": index, "error_code": await _write(request, topic.name, index, marker)}
                for index in topic.partition_indexes
            ],
        }
        for topic in asked.topics
    ]
    return {"producer_id": asked.producer_id, "topics": topics}


async def _write(request: Request, topic: str, index: int, marker: Marker) -> ErrorCode:
    try:
        await request.broker.log.end_transaction(await find_partition(request, topic, index), marker)
    except KetchError as error:
        return request.refuse(f"{topic}-{index}", error)
    return ErrorCode.none
