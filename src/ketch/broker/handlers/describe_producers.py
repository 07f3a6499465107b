"""DescribeProducers (61), version 0: the idempotent producers of partitions, and their open transactions (KIP-664).

Only the leader answers, as in Kafka. Writers that are no Kafka producers (Spark's) have no number and are left out. The
coordinator's epoch is always 0 here, -1 for a producer without transactions.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.errors import Refused
from ketch.broker.topics import find_partition
from ketch.errors import KetchError
from ketch.store.append import markers, producers
from ketch.store.append.markers import OpenTransaction
from ketch.store.append.producers import StoredProducer
from ketch.wire.responses import Body


async def handle(request: Request) -> Answer:
    topics = [
        {
            "name": topic.name,
            "partitions": [await _describe(request, topic.name, index) for index in topic.partition_indexes],
        }
        for topic in request.body.topics
    ]
    return {"topics": topics}


async def _describe(request: Request, name: str, index: int) -> Body:
    try:
        return _answer(index, ErrorCode.none, None, await _producers(request, name, index))
    except KetchError as error:
        return _answer(index, request.refuse(f"{name}-{index}", error), None, [])


async def _producers(request: Request, name: str, index: int) -> list[Body]:
    partition = await find_partition(request, name, index)
    driver, topic = request.broker.log.driver, partition.topic
    if not request.broker.cluster.leads(topic.id, index):
        raise Refused(ErrorCode.not_leader_or_follower, "another broker leads the partition")
    keys = partition.transaction_keys
    known = await driver.ask(producers.load_all(keys.producers))
    opened = {each.producer: each for each in await driver.ask(markers.all_open(keys.transactions))}
    first = {producer: topic.numbering.to_offset(*each.first) for producer, each in opened.items()}
    return [_state(producer, state, opened.get(producer), first.get(producer, -1)) for producer, state in known.items()]


def _state(producer: int, state: StoredProducer, opened: OpenTransaction | None, first: int) -> Body:
    return {
        "producer_id": producer,
        "producer_epoch": state.epoch,
        "last_sequence": state.last_sequence,
        "last_timestamp": state.updated,
        "coordinator_epoch": -1 if opened is None else 0,
        "current_txn_start_offset": first,
    }


def _answer(index: int, error: ErrorCode, message: str | None, found: list[Body]) -> Body:
    return {"partition_index": index, "error_code": error, "error_message": message, "active_producers": found}
