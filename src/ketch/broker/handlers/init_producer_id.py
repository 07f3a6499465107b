"""InitProducerId (22), versions 0 to 5: a fresh id for an idempotent producer (KIP-98), never given twice.

A given id and epoch (version 3 on) get a new id as well, as in Kafka where there is no transactional id. A
transactional id is refused: there are no transactions.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.errors import KetchError
from ketch.wire.responses import Body


async def handle(request: Request) -> Answer:
    body = request.body
    half = (getattr(body, "producer_id", -1) == -1) != (getattr(body, "producer_epoch", -1) == -1)
    if body.transactional_id == "" or half:
        return _answer(ErrorCode.invalid_request)
    if body.transactional_id is not None:
        request.note(f"InitProducerId for transactional id {body.transactional_id}: there are no transactions")
        return _answer(ErrorCode.transactional_id_authorization_failed)
    try:
        return _answer(ErrorCode.none, await request.broker.log.new_producer_id())
    except KetchError as error:
        return _answer(request.refuse("", error))


def _answer(error: ErrorCode, producer_id: int = -1) -> Body:
    epoch = -1 if error else 0
    return {"throttle_time": 0, "error_code": error, "producer_id": producer_id, "producer_epoch": epoch}
