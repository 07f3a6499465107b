"""DescribeTransactions (65), version 0: the state of transactional ids that this broker coordinates (KIP-664)."""

from __future__ import annotations

from itertools import groupby

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.broker.topics import denied
from ketch.broker.touches import LISTS_TOPIC
from ketch.coordinator.transactions.transaction import Transaction
from ketch.errors import KetchError
from ketch.security.acls import ResourceType
from ketch.wire.responses import Body


async def handle(request: Request) -> Answer:
    ids = request.body.transactional_ids
    return {"transaction_states": [await _describe(request, id) for id in ids]}


async def _describe(request: Request, id: str) -> Body:
    if not id:
        return _entry(request, id, ErrorCode.invalid_request, None)
    if code := request.denial(ResourceType.TRANSACTIONAL_ID, id):
        return _entry(request, id, request.refuse(f"transactional id {id}", denied(code), code), None)
    try:
        found = await request.broker.transactions.find(id)
    except KetchError as error:
        return _entry(request, id, request.refuse(f"transactional id {id}", error), None)
    return _entry(request, id, ErrorCode.none if found else ErrorCode.transactional_id_not_found, found)


def _entry(request: Request, id: str, error: ErrorCode, found: Transaction | None) -> Body:
    return {
        "error_code": error,
        "transactional_id": id,
        "transaction_state": "" if found is None else str(found.state),
        "transaction_timeout": 0 if found is None else found.timeout_ms,
        "transaction_start_time": 0 if found is None else found.begun,
        "producer_id": 0 if found is None else found.producer,
        "producer_epoch": 0 if found is None else found.epoch,
        "topics": [] if found is None else _topics(request, found),
    }


def _topics(request: Request, found: Transaction) -> list[Body]:
    shown = [each for each in found.partitions if not request.denial_by(LISTS_TOPIC, each[0])]
    by_topic = groupby(sorted(shown), key=lambda partition: partition[0])
    return [{"topic": topic, "partitions": [index for _, index in partitions]} for topic, partitions in by_topic]
