"""AddPartitionsToTxn (24), versions 0 to 5: partitions that a producer will write to in its transaction (KIP-98).

Versions 4 and 5 are for brokers, which add or verify partitions of several transactions at once (KIP-890). Ketch's
brokers do that over Redis (`broker.coordination.transactions`), but answer it all the same. If one of the partitions
does not exist, none is added: the others get OPERATION_NOT_ATTEMPTED (55). PRODUCER_FENCED (90) is known since version
2, older ones get INVALID_PRODUCER_EPOCH (47).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.errors import code_of
from ketch.broker.topics import find_partition
from ketch.coordinator.transactions.transaction import Add, Added, Partition
from ketch.errors import KetchError
from ketch.wire.responses import Body

_BATCHED_SINCE = 4
_FENCED_SINCE = 2


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not use the transactional id, or from version 4 on is no broker."""
    body = request.body
    if request.version >= _BATCHED_SINCE:
        return {"error_code": code, "results_by_transaction": ()}
    return {"results_by_topic_v3_and_below": _topics(dict.fromkeys(_partitions(body.v3_and_below_topics), code))}


async def handle(request: Request) -> Answer:
    body = request.body
    if request.version >= _BATCHED_SINCE:
        results = [await _transaction(request, each) for each in body.transactions]
        return {"error_code": ErrorCode.none, "results_by_transaction": results}
    partitions = _partitions(body.v3_and_below_topics)
    producer = (body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
    errors = await _add(request, body.v3_and_below_transactional_id, producer, partitions, verify=False)
    return {"results_by_topic_v3_and_below": _topics(errors)}


async def _transaction(request: Request, asked: Any) -> Body:
    producer, partitions = (asked.producer_id, asked.producer_epoch), _partitions(asked.topics)
    errors = await _add(request, asked.transactional_id, producer, partitions, asked.verify_only)
    return {"transactional_id": asked.transactional_id, "topic_results": _topics(errors)}


def _partitions(topics: Iterable[Any]) -> list[Partition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


async def _add(
    request: Request, id: str, producer: tuple[int, int], partitions: list[Partition], verify: bool
) -> dict[Partition, ErrorCode]:
    errors = {} if verify else {each: code for each in partitions if (code := await _unknown(request, *each))}
    if errors:
        return {each: errors.get(each, ErrorCode.operation_not_attempted) for each in partitions}
    if not id:
        return dict.fromkeys(partitions, ErrorCode.invalid_request)
    wanted = frozenset(partitions)
    try:
        added: Added = await request.broker.transactions.ask(
            id, lambda token, _: Add(token, *producer, wanted, verify=verify)
        )
    except KetchError as error:
        return dict.fromkeys(partitions, request.refuse(f"transactional id {id}", error))
    error_code = added.error
    if error_code is ErrorCode.producer_fenced and request.version < _FENCED_SINCE:
        error_code = ErrorCode.invalid_producer_epoch
    missing = ErrorCode.transaction_abortable
    return {each: missing if each in added.missing else error_code for each in partitions}


async def _unknown(request: Request, topic: str, index: int) -> ErrorCode:
    try:
        await find_partition(request, topic, index)
    except KetchError as error:
        return code_of(error)
    return ErrorCode.none


def _topics(errors: dict[Partition, ErrorCode]) -> list[Body]:
    topics: dict[str, list[Body]] = {}
    for (topic, index), error in errors.items():
        topics.setdefault(topic, []).append({"partition_index": index, "partition_error_code": error})
    return [{"name": name, "results_by_partition": partitions} for name, partitions in topics.items()]
