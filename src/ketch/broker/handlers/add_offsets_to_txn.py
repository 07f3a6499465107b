"""AddOffsetsToTxn (25), versions 0 to 4: a group whose offsets a transaction will commit (KIP-98).

Version 4 differs in nothing (KIP-890 adds TRANSACTION_ABORTABLE, which only a verification gives). PRODUCER_FENCED (90)
is known since version 2, older ones get INVALID_PRODUCER_EPOCH (47).
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from ketch.broker.api import Answer, Request
from ketch.coordinator.transactions.transaction import Add, Added
from ketch.errors import KetchError

_FENCED_SINCE = 2


def refused(request: Request, code: ErrorCode) -> Answer:
    """The answer to a client that may not use the transactional id, or the group."""
    return {"error_code": code}


async def handle(request: Request) -> Answer:
    return {"error_code": await _add(request)}


async def _add(request: Request) -> ErrorCode:
    body = request.body
    if not body.transactional_id:
        return ErrorCode.invalid_request
    if not body.group_id:
        return ErrorCode.invalid_group_id
    groups = frozenset([str(body.group_id)])
    try:
        added: Added = await request.broker.transactions.ask(
            body.transactional_id,
            lambda token, _: Add(token, body.producer_id, body.producer_epoch, groups=groups),
        )
    except KetchError as error:
        return request.refuse(f"transactional id {body.transactional_id}", error)
    fenced = added.error is ErrorCode.producer_fenced and request.version < _FENCED_SINCE
    return ErrorCode.invalid_producer_epoch if fenced else added.error
